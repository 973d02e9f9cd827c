package engine

import (
	"context"
	"slices"

	"github.com/tutti-go/tutti/mem"
)

// vectorCall is the last v form of its kind that took the door, without its
// buffers. One that is like it need not be checked again, nor chosen for: with
// all counts and what follows from them, that takes longer than the call.
type vectorCall struct {
	call
	send, recv int // bytes of this rank's buffers
	inPlace    int // how far recv lies behind send in place
	counts     [2][]int
}

// remember keeps a call that has been checked. The counts are copied: they are
// the caller's.
func (v *vectorCall) remember(k *call, inPlace int) {
	v.call, v.send, v.recv, v.inPlace = *k, len(k.in), len(k.out), inPlace
	v.in, v.out = nil, nil
	for i, counts := range []*[]int{&v.inCounts, &v.outCounts} {
		if *counts != nil {
			v.counts[i] = append(v.counts[i][:0], *counts...)
			*counts = v.counts[i]
		}
	}
}

// matches reports whether a call is the one that v was made of. A buffer or
// counts that the rank does not bring are nil.
func (v *vectorCall) matches(send, recv []byte, inCounts, outCounts []int, t mem.DType, op mem.Op, root int) bool {
	return v.vector && len(send) == v.send && len(recv) == v.recv && t == v.dtype && op == v.op && root == v.root &&
		slices.Equal(inCounts, v.inCounts) && slices.Equal(outCounts, v.outCounts) && legalAlias(send, recv, v.inPlace)
}

// vectorAgain makes a v form of which the last of its kind has left everything
// but the buffers.
func (c *Comm) vectorAgain(ctx context.Context, v *vectorCall, send, recv []byte) error {
	name := vectorNames[v.collective]
	if c.worker != nil {
		if err := c.settle(ctx, name); err != nil {
			return err
		}
	}
	if err := c.begin(name); err != nil {
		return err
	}
	v.in, v.out = send, recv
	var err error
	if v.collective.Rooted() {
		err = c.knockRooted(ctx, &v.call)
	} else {
		err = c.runVector(ctx, &v.call)
		c.dropBuffers()
	}
	v.in, v.out = nil, nil
	return c.exit(name, err)
}
