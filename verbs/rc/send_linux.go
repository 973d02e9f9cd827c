package rc

import (
	"encoding/binary"
	"errors"

	"github.com/tutti-go/tutti/verbs"
)

// What a lane sends. Everything here is for who has the link's lock.

func putCount(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }

// add adds a request to the batch, when the send queue has room for it besides
// so many slots that are left. held says that it is the put that was held back.
func (l *lane) add(r *verbs.Request, left uint64, held bool) error {
	for looks := 0; l.posted-l.done.Load() >= l.depth-left; looks++ {
		if err := l.post(); err != nil {
			return err
		}
		if err := l.link.pause(looks); err != nil {
			return err
		}
	}
	if l.batch.Len() == chainMost || uint64(l.batch.Len()) == l.depth {
		if err := l.post(); err != nil {
			return err
		}
	}
	end := l.head
	if h := &l.link.pending; l.index == 0 && h.bytes != 0 {
		if held {
			h.bytes = 0
		} else {
			end -= h.bounce // that goes later
		}
	}
	number := l.posted + 1
	if r.Flags&verbs.Signaled != 0 || number-l.asked >= l.depth/4 || end-l.askedHead >= uint64(len(l.bounce)/bouncePieces) {
		r.Flags |= verbs.Signaled
		l.asked, l.askedHead = number, end
	}
	r.ID = l.id | number&idPosted
	l.ends[number%uint64(len(l.ends))] = end
	l.posted = number
	if err := l.batch.Add(r); err != nil {
		l.link.fail(l, err)
		return l.failure(err)
	}
	return nil
}

// post hands the batch to the device.
func (l *lane) post() error {
	if l.batch.Len() == 0 {
		return nil
	}
	l.inHand = 0
	if _, err := l.batch.Post(); err != nil {
		l.batch.Clear()
		l.link.fail(l, err)
		return l.failure(err)
	}
	return nil
}

// copy copies bytes, a quarter of the bounce memory at most, to where the device
// can take them from. It blocks while there is no room.
func (l *lane) copy(src []byte) (verbs.Segment, error) {
	size := uint64(len(l.bounce))
	pad := uint64(0) // a piece does not wrap around
	if at := l.head % size; at+uint64(len(src)) > size {
		pad = size - at
	}
	for looks := 0; l.head+pad+uint64(len(src))-l.tail() > size; looks++ {
		if err := l.post(); err != nil {
			return verbs.Segment{}, err
		}
		if err := l.link.pause(looks); err != nil {
			return verbs.Segment{}, err
		}
	}
	at := (l.head + pad) % size
	l.head += pad + uint64(len(src))
	copy(l.bounce[at:], src)
	return verbs.Segment{Addr: l.bounceMR.Addr() + at, Bytes: uint32(len(src)), LKey: l.bounceMR.LKey()}, nil
}

// tail is up to where the bounce ring is free.
func (l *lane) tail() uint64 {
	done := l.done.Load()
	if done == 0 {
		return 0
	}
	return l.ends[done%uint64(len(l.ends))]
}

// await returns when a request has completed, which was signalled or has one
// that was behind it.
func (l *lane) await(number uint64) error {
	for looks := 0; l.done.Load() < number; looks++ {
		if err := l.link.pause(looks); err != nil {
			return err
		}
	}
	return nil
}

// settle returns when everything that was posted has completed.
func (l *lane) settle() error {
	if l.posted == l.done.Load() {
		return nil
	}
	if l.asked != l.posted {
		r := &l.link.request
		*r = verbs.Request{Opcode: verbs.Write, Flags: verbs.Signaled, RemoteAddr: l.link.theirs.slotsAddr, RKey: l.link.slotsKeyOf(l)}
		if err := l.add(r, kept, false); err != nil {
			return err
		}
	}
	if err := l.post(); err != nil {
		return err
	}
	return l.await(l.posted)
}

// write writes what is too large to be held back.
func (l *rcLink) write(p *place, lanes int, at uint64, src []byte) error {
	for _, ln := range l.lanes[1:lanes] {
		ln.dirty = true
	}
	if len(src) > l.fabric.copyMost {
		if k := l.fabric.known.Load().find(addressOf(src), len(src)); k != nil {
			return l.writeFrom(k, lanes, p, at, src)
		}
	}
	piece := len(l.lanes[0].bounce) / bouncePieces
	if len(src) <= piece*lanes { // a share for each
		piece = min(piece, share(len(src), lanes))
	}
	for i := 0; len(src) > 0; i++ {
		n := min(piece, len(src))
		if err := l.lanes[i%lanes].writeCopy(p, at, src[:n]); err != nil {
			return err
		}
		at, src = at+uint64(n), src[n:]
	}
	for _, ln := range l.lanes[:lanes] {
		if err := ln.post(); err != nil {
			return err
		}
	}
	return nil
}

// lanesFor is by how many lanes a put of n bytes goes.
func (l *rcLink) lanesFor(n int) int {
	if n < stripeAbove {
		return 1
	}
	return min(len(l.lanes), n/stripeLeast)
}

// keepOrder is for a put that comes next: of two puts to the same place the
// later one stays. On one lane that is so by itself. Ranks that say to each other
// when memory may be written again never wait here.
func (l *rcLink) keepOrder(spreads bool, s span) error {
	o := &l.order
	meets := spreads && (s.meets(o.first) || o.n == len(o.spread))
	for _, other := range o.spread[:o.n] {
		meets = meets || s.meets(other)
	}
	if meets {
		for _, ln := range l.lanes {
			if err := ln.settle(); err != nil {
				return err
			}
		}
		o.first, o.n = span{}, 0
	}
	switch {
	case spreads:
		o.spread[o.n] = s
		o.n++
	case o.first.to == 0:
		o.first = s
	default:
		o.first = span{min(o.first.from, s.from), max(o.first.to, s.to)}
	}
	return nil
}

// share is one of so many parts of n bytes, in pages.
func share(n, parts int) int { return ((n+parts-1)/parts + 4095) &^ 4095 }

// writeCopy writes a piece by way of the bounce memory.
func (l *lane) writeCopy(p *place, at uint64, src []byte) error {
	for len(src) > 0 {
		n := min(len(src), l.link.most())
		segment, err := l.copy(src[:n])
		if err != nil {
			return err
		}
		if err := l.writeSegment(p, at, segment, 0); err != nil {
			return err
		}
		at, src = at+uint64(n), src[n:]
	}
	if l.inHand >= postAbove {
		return l.post()
	}
	return nil
}

func (l *lane) writeSegment(p *place, at uint64, segment verbs.Segment, flags verbs.SendFlags) error {
	r := &l.link.request
	l.link.segment[0] = segment
	*r = verbs.Request{Opcode: verbs.Write, Flags: flags, Segments: l.link.segment[:], RemoteAddr: at, RKey: p.keys[l.peerRail]}
	l.inHand += int(segment.Bytes)
	return l.add(r, kept, false)
}

// most is the largest message to this peer.
func (l *rcLink) most() int { return int(l.theirs.maxMessage) }

// writeFrom writes from memory that the devices know: all but a tail for each
// lane from where it lies, the tail by way of the bounce memory. It returns when
// all but the tails has arrived.
func (l *rcLink) writeFrom(k *known, lanes int, p *place, at uint64, src []byte) error {
	var heads [MaxLanes]uint64
	part := share(len(src), lanes)
	for i, ln := range l.lanes[:lanes] {
		n := min(part, len(src))
		if n == 0 {
			break
		}
		tail := min(n/4, tailMost, len(ln.bounce)/bouncePieces) &^ 63
		if err := ln.writeHead(k, p, at, src[:n-tail]); err != nil {
			return err
		}
		heads[i] = ln.posted
		if err := ln.writeCopy(p, at+uint64(n-tail), src[n-tail:n]); err != nil {
			return err
		}
		if err := ln.post(); err != nil {
			return err
		}
		at, src = at+uint64(n), src[n:]
	}
	for i, ln := range l.lanes[:lanes] {
		if err := ln.await(heads[i]); err != nil {
			return err
		}
	}
	return nil
}

// writeHead posts writes from where the bytes lie; the last is signalled.
func (l *lane) writeHead(k *known, p *place, at uint64, src []byte) error {
	mr := k.mrs[l.rail.index]
	for len(src) > 0 {
		n := min(len(src), l.link.most())
		var flags verbs.SendFlags
		if n == len(src) {
			flags = verbs.Signaled
		}
		segment := verbs.Segment{Addr: uint64(addressOf(src)), Bytes: uint32(n), LKey: mr.LKey()}
		if err := l.writeSegment(p, at, segment, flags); err != nil {
			return err
		}
		at, src = at+uint64(n), src[n:]
	}
	return l.post()
}

// finish is the end of what is sent: it posts what was held back, and a request
// behind everything whose completion drained waits for.
func (l *rcLink) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone.Load() == nil && l.flushPending() == nil {
		for _, ln := range l.lanes {
			if ln.posted == ln.done.Load() || ln.asked == ln.posted && ln.post() == nil {
				continue
			}
			l.request = verbs.Request{Opcode: verbs.Write, Flags: verbs.Signaled, RemoteAddr: l.theirs.slotsAddr, RKey: l.slotsKeyOf(ln)}
			if ln.add(&l.request, 0, false) == nil {
				_ = ln.post() // what fails, fails the link
			}
		}
	}
	l.over = true
}

// drained reports, after finish, whether everything that was sent has arrived.
func (l *rcLink) drained() bool {
	for _, ln := range l.lanes {
		if ln.done.Load() < ln.posted {
			return false
		}
	}
	return true
}

// close destroys the link when nobody polls any more.
func (l *rcLink) close() error {
	errs := []error{}
	for _, ln := range l.lanes {
		errs = append(errs, ln.close())
	}
	return errors.Join(append(errs, l.received.close())...)
}
