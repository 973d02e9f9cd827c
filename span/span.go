// Package span joins two media to one: memory that the ranks of a node share,
// and a network between the nodes.
//
// A region is allocated by the medium inside and exposed on the network, so it
// is one piece of memory however a peer reaches it. Links to ranks of the same
// node are those of the medium inside, which are Mappers; all others are the
// network's.
package span

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// Fabric is one rank's end of both media. It implements link.Fabric and
// link.Progresser.
type Fabric struct {
	rank    int
	nodes   []int
	inside  link.Fabric
	across  link.Fabric
	exposer link.Exposer
	push    link.Progresser // nil if the network needs none
}

var (
	_ link.Fabric     = (*Fabric)(nil)
	_ link.Progresser = (*Fabric)(nil)
	_ link.Adopter    = (*Fabric)(nil)
)

// Join returns the fabric of a rank. nodes holds the node of each rank; both
// fabrics know all ranks by the same numbers, and are the Fabric's from then
// on. across must be a link.Exposer.
func Join(rank int, nodes []int, inside, across link.Fabric) (*Fabric, error) {
	exposer, ok := across.(link.Exposer)
	if !ok {
		return nil, fmt.Errorf("span: %s cannot expose the memory of %s", across.Medium(), inside.Medium())
	}
	f := &Fabric{rank: rank, nodes: nodes, inside: inside, across: across, exposer: exposer}
	f.push, _ = across.(link.Progresser)
	return f, nil
}

// Medium implements link.Fabric: both names.
func (f *Fabric) Medium() string { return f.inside.Medium() + "+" + f.across.Medium() }

// Alloc implements link.Fabric.
func (f *Fabric) Alloc(bytes int) (*mem.Buffer, error) {
	b, err := f.inside.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	withdraw, err := f.exposer.Expose(b.Region(), b.Bytes())
	if err != nil {
		return nil, errors.Join(err, b.Free())
	}
	return mem.NewBuffer(b.Region(), b.Bytes(), func() error { return errors.Join(withdraw(), b.Free()) }), nil
}

// Adopt implements link.Adopter where the medium inside does. What is adopted is
// a region inside the node only.
func (f *Fabric) Adopt(memory []byte) (*mem.Adopted, error) {
	a, ok := f.inside.(link.Adopter)
	if !ok {
		return nil, &link.AdoptError{Rank: f.rank, Bytes: len(memory), Reason: f.inside.Medium() + " adopts nothing"}
	}
	return a.Adopt(memory)
}

// Connect implements link.Fabric.
func (f *Fabric) Connect(ctx context.Context, peer int) (link.Link, error) {
	if peer < 0 || peer >= len(f.nodes) || peer == f.rank {
		return nil, fmt.Errorf("span: rank %d of %d cannot connect to rank %d: %w", f.rank, len(f.nodes), peer, link.ErrRange)
	}
	if f.nodes[peer] == f.nodes[f.rank] {
		return f.inside.Connect(ctx, peer)
	}
	return f.across.Connect(ctx, peer)
}

// Lost implements link.Fabric. Either medium may tell of any peer: who leaves
// because it has lost somebody says whom, also to those that another medium
// connects to that one.
func (f *Fabric) Lost(fn func(peer int, err error)) (forget func()) {
	told := make([]atomic.Bool, len(f.nodes))
	through := func(other link.Fabric) func(int, error) {
		return func(peer int, err error) {
			// Before fn, which may make the rank close.
			mourner, ok := other.(link.Mourner)
			if lost := (*link.PeerLostError)(nil); ok && errors.As(err, &lost) {
				mourner.Mourn(lost)
			}
			if told[peer].CompareAndSwap(false, true) {
				fn(peer, err)
			}
		}
	}
	inside, across := f.inside.Lost(through(f.across)), f.across.Lost(through(f.inside))
	return func() {
		inside()
		across()
	}
}

// Progress implements link.Progresser.
func (f *Fabric) Progress() {
	if f.push != nil {
		f.push.Progress()
	}
}

// Close implements link.Fabric.
func (f *Fabric) Close() error { return errors.Join(f.across.Close(), f.inside.Close()) }
