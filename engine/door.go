package engine

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti/internal/fence"
	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/reduce"
)

// door is where ranks meet that map each other's memory. It runs small
// collectives without the executor, the only way to a few hundred nanoseconds:
// it computes what the plans named oneshot state. Before larger ones it is
// where ranks learn that all have arrived, see meet.
//
// Each rank has a ring of lines, each that of a counter with 56 bytes behind
// the count; an annex to each for larger payloads of rooted calls; and eight
// slots for all other payloads. To call, a rank copies what it contributes, if
// anything, into a line, annex or slot, its stamp into the line, and raises the
// counter there to the number of the call; a small payload thus arrives with
// the count, in one cache line. It then waits for the ranks whose payloads it
// needs, and copies or reduces them, in rank order, into its output; its own it
// takes from the caller. There is no second synchronisation, and where it needs
// nobody's payload, none at all: the root of a broadcast may run some calls
// ahead.
//
//   - A line or slot is written by its owner alone, before it raises the
//     counter, and read by peers after they saw the count.
//   - The owner overwrites it when it knows that all peers have entered a call
//     after the one that used it: a rank enters a call only when it has
//     completed the one before, reads included. Where every rank waits for
//     every other (allreduce, allgather, ...) it knows that from the last
//     call. Otherwise it looks at the counters that peers raised some calls
//     ago, and waits for them if need be; see reuse. Nobody can be waiting for
//     the count that is overwritten, for to wait in a call is to have entered
//     it; and the wait cannot be a deadlock, for it is for a call before this
//     one, and the rank that is furthest behind waits for nobody.
//   - A rank that dies leaves the others waiting; the waiter sees the fault.
type door struct {
	calls   uint64            // the number of the last call
	entered uint64            // a call that every peer is known to have entered
	used    [doorSlots]uint64 // by slot: the last call that used it
	own     int               // our rank
	lines   [doorLines]line
	slots   [doorSlots]payloads
	shown   *payloads // what ranks that have just met show each other
	dst     [1]unsafe.Pointer
	src     []unsafe.Pointer // by rank
}

// line is what all ranks use for one call of the door, by rank.
type line struct {
	counters []*link.Counter
	payloads
	annex payloads
}

// payloads are places for the inputs of a call, by rank.
type payloads struct {
	at   []unsafe.Pointer // ours is the caller's buffer, and nil between calls
	mine []byte           // our own
}

// stamp is what all ranks of a call of the door must agree in, but for the
// bits of stampLocal, which say how a rank brings its part of a v form.
type stamp uint64

const (
	stampBytes = int(unsafe.Sizeof(stamp(0)))

	stampLarge  stamp = 1 << 63 // it does not fit: notice is given, or it comes as a message
	stampSlot   stamp = 1 << 62 // it is in the slot, not in the line
	stampVector stamp = 1 << 61
	stampLocal        = stampLarge | stampSlot
)

// Where the parts of a stamp begin. A block of 8 GiB or more is not told apart
// from others: such calls compare their notices.
const (
	stampDType      = 4
	stampCollective = 8
	stampRoot       = 12
	stampBlock      = 28
	mostStamped     = 1<<(61-stampBlock) - 1

	stampSize = stamp(mostStamped) << stampBlock
)

func stampOf(k *call) stamp {
	s := stamp(min(k.block, mostStamped))<<stampBlock | stamp(k.root)<<stampRoot |
		stamp(k.collective)<<stampCollective | stamp(k.dtype)<<stampDType | stamp(k.op)
	if k.vector {
		s |= stampVector
	}
	return s
}

func (s stamp) signature() Signature {
	k := call{
		collective: plan.Collective(s >> stampCollective & 0xf), block: int(s >> stampBlock & mostStamped),
		root: int(s >> stampRoot & 0xffff), dtype: mem.DType(s >> stampDType & 0xf), op: mem.Op(s & 0xf),
		vector: s&stampVector != 0,
	}
	return k.signature()
}

// stampIn is the stamp that travels with a counter.
func stampIn(c *link.Counter) *stamp { return (*stamp)(unsafe.Pointer(&c.Data[0])) }

func newDoor(l *layout, controls [][]byte, own int) door {
	fence.Usable() // asks the kernel now, not in the first call that raises ahead
	d := door{own: own, src: make([]unsafe.Pointer, len(controls))}
	for i := range d.lines {
		line := &d.lines[i]
		for rank, control := range controls {
			c := l.lineIn(control, i)
			line.counters = append(line.counters, c)
			line.add(c.Data[stampBytes:], rank == own)
			line.annex.add(l.annexIn(control, i), rank == own)
		}
	}
	for i := range d.slots {
		for rank, control := range controls {
			d.slots[i].add(l.slotIn(control, i), rank == own)
		}
	}
	return d
}

func (p *payloads) add(payload []byte, mine bool) {
	if mine {
		p.at, p.mine = append(p.at, nil), payload
		return
	}
	p.at = append(p.at, pointer(payload))
}

// knock is a call of the door as far as it is the same from call to call.
type knock struct {
	collective plan.Collective
	name       string
	rooted     bool
	root       int
	dtype      mem.DType
	op         mem.Op
	send, recv int // bytes of this rank's buffers
	inPlace    int // how far recv lies behind send in place

	stamp   stamp
	kernel  reduce.Func
	count   int // elements of a block
	block   int // bytes of a block
	divisor int
	payload int // the most bytes that a rank shows
	annex   bool
	shows   bool
	// needs is the rank whose payload this one needs, or one of the two below.
	needs int
}

const (
	needsAll  = -1
	needsNone = -2
)

// knockOf says how a call would use the door.
func (c *Comm) knockOf(k *call) knock {
	n := knock{
		collective: k.collective, name: k.name(), rooted: k.collective.Rooted(), root: k.root, dtype: k.dtype, op: k.op,
		send: len(k.in), recv: len(k.out), inPlace: c.inPlace(k),
		stamp: stampOf(k), kernel: k.kernel, block: k.block, divisor: k.divisor,
		payload: payloadBytes(k.collective, k.block, c.size),
		shows:   len(k.in) > 0, needs: needsAll,
	}
	n.annex = inAnnex(n.payload, n.rooted)
	if k.collective != plan.Barrier {
		n.count = k.block / k.dtype.Size()
	}
	root := c.rank == k.root
	switch k.collective {
	case plan.Broadcast, plan.Scatter:
		if n.needs = k.root; root {
			n.needs = needsNone
		}
	case plan.Reduction, plan.Gather:
		if !root {
			n.needs = needsNone
		} else {
			n.shows = false // it takes its own from the caller
		}
	}
	return n
}

// payloadBytes is the most that a rank contributes to a collective.
func payloadBytes(c plan.Collective, block, ranks int) int {
	switch c {
	case plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		return block * (ranks - 1)
	case plan.Barrier:
		return 0
	}
	return block
}

// placeAmong is where, of the blocks that a rank shows, that of a peer is: its
// own is not among them.
func placeAmong(rank, peer int) int {
	if peer < rank {
		return peer
	}
	return peer - 1
}

// made reports whether there has been such a call.
func (n *knock) made() bool { return n.name != "" }

// matches reports whether a call is the one that n was made for.
func (n *knock) matches(send, recv []byte, t mem.DType, op mem.Op, root int) bool {
	return n.count != 0 && len(send) == n.send && len(recv) == n.recv &&
		t == n.dtype && op == n.op && root == n.root && legalAlias(send, recv, n.inPlace)
}

// call takes a call through the door. waiters are by rank.
func (d *door) call(ctx context.Context, waiters []link.Waiter, n *knock, send, recv []byte) error {
	l := d.next()
	p := &l.payloads
	if n.annex {
		p = &l.annex
	}
	if n.payload > len(p.mine) || d.entered+doorLines-1 < d.calls {
		var err error
		if p, err = d.room(ctx, waiters, l, n.payload, n.rooted); err != nil {
			return err
		}
	}
	if n.shows {
		d.show(n.collective, n.block, p.mine, send)
	}
	d.raise(l, n.stamp, !n.rooted)
	switch {
	case n.needs == needsNone:
	case n.needs >= 0:
		if err := d.waitFor(ctx, waiters, l, n.stamp, n.needs); err != nil {
			return err
		}
	default:
		if err := d.waitAll(ctx, waiters, l, n.stamp); err != nil {
			return err
		}
	}
	// Our own input is read where it came from: the copy is on its way to the
	// peers, and to read it would call it back.
	p.at[d.own] = pointer(send)
	if n.collective == plan.AllReduce { // the call in which a few nanoseconds count most
		d.dst[0] = pointer(recv)
		n.kernel(d.dst[:], p.at, n.count, n.divisor)
		d.dst[0] = nil
	} else {
		d.take(n, p.at, recv)
	}
	p.at[d.own] = nil
	return nil
}

// meet is how ranks meet before a call that the door alone does not do; or that
// it does after all, if they show their payloads along. shown says that all
// have; then what they showed may be taken. If some show theirs and some do
// not, nothing is gained.
func (d *door) meet(ctx context.Context, waiters []link.Waiter, k *call, show bool) (shown bool, err error) {
	l, s := d.next(), stampOf(k)
	p, err := d.room(ctx, waiters, l, slotBytes, false)
	if err != nil {
		return false, err
	}
	own := s | stampLarge
	if show {
		if own = s | stampSlot; len(k.in) > 0 {
			d.show(k.collective, k.block, p.mine, k.in)
		}
	}
	d.raise(l, own, true)
	if err := d.waitAll(ctx, waiters, l, s); err != nil || !show {
		return false, err
	}
	for rank, c := range l.counters {
		if rank != d.own && *stampIn(c)&stampSlot == 0 {
			return false, nil
		}
	}
	d.shown = p
	return true, nil
}

// takeShown is the rest of a call whose ranks have met so.
func (d *door) takeShown(n *knock, send, recv []byte) {
	d.shown.at[d.own] = pointer(send)
	d.take(n, d.shown.at, recv)
	d.shown.at[d.own], d.shown = nil, nil
}

// next begins a call, and returns its line.
func (d *door) next() *line {
	d.calls++
	return d.present()
}

// pass raises the line of a rank that shows nothing in a rooted call.
func (d *door) pass(ctx context.Context, waiters []link.Waiter, l *line, s stamp) error {
	if _, err := d.room(ctx, waiters, l, 0, true); err != nil {
		return err
	}
	d.raise(l, s, false)
	return nil
}

// present is the line of the last call that has begun.
func (d *door) present() *line { return &d.lines[d.calls%doorLines] }

// room returns where to show a payload of so many bytes in this call, once
// nobody reads there any more.
func (d *door) room(ctx context.Context, waiters []link.Waiter, l *line, payload int, rooted bool) (*payloads, error) {
	number, p := d.calls, &l.payloads
	ahead := uint64(doorLines / 2)
	free := uint64(0) // once all have entered this call, nobody reads the line
	if number > doorLines {
		free = number - doorLines + 1
	}
	switch {
	case payload <= len(p.mine):
	case inAnnex(payload, rooted):
		p = &l.annex
	default:
		slot := number % 2 // two are enough where all wait for all, and stay in the cache
		if rooted {
			slot = number % doorSlots
		}
		p = &d.slots[slot]
		if d.used[slot] > 0 && d.used[slot] >= free {
			free, ahead = d.used[slot]+1, doorSlots/2
		}
		d.used[slot] = number
	}
	if d.entered < free {
		return p, d.reuse(ctx, waiters, free, ahead)
	}
	return p, nil
}

// inAnnex reports whether a payload goes to the annex of its line: that of a
// rooted call, whose ranks may be far apart. Where all wait for all, two slots
// in turn stay in the cache.
func inAnnex(payload int, rooted bool) bool {
	return rooted && payload > lineBytes && payload <= annexBytes
}

// lineBytes is the room for a payload in a line.
const lineBytes = link.LineBytes - 8 - stampBytes

// raise shows what is in the line and the slot. mutual says that ranks wait for
// each other; in a rooted call whoever waits is waited for by nobody.
func (d *door) raise(l *line, s stamp, mutual bool) {
	own := l.counters[d.own]
	*stampIn(own) = s
	if mutual {
		own.Raise(d.calls)
	} else {
		own.RaiseAhead(d.calls)
	}
	if d.entered+doorLines-1 > d.calls {
		// A write that means nothing fetches the next call's line for writing
		// while this call waits. That line was last used by call
		// calls+1-doorLines; all have entered the call after it, so they have
		// read it, and none reads it again before its counter is raised.
		*stampIn(d.lines[(d.calls+1)%doorLines].counters[d.own]) = 0
	}
}

// waitAll waits for every other rank, and holds them to the same call.
func (d *door) waitAll(ctx context.Context, waiters []link.Waiter, l *line, s stamp) error {
	waiters[d.own].Crowd.At(l.counters, d.calls)
	for rank, c := range l.counters {
		if rank == d.own {
			continue
		}
		if err := waiters[rank].Wait(ctx, c, d.calls); err != nil {
			return err
		}
		if theirs := *stampIn(c); theirs != s {
			if err := differs(rank, s, theirs); err != nil {
				return err
			}
		}
	}
	d.entered = d.calls
	return nil
}

// waitFor waits for a rank, and holds it to the same call.
func (d *door) waitFor(ctx context.Context, waiters []link.Waiter, l *line, s stamp, rank int) error {
	c := l.counters[rank]
	waiters[rank].Crowd.Await(rank)
	if err := waiters[rank].Wait(ctx, c, d.calls); err != nil {
		return err
	}
	return differs(rank, s, *stampIn(c))
}

// differs holds a rank to the same call.
func differs(rank int, mine, theirs stamp) error {
	if (theirs^mine)&^stampLocal == 0 {
		return nil
	}
	return &MismatchError{Rank: rank, Mine: mine.signature(), Theirs: theirs.signature()}
}

// reuse waits until all peers have entered the call free. It asks for a few
// calls more, so that it need not ask each time; a peer never waits for a rank
// that is behind it by so many.
func (d *door) reuse(ctx context.Context, waiters []link.Waiter, free, ahead uint64) error {
	enough := min(free+ahead-1, d.calls-1)
	enough = max(enough, free)
	l := &d.lines[enough%doorLines]
	waiters[d.own].Crowd.At(l.counters, enough)
	for rank, c := range l.counters {
		if rank == d.own {
			continue
		}
		if err := waiters[rank].Wait(ctx, c, enough); err != nil {
			return err
		}
	}
	d.entered = enough
	return nil
}

// show copies this rank's payload of a call to where peers see it.
func (d *door) show(c plan.Collective, block int, to, send []byte) {
	switch c {
	case plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		if before := d.own * block; before > 0 {
			move.Bytes(to[:before], send[:before])
			to, send = to[before:], send[before:]
		}
		send = send[block:]
	}
	move.Bytes(to[:len(send)], send)
}

// shownTo is where a rank shows the block of this one; its own is where the
// caller has it.
func (d *door) shownTo(n *knock, at []unsafe.Pointer, rank int) unsafe.Pointer {
	if rank == d.own {
		return unsafe.Add(at[rank], rank*n.block)
	}
	return unsafe.Add(at[rank], placeAmong(rank, d.own)*n.block)
}

// take computes this rank's output from the payloads.
func (d *door) take(n *knock, at []unsafe.Pointer, recv []byte) {
	switch n.collective {
	case plan.AllReduce:
		d.reduce(n, at, recv)
	case plan.Reduction:
		if d.own == n.root {
			d.reduce(n, at, recv)
		}
	case plan.ReduceScatter:
		for rank := range at {
			d.src[rank] = d.shownTo(n, at, rank)
		}
		d.reduce(n, d.src, recv)
		clear(d.src)
	case plan.Broadcast:
		fetch(recv, at[n.root])
	case plan.Scatter:
		fetch(recv, d.shownTo(n, at, n.root))
	case plan.Gather:
		if d.own == n.root {
			collect(recv, at, n.block)
		}
	case plan.AllGather:
		collect(recv, at, n.block)
	case plan.AllToAll:
		for rank := range at {
			fetch(recv[rank*n.block:][:n.block], d.shownTo(n, at, rank))
		}
	}
}

func (d *door) reduce(n *knock, at []unsafe.Pointer, recv []byte) {
	d.dst[0] = pointer(recv)
	n.kernel(d.dst[:], at, n.count, n.divisor)
	d.dst[0] = nil
}

// fetch fills recv from src, unless that is where it lies.
func fetch(recv []byte, src unsafe.Pointer) {
	if pointer(recv) != src {
		move.Bytes(recv, unsafe.Slice((*byte)(src), len(recv)))
	}
}

// collect fills the blocks of recv from what the ranks show.
func collect(recv []byte, at []unsafe.Pointer, block int) {
	for rank, p := range at {
		fetch(recv[rank*block:][:block], p)
	}
}
