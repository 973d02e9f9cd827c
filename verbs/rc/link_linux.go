package rc

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/spin"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/verbs"
)

const (
	// holdMost is the largest put that is copied and held back, so that it goes
	// with the notification behind it.
	holdMost = 8 << 10
	// postAbove is how many bytes are gathered before they are handed to the
	// device without waiting for a notification.
	postAbove = 16 << 10
	// copyMost is the largest put that is copied also from memory that the device
	// knows: to wait for its completion would take longer. A device that is
	// software copies by itself, and slower than we do.
	copyMost         = 16 << 10
	copyMostSoftware = 128 << 10
	// tailMost is how much of the end of a larger one is copied. While its head
	// completes, which Put waits for, the tail is on the wire, so that the way
	// there and back costs nothing.
	tailMost = 64 << 10
	// stripeAbove is the smallest put that is spread over lanes, and stripeLeast
	// the smallest share of a lane.
	stripeAbove = 128 << 10
	stripeLeast = 32 << 10
)

// rcLink implements link.Link: a connection to a peer.
type rcLink struct {
	fabric  *Fabric
	rank    int // the peer
	lanes   []*lane
	granted int   // notifications that the peer may send before this side has taken any
	theirs  offer // what the peer has told of itself

	// What is sent, by who has the lock.
	mu       sync.Mutex
	over     bool // Close has posted the last request
	pending  pending
	order    order
	sent     uint64 // counts and records
	records  uint64
	counters map[mem.Remote]*counterOf
	last     *counterOf
	freeIDs  []uint16
	request  verbs.Request
	segment  [1]verbs.Segment
	credit   verbs.Request
	record   record
	scratch  [recordSlot]byte

	places atomic.Pointer[map[mem.RegionID]*place] // of the peer's regions; written by the reader of control
	none   atomic.Uint64                           // the last answer that there is no such region: its number, plus 1<<32 for each

	rx       sync.Mutex // who has it raises counters
	received receiver
	credited atomic.Uint64 // of sent, what the peer has taken; written by who polls lane 0
	paid     atomic.Uint64 // of what was taken here, what the peer was told; written by who has mu
	owes     atomic.Bool   // it is time to tell

	control  *net.TCPConn
	speaking sync.Mutex
	words    []byte        // for the control connection
	spoken   chan struct{} // holds one when there is something in words
	hung     chan struct{} // closed when nothing more is read from control
	heard    atomic.Bool   // the peer has answered our bye

	failing sync.Mutex
	cause   *PathError // the first failure of a lane that is not a consequence
	suspect bool

	gone atomic.Pointer[error] // why there is nobody there any more
}

// pending is a put that is held back: it was copied, but is in no batch yet.
type pending struct {
	bytes  int // 0: there is none
	addr   uint64
	key    uint32
	bounce uint64 // how much of the bounce ring it has; 0: it is inline
	from   verbs.Segment
	inline [1024]byte
}

// span is a range of the peer's memory.
type span struct{ from, to uint64 }

func (s span) meets(o span) bool { return s.from < o.to && o.from < s.to }

// order is what may still be being written, of a link with several lanes.
type order struct {
	first  span     // holds everything that goes by lane 0 alone; to is 0: nothing
	spread [32]span // what goes by several
	n      int      // of those
}

// counterOf is a counter of the peer's that was notified before.
type counterOf struct {
	at   mem.Remote
	id   uint16 // noCounter: it has none
	last uint64 // what the peer knows
}

var _ link.Link = (*rcLink)(nil)

// Put implements link.Link. It blocks while the send queue or the memory for
// copies is full, and, for large puts from memory that the devices know, until
// the peer has most of it; it polls meanwhile. The first for a region also waits
// until the peer has said where that is. It does not allocate.
func (l *rcLink) Put(dst mem.Remote, src []byte) error {
	p, err := l.place("put", dst.Region)
	if err != nil {
		return err
	}
	if dst.Offset < 0 || uint64(dst.Offset) > p.size || uint64(len(src)) > p.size-uint64(dst.Offset) {
		return fmt.Errorf("rc: put of %d bytes at %d of region %d (%d bytes) of rank %d: %w",
			len(src), dst.Offset, dst.Region, p.size, l.rank, link.ErrRange)
	}
	if len(src) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable("put"); err != nil {
		return err
	}
	if err := l.flushPending(); err != nil {
		return err
	}
	at := p.addr + uint64(dst.Offset)
	lanes := l.lanesFor(len(src))
	if len(l.lanes) > 1 {
		if err := l.keepOrder(lanes > 1, span{at, at + uint64(len(src))}); err != nil {
			return err
		}
	}
	if len(src) <= holdMost {
		return l.hold(p, at, src)
	}
	return l.write(p, lanes, at, src)
}

// Notify implements link.Link. It blocks while the send queue is full, and while
// the peer has taken none of so many notifications as it has receives; it polls
// meanwhile. The first for a region waits as Put does, and the first for a
// counter allocates.
func (l *rcLink) Notify(dst mem.Remote, v uint64) error {
	p, err := l.place("notify", dst.Region)
	if err != nil {
		return err
	}
	if dst.Offset < 0 || p.size < link.CounterBytes || uint64(dst.Offset) > p.size-link.CounterBytes || dst.Offset%8 != 0 {
		return fmt.Errorf("rc: notify: a counter at %d of region %d (%d bytes) of rank %d: %w",
			dst.Offset, dst.Region, p.size, l.rank, link.ErrRange)
	}
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable("notify"); err != nil {
		return err
	}
	if l.fabric.cfg.Signal == Direct {
		return l.notifyDirect(p, p.addr+uint64(dst.Offset), v)
	}
	if err := l.awaitCredit(); err != nil {
		return err
	}
	c := l.counter(dst)
	marks, err := l.sendMarks()
	if err != nil {
		return err
	}
	if c.id == noCounter || marks || c.last > v || v-c.last > countMask {
		err = l.sendRecord(c, v, marks)
	} else {
		err = l.sendCount(numberCount | uint32(c.id)<<countBits | uint32(v&countMask))
	}
	if err != nil {
		return err
	}
	c.last = v
	l.sent++
	return l.lanes[0].post()
}

// place returns where one of the peer's regions is, for what op names.
func (l *rcLink) place(op string, region mem.RegionID) (*place, error) {
	if err := l.ended(op); err != nil {
		return nil, err
	}
	p := (*l.places.Load())[region]
	if p == nil {
		var err error
		if p, err = l.ask(op, region); err != nil {
			return nil, err
		}
	}
	if p == nil || p.size == 0 {
		return nil, fmt.Errorf("rc: %s: rank %d has no region %d: %w", op, l.rank, region, link.ErrRange)
	}
	return p, nil
}

// ended returns why nothing can be said to the peer any more.
func (l *rcLink) ended(op string) error {
	if l.fabric.isClosed() {
		return &ClosedError{l.fabric.rank, op}
	}
	if gone := l.gone.Load(); gone != nil {
		return *gone
	}
	return nil
}

// usable is ended for who has the lock.
func (l *rcLink) usable(op string) error {
	if l.over {
		return &ClosedError{l.fabric.rank, op}
	}
	return l.ended(op)
}

// pause is what who has the lock does while it waits for something. It returns
// why there is no use in that any more.
func (l *rcLink) pause(looks int) error {
	l.fabric.attended()
	l.fabric.progress()
	if l.owes.Load() {
		l.pay()
	}
	if gone := l.gone.Load(); gone != nil {
		return *gone
	}
	if l.fabric.outOfTime() {
		return &ClosedError{l.fabric.rank, "waiting for the device"}
	}
	if looks > 2000 {
		time.Sleep(50 * time.Microsecond)
	} else if looks > 0 {
		spin.Yield()
	}
	return nil
}

// unlock gives the lock back, and pays what is owed since.
func (l *rcLink) unlock() {
	for {
		l.mu.Unlock()
		if !l.owes.Load() || !l.mu.TryLock() {
			return
		}
		if !l.pay() { // when requests have completed
			l.mu.Unlock()
			return
		}
	}
}

// tryPay pays, unless somebody else has the lock, who will.
func (l *rcLink) tryPay() {
	if l.mu.TryLock() {
		l.pay()
		l.unlock()
	}
}

// pay tells the peer how much was taken. It does not block; false says that
// there is no room, and something is owed still.
func (l *rcLink) pay() bool {
	ln := l.lanes[0]
	l.owes.Store(false)
	taken := l.received.taken.Load()
	if taken == l.paid.Load() || l.over || l.gone.Load() != nil {
		return true
	}
	if ln.posted-ln.done.Load() >= ln.depth {
		l.owes.Store(true)
		return false
	}
	l.paid.Store(taken)
	l.nothing(&l.credit, numberCredit|uint32(taken&numberBody))
	if err := ln.add(&l.credit, 0, false); err == nil {
		_ = ln.post() // what fails, fails the link
	}
	return true
}

// nothing makes a request that moves a number and no bytes.
func (l *rcLink) nothing(r *verbs.Request, number uint32) {
	*r = verbs.Request{Opcode: verbs.WriteImm, Imm: number, RemoteAddr: l.theirs.slotsAddr, RKey: l.theirs.slotsKey}
}

// awaitCredit returns when the peer has a receive for one more notification.
func (l *rcLink) awaitCredit() error {
	for looks := 0; l.sent-l.credited.Load() >= uint64(l.theirs.credits); looks++ {
		if err := l.lanes[0].post(); err != nil {
			return err
		}
		if err := l.pause(looks); err != nil {
			return err
		}
	}
	return nil
}

// counter returns what is known of a counter of the peer's.
func (l *rcLink) counter(at mem.Remote) *counterOf {
	if l.last != nil && l.last.at == at {
		return l.last
	}
	c := l.counters[at]
	if c == nil {
		c = &counterOf{at: at, id: noCounter}
		l.counters[at] = c
	}
	l.last = c
	return c
}

// name gives a counter a number, if there is one.
func (l *rcLink) name(c *counterOf) {
	if len(l.freeIDs) == 0 { // those of regions that are gone
		places := *l.places.Load()
		for at, o := range l.counters {
			if p := places[at.Region]; (p == nil || p.size == 0) && o != c {
				if o.id != noCounter {
					l.freeIDs = append(l.freeIDs, o.id)
				}
				delete(l.counters, at)
			}
		}
	}
	if n := len(l.freeIDs); n > 0 {
		c.id = l.freeIDs[n-1]
		l.freeIDs = l.freeIDs[:n-1]
	}
}

// hold copies a small put and keeps it until something comes behind it.
func (l *rcLink) hold(p *place, at uint64, src []byte) error {
	ln, h := l.lanes[0], &l.pending
	if len(src) <= ln.inline {
		copy(h.inline[:], src)
		h.bounce = 0
	} else {
		before := ln.head
		segment, err := ln.copy(src)
		if err != nil {
			return err
		}
		h.from, h.bounce = segment, ln.head-before
	}
	h.bytes, h.addr, h.key = len(src), at, p.keys[ln.peerRail]
	return nil
}

// sendPending adds what is held back to the batch, as what the request is made
// for already.
func (l *rcLink) sendPending(r *verbs.Request) error {
	h := &l.pending
	r.RemoteAddr, r.RKey = h.addr, h.key
	if h.bounce == 0 {
		r.Inline = h.inline[:h.bytes]
	} else {
		l.segment[0] = h.from
		r.Segments = l.segment[:]
	}
	l.lanes[0].inHand += h.bytes
	return l.lanes[0].add(r, kept, true)
}

// flushPending adds what is held back to the batch.
func (l *rcLink) flushPending() error {
	if l.pending.bytes == 0 {
		return nil
	}
	l.request = verbs.Request{Opcode: verbs.Write}
	if err := l.sendPending(&l.request); err != nil {
		return err
	}
	if ln := l.lanes[0]; ln.inHand >= postAbove {
		return ln.post()
	}
	return nil
}

// sendCount adds a number to the batch, with what is held back if anything is.
func (l *rcLink) sendCount(number uint32) error {
	l.nothing(&l.request, number)
	if l.pending.bytes != 0 {
		return l.sendPending(&l.request)
	}
	return l.lanes[0].add(&l.request, kept, false)
}

// sendMarks lets the other lanes say that what they have sent is there. It
// reports whether there is any.
func (l *rcLink) sendMarks() (any bool, err error) {
	for _, ln := range l.lanes[1:] {
		if !ln.dirty {
			continue
		}
		any = true
		l.nothing(&l.request, numberMark)
		l.request.RKey = l.slotsKeyOf(ln)
		if err := ln.add(&l.request, kept, false); err != nil {
			return true, err
		}
		if err := ln.post(); err != nil {
			return true, err
		}
		ln.marks++
		ln.dirty = false
	}
	return any, nil
}

// slotsKeyOf is a key for a request that moves nothing; devices may look at it
// all the same, and only lane 0's rail has one for the slots.
func (l *rcLink) slotsKeyOf(ln *lane) uint32 {
	if ln.peerRail == l.lanes[0].peerRail {
		return l.theirs.slotsKey
	}
	return 0
}

// sendRecord adds a record to the batch, behind what is held back.
func (l *rcLink) sendRecord(c *counterOf, v uint64, marks bool) error {
	if err := l.flushPending(); err != nil {
		return err
	}
	if c.id == noCounter {
		l.name(c)
	}
	r, ln := &l.record, l.lanes[0]
	*r = record{region: c.at.Region, counter: c.id, offset: uint64(c.at.Offset), count: v}
	if marks {
		r.marks = uint8(len(l.lanes) - 1)
		for i, o := range l.lanes[1:] {
			r.mark[i] = o.marks
		}
	}
	n := r.encode(&l.scratch)
	l.nothing(&l.request, numberRecord|uint32(l.records&numberBody))
	l.request.RemoteAddr += l.records % uint64(l.theirs.credits) * recordSlot
	if n <= ln.inline {
		l.request.Inline = l.scratch[:n]
	} else {
		segment, err := ln.copy(l.scratch[:n])
		if err != nil {
			return err
		}
		l.segment[0] = segment
		l.request.Segments = l.segment[:]
	}
	l.records++
	return ln.add(&l.request, kept, false)
}

// notifyDirect writes a count to the counter itself.
func (l *rcLink) notifyDirect(p *place, at, v uint64) error {
	if err := l.flushPending(); err != nil {
		return err
	}
	ln := l.lanes[0]
	for _, o := range l.lanes[1:] { // what is on other lanes must be there first
		if o.dirty {
			if err := o.settle(); err != nil {
				return err
			}
			o.dirty = false
		}
	}
	putCount(l.scratch[:8], v)
	l.request = verbs.Request{Opcode: verbs.Write, RemoteAddr: at, RKey: p.keys[ln.peerRail]}
	if ln.inline >= 8 {
		l.request.Inline = l.scratch[:8]
	} else {
		segment, err := ln.copy(l.scratch[:8])
		if err != nil {
			return err
		}
		l.segment[0] = segment
		l.request.Segments = l.segment[:]
	}
	if err := ln.add(&l.request, kept, false); err != nil {
		return err
	}
	return ln.post()
}
