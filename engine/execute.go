package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/plan"
)

// execute runs a bound program. For every tile, for every action: wait for the
// counters the action depends on, copy or reduce, raise the own counter.
//
// An action with skew s works on tile i-s in iteration i, so a rank prepares
// the next tiles while its peers work on this one. The counter after action j
// of iteration i is base + Arrived + i*stride + j + 1, on every rank and medium;
// package plan proves the order that follows from it.
func (c *Comm) execute(ctx context.Context, p *program, k *call) error {
	g := p.tile(len(k.in))
	base := c.base
	for i := range g.tiles + p.maxSkew {
		if err := c.interrupted(ctx); err != nil {
			return err
		}
		for j := range p.actions {
			a := &p.actions[j]
			t := i - a.skew
			if t < 0 || t >= g.tiles {
				continue
			}
			for _, w := range a.waits {
				if t < w.lag {
					continue
				}
				if err := c.waiters[w.rank].Wait(ctx, c.seen[w.rank], base+w.offset+uint64(t-w.lag)*p.stride); err != nil {
					return err
				}
			}
			if err := c.perform(p, k, &g, a, t); err != nil {
				return err
			}
			if !a.signal {
				continue
			}
			progress := base + plan.Arrived + uint64(i)*p.stride + uint64(j) + 1
			c.own.Raise(progress)
			for _, rank := range a.notify {
				if err := c.notify(rank, progress); err != nil {
					return err
				}
			}
		}
	}
	for _, w := range p.finish {
		if err := c.waiters[w.rank].Wait(ctx, c.seen[w.rank], base+w.offset+uint64(g.tiles-1-w.lag)*p.stride); err != nil {
			return err
		}
	}
	c.base = base + p.end(g.tiles)
	return nil
}

// interrupted returns why a call should end though nothing keeps it waiting.
func (c *Comm) interrupted(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
		return c.failures.comm.Err()
	}
}

// perform does the work of one action on one tile.
func (c *Comm) perform(p *program, k *call, g *tiling, a *action, t int) error {
	_, bytes := p.extent(g, a.span, t)
	if bytes == 0 {
		return nil
	}
	for i, o := range a.srcs {
		a.srcAt[i] = p.at(g, o, t)
	}
	if a.putTo >= 0 {
		src := unsafe.Slice((*byte)(a.srcAt[0]), bytes)
		return c.links[a.putTo].Put(p.scratchAt(c.peerRegions[a.putTo], a.dsts[0], t), src)
	}
	for i, o := range a.dsts {
		a.dstAt[i] = p.at(g, o, t)
	}
	if !a.reduces {
		src := unsafe.Slice((*byte)(a.srcAt[0]), bytes)
		for _, dst := range a.dstAt {
			if dst != a.srcAt[0] { // in place, a chunk is where it belongs already
				move.Bytes(unsafe.Slice((*byte)(dst), bytes), src)
			}
		}
		return nil
	}
	divisor := 1
	if a.last {
		divisor = k.divisor
	}
	c.team.reduce(k.kernel, a.dstAt, a.srcAt, bytes, k.dtype.Size(), divisor)
	return nil
}
