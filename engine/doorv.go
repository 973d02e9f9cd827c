package engine

import (
	"context"
	"errors"
	"unsafe"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/plan"
)

// The v forms in which every rank needs something of every other take the door
// as well, though no rank knows what the others bring. Each shows the sizes of
// its blocks and, behind them, the blocks; or, where that is too much, that it
// is: then all see it, and go on by giving notice, at the price of one more
// synchronisation.

// vectorBytes is the most that a rank shows of a v form.
const vectorBytes = 8 << 10

// sizeBytes is what the size of a block takes.
const sizeBytes = 4

// knockVector takes a v form through the door. It reports whether that was
// all; if not, nothing has happened but that all know it.
func (c *Comm) knockVector(ctx context.Context, k *call) (bool, error) {
	d := &c.door
	blocks := 1
	if k.inCounts != nil {
		blocks = c.size
	}
	head := (blocks*sizeBytes + 7) / 8 * 8
	payload, s := head+len(k.in), stampOf(k)
	if payload > vectorBytes {
		payload, s = 0, s|stampLarge
	}
	// All use the same slot, or none, whatever they bring.
	l, p, err := d.open(ctx, c.waiters, slotBytes, false)
	if err != nil {
		return false, err
	}
	if payload > 0 {
		mine := p.mine
		if payload <= len(l.mine) {
			mine = l.mine
		} else {
			s |= stampSlot
		}
		c.showBlocks(k, mine, head)
	}
	d.raise(l, s)
	if err := d.meetAll(ctx, c.waiters, l, s&^stampLocal); err != nil {
		return false, err
	}
	for rank, counter := range l.counters {
		theirs := *stampIn(counter)
		if rank == d.own {
			theirs = s // the line itself is on its way to the peers
		}
		switch {
		case theirs&stampLarge != 0:
			return false, nil
		case rank == d.own:
			d.src[rank] = nil
		case theirs&stampSlot != 0:
			d.src[rank] = p.at[rank]
		default:
			d.src[rank] = l.at[rank]
		}
	}
	err = c.takeVector(k, head)
	clear(d.src)
	return true, err
}

// showBlocks writes the sizes of this rank's blocks, and the blocks.
func (c *Comm) showBlocks(k *call, to []byte, head int) {
	sizes := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(to))), head/sizeBytes)
	sizes[0] = uint32(len(k.in))
	for i, n := range k.inCounts {
		sizes[i] = uint32(n * k.dtype.Size())
	}
	if len(k.in) > 0 {
		move.Bytes(to[head:][:len(k.in)], k.in)
	}
}

// takeVector computes this rank's output from what the ranks show.
func (c *Comm) takeVector(k *call, head int) error {
	size, at := k.dtype.Size(), 0
	for rank := range c.size {
		expected := len(k.out)
		if k.outCounts != nil {
			expected = k.outCounts[rank] * size
		}
		if rank == c.rank {
			c.door.src[rank] = unsafe.Add(pointer(k.in), c.ownBlockAt(k))
		} else {
			sent, from := c.blockFrom(k, rank)
			if sent != expected {
				return &CountError{Call: k.name(), From: rank, To: c.rank, Sent: sent, Expected: expected}
			}
			c.door.src[rank] = unsafe.Add(c.door.src[rank], head+from)
		}
		if k.collective != plan.ReduceScatter {
			fetch(k.out[at:][:expected], c.door.src[rank])
			at += expected
		}
	}
	if k.collective == plan.ReduceScatter && len(k.out) > 0 {
		c.door.dst[0] = pointer(k.out)
		k.kernel(c.door.dst[:], c.door.src, len(k.out)/size, k.divisor)
		c.door.dst[0] = nil
	}
	return nil
}

// blockFrom returns the size of the block that a rank shows for this one, and
// where it lies behind the sizes. What it reads is bounded by what a rank may
// show, whatever that rank has written.
func (c *Comm) blockFrom(k *call, rank int) (bytes, at int) {
	blocks := 1
	if k.collective != plan.AllGather {
		blocks = c.size
	}
	sizes := unsafe.Slice((*uint32)(c.door.src[rank]), blocks)
	mine := 0
	if blocks > 1 {
		mine = c.rank
	}
	for _, n := range sizes[:mine] {
		at += int(n)
	}
	bytes = int(sizes[mine])
	if at > vectorBytes || bytes > vectorBytes-at {
		return -1, 0
	}
	return bytes, at
}

// ownBlockAt is where this rank's block for itself begins in its In.
func (c *Comm) ownBlockAt(k *call) int {
	if k.inCounts == nil {
		return 0
	}
	return k.ownOffset(k.inCounts, c.rank)
}

// byMessages makes a rooted v form of messages between the root and the
// others: each pair knows how long its block is, and nobody need know more.
func (c *Comm) byMessages(ctx context.Context, k *call) error {
	x := c.post.own
	x.call = k.collective
	defer x.reset()
	switch {
	case c.rank != k.root && k.collective == plan.Gather:
		x.Send(k.in, k.dtype, k.root)
	case c.rank != k.root:
		x.Recv(k.out, k.dtype, k.root)
	default:
		many, counts, own := k.out, k.outCounts, k.in
		if k.collective == plan.Scatter {
			many, counts, own = k.in, k.inCounts, k.out
		}
		at := 0
		for rank, n := range counts {
			block := many[at:][:n*k.dtype.Size()]
			at += len(block)
			switch {
			case rank != c.rank && k.collective == plan.Gather:
				x.Recv(block, k.dtype, rank)
			case rank != c.rank:
				x.Send(block, k.dtype, rank)
			case len(block) == 0 || pointer(block) == pointer(own):
			case k.collective == plan.Gather:
				move.Bytes(block, own)
			default:
				move.Bytes(own, block)
			}
		}
	}
	if err := x.progress(ctx); err != nil {
		return c.countError(k, err)
	}
	return nil
}

// countError says of two ranks that met in the same call and with the same
// type that they disagree in the size.
func (c *Comm) countError(k *call, err error) error {
	var m *MismatchError
	if errors.As(err, &m) && m.Mine.Call == m.Theirs.Call && m.Mine.Type == m.Theirs.Type {
		return &CountError{Call: k.name(), From: m.Rank, To: c.rank, Sent: m.Theirs.Bytes, Expected: m.Mine.Bytes}
	}
	return err
}
