package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/plan"
)

// execute binds a program to a call and runs it. For every tile, for every
// action: wait for the counters the action depends on, copy or reduce, raise
// the own counter.
//
// An action with skew s works on tile i-s in iteration i, so a rank prepares
// the next tiles while its peers work on this one. The counter after action j
// of iteration i is base + Arrived + i*stride + j + 1, on every rank and medium;
// package plan proves the order that follows from it.
func (c *Comm) execute(ctx context.Context, p *program, k *call) error {
	if err := c.bind(ctx, p, k); err != nil {
		return err
	}
	base := c.base
	c.crowd.At(c.seen, base+plan.Arrived) // who has done nothing yet is behind
	for i := range p.tiles + p.maxSkew {
		if err := c.interrupted(ctx); err != nil {
			return err
		}
		for j := range p.actions {
			a := &p.actions[j]
			t := i - a.skew
			if t < 0 || t >= p.tiles {
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
			if err := c.perform(p, k, a, t); err != nil {
				return err
			}
			if !a.signal {
				continue
			}
			progress := base + plan.Arrived + uint64(i)*p.stride + uint64(j) + 1
			c.own.Raise(progress)
			c.crowd.At(c.seen, progress)
			for _, rank := range a.notify {
				if err := c.notify(rank, progress); err != nil {
					return err
				}
			}
		}
	}
	for _, w := range p.finish {
		if err := c.waiters[w.rank].Wait(ctx, c.seen[w.rank], base+w.offset+uint64(p.tiles-1-w.lag)*p.stride); err != nil {
			return err
		}
	}
	if !c.mapped {
		c.before, c.half = base+plan.Arrived, c.half^1
	}
	c.base = base + p.end(p.tiles)
	if p.reach.PeerData && c.out.view != nil {
		c.out.fetch(k.out)
	}
	return nil
}

// perform does the work of one action on one tile.
func (c *Comm) perform(p *program, k *call, a *action, t int) error {
	bytes := min(p.tileBytes, a.bytes-t*p.tileBytes)
	if bytes <= 0 || k.collective == plan.Barrier {
		return nil
	}
	switch a.way {
	case put:
		src := unsafe.Slice((*byte)(p.at(&a.srcs[0], t)), bytes)
		return c.links[a.peer].Put(c.remoteAt(p, &a.dsts[0], t), c.parcelOf(k, &a.srcs[0], src))
	case readFar:
		return c.copiers[a.peer].ReadFrom(unsafe.Slice((*byte)(p.at(&a.dsts[0], t)), bytes), p.farAt(&a.srcs[0], t))
	case writeFar:
		return c.copiers[a.peer].WriteTo(p.farAt(&a.dsts[0], t), unsafe.Slice((*byte)(p.at(&a.srcs[0], t)), bytes))
	}
	for i := range a.srcs {
		a.srcAt[i] = p.at(&a.srcs[i], t)
	}
	for i := range a.dsts {
		a.dstAt[i] = p.at(&a.dsts[i], t)
	}
	divisor := 1
	if a.last {
		divisor = k.divisor
	}
	switch {
	case k.wire != WireFull:
		c.performCoded(k, a, bytes, divisor)
	case a.reduces:
		c.team.reduce(k.kernel, a.dstAt, a.srcAt, bytes, k.dtype.Size(), divisor)
	case a.way == stream:
		spread(move.Stream, a.dstAt, a.srcAt[0], bytes)
	default:
		spread(move.Bytes, a.dstAt, a.srcAt[0], bytes)
	}
	return nil
}

// spreadBytes is how much of a source is copied to all its destinations before
// the next: it stays in the cache in between.
const spreadBytes = 128 << 10

// spread copies bytes to every destination that is not where they lie already.
func spread(copyTo func(dst, src []byte), dsts []unsafe.Pointer, src unsafe.Pointer, bytes int) {
	each := bytes
	if len(dsts) > 1 {
		each = spreadBytes
	}
	for from := 0; from < bytes; from += each {
		part := unsafe.Slice((*byte)(unsafe.Add(src, from)), min(each, bytes-from))
		for _, dst := range dsts {
			if dst != src { // in place, a chunk is where it belongs already
				copyTo(unsafe.Slice((*byte)(unsafe.Add(dst, from)), len(part)), part)
			}
		}
	}
}
