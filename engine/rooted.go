package engine

import (
	"context"
	"errors"
	"unsafe"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/plan"
)

// A rooted v form concerns the root and each other rank by themselves: the two
// know how long their block is, and nobody else need. Short blocks take the
// door, in the lines and annexes of uniform rooted calls, so whoever waits for
// nobody may be as many calls ahead. Where they are too long, a stamp says so
// and they come as messages.
//
//   - A rank that is gathered from shows its block. The stamp holds the size,
//     which the root compares with what it expects.
//   - A root that scatters shows the sizes of all blocks and, behind them, the
//     blocks of the others; it sends all by message if these are too many for
//     an annex.
//
// What comes as a message is compared there, so that its sender, who may be
// waiting for it to be taken, learns of a disagreement too.

// knockRooted takes GatherV or ScatterV through the door.
func (c *Comm) knockRooted(ctx context.Context, k *call) error {
	l := c.door.next()
	switch {
	case k.collective == plan.Gather && c.rank == k.root:
		return c.takeGathered(ctx, k, l)
	case k.collective == plan.Gather:
		return c.showGathered(ctx, k, l)
	case c.rank == k.root:
		return c.showScattered(ctx, k, l)
	}
	return c.takeScattered(ctx, k, l)
}

// comesLong reports whether a stamp says that the blocks of this very call, but
// for their type and size, come as messages.
func comesLong(mine, theirs stamp) bool {
	const kind = stampVector | 0xffff<<stampRoot | 0xf<<stampCollective
	return theirs&stampLarge != 0 && (mine^theirs)&kind == 0
}

// sized is the stamp of a block of a v form.
func sized(s stamp, bytes int) stamp { return s | stamp(min(bytes, mostStamped))<<stampBlock }

// showGathered is GatherV on ranks other than the root.
func (c *Comm) showGathered(ctx context.Context, k *call, l *line) error {
	s, shown := sized(stampOf(k), len(k.in)), k.in
	if len(shown) > annexBytes {
		s, shown = s|stampLarge, nil
	}
	p, err := c.door.room(ctx, c.waiters, l, len(shown), true)
	if err != nil {
		return err
	}
	move.Bytes(p.mine[:len(shown)], shown)
	c.door.raise(l, s, false)
	if s&stampLarge != 0 {
		return c.byMessages(ctx, k)
	}
	return nil
}

// takeGathered is GatherV on the root.
func (c *Comm) takeGathered(ctx context.Context, k *call, l *line) error {
	d, s := &c.door, stampOf(k)
	if err := d.pass(ctx, c.waiters, l, s); err != nil {
		return err
	}
	c.crowd.At(l.counters, d.calls)
	long := false
	for rank, counter := range l.counters {
		if rank == c.rank {
			continue
		}
		if err := c.waiters[rank].Wait(ctx, counter, d.calls); err != nil {
			return err
		}
		expected, theirs := k.outCounts[rank]*k.dtype.Size(), *stampIn(counter)
		if comesLong(s, theirs) {
			long = true
			continue
		}
		if (theirs^s)&^stampLocal == theirs&stampSize && theirs&stampSize != sized(0, expected) {
			return &CountError{Call: k.name(), From: rank, To: c.rank, Sent: int(theirs & stampSize >> stampBlock), Expected: expected}
		}
		if err := differs(rank, sized(s, expected), theirs); err != nil {
			return err
		}
	}
	d.entered = d.calls
	if long {
		return c.byMessages(ctx, k)
	}
	at := 0
	for rank := range l.counters {
		block := k.out[at:][:k.outCounts[rank]*k.dtype.Size()]
		at += len(block)
		c.takeBlock(k, l, rank, block)
	}
	return nil
}

// takeBlock copies the block that a rank shows to the root of a GatherV.
func (c *Comm) takeBlock(k *call, l *line, rank int, block []byte) {
	switch {
	case rank == c.rank:
		fetch(block, pointer(k.in))
	case len(block) <= lineBytes:
		fetch(block, l.at[rank])
	default:
		fetch(block, l.annex.at[rank])
	}
}

// scatterHead is what the sizes of all blocks take in a ScatterV, with that
// which the root expects.
func (c *Comm) scatterHead() int { return ((c.size+1)*sizeBytes + 7) / 8 * 8 }

// showScattered is ScatterV on the root.
func (c *Comm) showScattered(ctx context.Context, k *call, l *line) error {
	s, own, head := stampOf(k), k.ownBytes(c.rank), c.scatterHead()
	payload := head + len(k.in) - own
	switch {
	case payload > annexBytes:
		s, payload = s|stampLarge, 0
	case payload > lineBytes:
		s |= stampSlot
	}
	p, err := c.door.room(ctx, c.waiters, l, payload, true)
	if err != nil {
		return err
	}
	if s&stampLarge != 0 {
		c.door.raise(l, s, false)
		return c.byMessages(ctx, k)
	}
	c.showBlocks(k, p.mine, head)
	c.door.raise(l, s, false)
	fetch(k.out, pointer(k.in[k.ownOffset(k.inCounts, c.rank):][:own]))
	return nil
}

// takeScattered is ScatterV on ranks other than the root.
func (c *Comm) takeScattered(ctx context.Context, k *call, l *line) error {
	d, s := &c.door, stampOf(k)
	if err := d.pass(ctx, c.waiters, l, s); err != nil {
		return err
	}
	counter, from := l.counters[k.root], l.at[k.root]
	c.crowd.Await(k.root)
	if err := c.waiters[k.root].Wait(ctx, counter, d.calls); err != nil {
		return err
	}
	theirs := *stampIn(counter)
	if comesLong(s, theirs) {
		return c.byMessages(ctx, k)
	}
	if err := differs(k.root, s, theirs); err != nil {
		return err
	}
	if theirs&stampSlot != 0 {
		from = l.annex.at[k.root]
	}
	sizes, at := unsafe.Slice((*uint32)(from), c.size), c.scatterHead()
	for rank, size := range sizes[:c.rank] {
		if rank != k.root {
			at += int(size)
		}
	}
	// What lies beyond the annex was not shown, whatever is written there.
	if sent := int(sizes[c.rank]); sent != len(k.out) || at+sent > annexBytes {
		return &CountError{Call: k.name(), From: k.root, To: c.rank, Sent: sent, Expected: len(k.out)}
	}
	fetch(k.out, unsafe.Add(from, at))
	return nil
}

// byMessages makes a rooted call of messages between the root and the others: a
// uniform one of middling size, in which a rank that has sent what it has to
// send need not wait for the others; or a v form, as far as its blocks have not
// been shown.
func (c *Comm) byMessages(ctx context.Context, k *call) error {
	x := c.post.own
	x.call = k.collective
	defer x.reset()
	switch {
	case c.rank == k.root && k.collective == plan.Broadcast:
		for rank := range c.size {
			if rank != c.rank {
				x.Send(k.in, k.dtype, rank)
			}
		}
		fetch(k.out, pointer(k.in))
	case c.rank != k.root && k.collective == plan.Gather:
		x.Send(k.in, k.dtype, k.root)
	case c.rank != k.root:
		x.Recv(k.out, k.dtype, k.root)
	default:
		many, counts, own := k.out, k.outCounts, k.in
		if k.collective == plan.Scatter {
			many, counts, own = k.in, k.inCounts, k.out
		}
		at, l := 0, c.door.present()
		for rank := range c.size {
			bytes := k.block
			if counts != nil {
				bytes = counts[rank] * k.dtype.Size()
			}
			block := many[at:][:bytes]
			at += bytes
			switch {
			case rank != c.rank && k.vector && k.collective == plan.Gather && *stampIn(l.counters[rank])&stampLarge == 0:
				c.takeBlock(k, l, rank, block)
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
	if !errors.As(err, &m) || m.Mine.Call != m.Theirs.Call || m.Mine.Type != m.Theirs.Type {
		return err
	}
	if sends := (k.collective == plan.Scatter) == (c.rank == k.root); sends {
		return &CountError{Call: k.name(), From: c.rank, To: m.Rank, Sent: m.Mine.Bytes, Expected: m.Theirs.Bytes}
	}
	return &CountError{Call: k.name(), From: m.Rank, To: c.rank, Sent: m.Theirs.Bytes, Expected: m.Mine.Bytes}
}
