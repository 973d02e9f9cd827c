package engine

import (
	"context"
	"slices"

	"github.com/tutti-go/tutti/plan"
)

// vectorCall is the last v form of its kind that took the door, without its
// buffers. One that is like it need not be checked again, nor chosen for: with
// all counts and what follows from them, that takes longer than the call.
type vectorCall struct {
	call
	send, recv int // bytes of this rank's buffers
	inPlace    int // how far recv lies behind send in place
}

// remember keeps a call that has been checked. The counts are copied: they are
// the caller's.
func (v *vectorCall) remember(k *call, inPlace int) {
	ins, outs := v.inCounts, v.outCounts
	v.call, v.send, v.recv, v.inPlace = *k, len(k.in), len(k.out), inPlace
	v.in, v.out = nil, nil
	v.inCounts, v.outCounts = copyCounts(ins, k.inCounts), copyCounts(outs, k.outCounts)
}

// copyCounts copies counts to where others were; none stay none.
func copyCounts(to, counts []int) []int {
	if counts == nil {
		return nil
	}
	return append(to[:0], counts...)
}

// matches reports whether a call is the one that v was made of.
func (v *vectorCall) matches(k *call) bool {
	return v.vector && len(k.in) == v.send && len(k.out) == v.recv && k.dtype == v.dtype && k.op == v.op && k.root == v.root &&
		slices.Equal(k.inCounts, v.inCounts) && slices.Equal(k.outCounts, v.outCounts) && legalAlias(k.in, k.out, v.inPlace)
}

// callVector runs a v form when those before it are done.
func (c *Comm) callVector(ctx context.Context, k *call) error {
	// A rank says nothing with what it does not bring.
	switch {
	case k.collective == plan.Gather && c.rank != k.root:
		k.out, k.outCounts = nil, nil
	case k.collective == plan.Scatter && c.rank != k.root:
		k.in, k.inCounts = nil, nil
	}
	v := &c.vectors[k.collective]
	if !v.matches(k) {
		return c.call(ctx, *k)
	}
	k.kernel, k.divisor = v.kernel, v.divisor
	name := vectorNames[k.collective]
	if c.worker != nil {
		if err := c.settle(ctx, name); err != nil {
			return err
		}
	}
	if err := c.begin(name); err != nil {
		return err
	}
	var err error
	if k.collective.Rooted() {
		err = c.knockRooted(ctx, k)
	} else {
		err = c.runVector(ctx, k)
	}
	c.dropBuffers()
	return c.exit(name, err)
}
