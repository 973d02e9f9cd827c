package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/tune"
)

// The v forms in which every rank needs something of every other take the door
// as well, though no rank knows what the others bring. Each shows the sizes of
// its blocks and, behind them, the blocks; or it gives notice and shows that it
// did. If all do the one, the call is done; if all do the other, they have met.
// Where some do this and some that, all see it and meet once more.

// vectorBytes is what a rank shows of a v form wherever its buffers are. Where
// it would not have to give notice of them as well, it shows more.
const vectorBytes = 8 << 10

// sizeBytes is what the size of a block takes.
const sizeBytes = 4

// knockVector takes a v form through the door. It reports whether that was all,
// and if not, whether all have given notice.
func (c *Comm) knockVector(ctx context.Context, k *call) (done, noticed bool, err error) {
	d := &c.door
	ins := k.collective.Blocks(plan.In, c.rank, 0, c.size)
	outs := k.collective.Blocks(plan.Out, c.rank, 0, c.size)
	head := ((ins+outs)*sizeBytes + 7) / 8 * 8
	payload, s := head+len(k.in)-k.ownBytes(c.rank), stampOf(k)
	shows := payload <= vectorBytes && len(k.out) <= c.size*vectorBytes
	c.met++
	if !shows {
		c.locate(k)
		most := tune.OneShotLimit(k.collective)
		fits := payload-head <= most && payload <= slotBytes && len(k.out) <= c.size*most
		if shows = fits && (c.crowded || !c.locatedAll(k)); !shows {
			c.writeNotice(k)
			s |= stampLarge
		}
	}
	// All use the same slot, whatever they bring.
	l := d.next()
	p, err := d.room(ctx, c.waiters, l, slotBytes, false)
	if err != nil {
		return false, false, err
	}
	mine := l.mine
	if shows {
		if payload > len(mine) {
			mine, s = p.mine, s|stampSlot
		}
		c.showBlocks(k, mine, head)
	}
	d.raise(l, s, true)
	if err := d.waitAll(ctx, c.waiters, l, s&^stampLocal); err != nil {
		return false, false, err
	}
	done, noticed = shows, !shows
	for rank, counter := range l.counters {
		if rank == d.own {
			continue
		}
		theirs := *stampIn(counter)
		if theirs&stampLarge != 0 {
			done = false
		} else {
			noticed = false
		}
		if d.src[rank] = l.at[rank]; theirs&stampSlot != 0 {
			d.src[rank] = p.at[rank]
		}
	}
	switch {
	case done:
		d.src[d.own] = pointer(mine)
		if !c.shape.isOf(k.collective, d.src, ins+outs) {
			if err = c.shape.read(k, c.shownRows(ins, outs)); err != nil {
				break
			}
			c.shape.keep(k.collective, d.src, ins+outs)
		}
		c.takeVector(k, head)
	case !noticed: // they will be looked up again
		c.in.letGo()
		c.out.letGo()
	}
	clear(d.src)
	return done, noticed, err
}

// ownBytes is the size of the block that a rank of a v form has for itself among
// those for all; it is not shown.
func (k *call) ownBytes(rank int) int {
	if k.inCounts == nil {
		return 0
	}
	return k.inCounts[rank] * k.dtype.Size()
}

// showBlocks writes the sizes of this rank's blocks, of In and of Out, and the
// blocks of In that others need.
func (c *Comm) showBlocks(k *call, to []byte, head int) {
	sizes := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(to))), head/sizeBytes)
	at := 0
	for _, b := range [2]struct {
		bytes  int
		counts []int
	}{{len(k.in), k.inCounts}, {len(k.out), k.outCounts}} {
		if b.counts == nil {
			sizes[at] = uint32(b.bytes)
			at++
		}
		for _, n := range b.counts {
			sizes[at] = uint32(n * k.dtype.Size())
			at++
		}
	}
	before, after := k.in, []byte(nil)
	if k.inCounts != nil {
		own := k.ownOffset(k.inCounts, c.rank)
		before, after = k.in[:own], k.in[own+k.ownBytes(c.rank):]
	}
	move.Bytes(to[head:][:len(before)], before)
	move.Bytes(to[head+len(before):][:len(after)], after)
}

// shownRows returns the sizes that the ranks show as rows of a notice. None is
// taken for more than a rank may show, whatever is written there.
func (c *Comm) shownRows(ins, outs int) [][]uint64 {
	n := c.size
	if c.shown == nil {
		for range n {
			c.shown = append(c.shown, make([]uint64, 2*n))
		}
	}
	for rank, src := range c.door.src {
		sizes, row := unsafe.Slice((*uint32)(src), ins+outs), c.shown[rank]
		left := uint64(slotBytes - (ins+outs)*sizeBytes)
		for i, size := range sizes[:ins] {
			if row[i] = uint64(size); ins > 1 && i == rank { // which is not among what it shows
				continue
			}
			row[i] = min(row[i], left)
			left -= row[i]
		}
		for i, size := range sizes[ins:] {
			row[n+i] = uint64(size)
		}
	}
	return c.shown
}

// takeVector computes this rank's output from what the ranks show.
func (c *Comm) takeVector(k *call, head int) {
	d, position := &c.door, c.rank
	if k.collective == plan.AllGather {
		position = 0
	}
	for rank := range c.size {
		at := c.shape.offset(plan.In, rank, position)
		if rank == c.rank {
			// Not unsafe.Add, which points behind the buffer if the last block is
			// ours and empty: to Go's collector that is another object.
			d.src[rank] = pointer(k.in[at:])
			continue
		}
		if rank < position { // its own block is before ours, and not there
			at -= int(c.shown[rank][rank])
		}
		d.src[rank] = unsafe.Add(d.src[rank], head+at)
	}
	if k.collective == plan.ReduceScatter {
		if len(k.out) > 0 {
			d.dst[0] = pointer(k.out)
			k.kernel(d.dst[:], d.src, len(k.out)/k.dtype.Size(), k.divisor)
			d.dst[0] = nil
		}
		return
	}
	for rank, src := range d.src {
		to := c.shape.offset(plan.Out, c.rank, rank)
		fetch(k.out[to:to+k.outCounts[rank]*k.dtype.Size()], src)
	}
}
