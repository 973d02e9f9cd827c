package rc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// What ranks dial each other for. Of two ranks the lower makes the connection.
// The higher, if it is the one that wants it, calls, and the lower hangs up when
// it has done what it could.
const (
	forLink = "rc link"
	forCall = "rc call"
)

// offerTimeout is how long a rank that was let in may take over each step.
const offerTimeout = 20 * time.Second

// peer is how far this rank has come in connecting to another.
type peer struct {
	fabric *Fabric
	rank   int
	up     chan struct{} // closed when there is a link
	making sync.Mutex    // of a link that the peer asks for

	mu      sync.Mutex
	link    *rcLink
	attempt *attempt // under way, if any
}

// attempt is one try to connect. It is the fabric's, not that of whoever asked
// first: it ends with the fabric.
type attempt struct {
	done chan struct{} // closed at the end, when err is set
	err  error
}

// Connect implements link.Fabric. It blocks until the peer's process has
// answered. Errors: link.ErrRange, ErrClosed, *PathError, *RefusedError,
// *ProtocolError; a *mesh.DialError with ECONNREFUSED in it says that the peer
// has closed its fabric or died before.
func (f *Fabric) Connect(ctx context.Context, rank int) (link.Link, error) {
	if rank < 0 || rank >= len(f.peers) || rank == f.rank {
		return nil, fmt.Errorf("rc: rank %d of %d cannot connect to rank %d: %w", f.rank, len(f.peers), rank, link.ErrRange)
	}
	if f.isClosed() {
		return nil, &ClosedError{f.rank, "connect"}
	}
	p := &f.peers[rank]
	a := p.begin()
	if a == nil {
		return nil, &ClosedError{f.rank, "connect"}
	}
	select {
	case <-p.up:
	case <-a.done:
	case <-f.life.Done():
		return nil, &ClosedError{f.rank, "connect"}
	case <-ctx.Done():
		return nil, fmt.Errorf("rc: rank %d: connect to rank %d: %w", f.rank, rank, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		return p.link, nil
	}
	if f.isClosed() {
		return nil, &ClosedError{f.rank, "connect"}
	}
	return nil, fmt.Errorf("rc: rank %d: connect to rank %d: %w", f.rank, rank, a.err)
}

// begin returns the attempt that is under way, or starts one. It is nil when
// the fabric is closed.
func (p *peer) begin() *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attempt != nil {
		return p.attempt
	}
	a := &attempt{done: make(chan struct{})}
	if p.link != nil {
		close(a.done)
		return a
	}
	try := p.dial
	if p.rank < p.fabric.rank {
		try = p.call
	}
	if !p.fabric.start(func() {
		err := try()
		p.mu.Lock()
		defer p.mu.Unlock()
		a.err, p.attempt = err, nil
		close(a.done)
	}) {
		return nil
	}
	p.attempt = a
	return a
}

// dial makes the link to a higher rank.
func (p *peer) dial() error {
	c, err := p.fabric.mesh.Dial(p.fabric.life, p.rank, forLink)
	if err != nil {
		return err
	}
	return p.make(c, true)
}

// call lets a lower rank make the link, and returns when it has.
func (p *peer) call() error {
	f := p.fabric
	c, err := f.mesh.Dial(f.life, p.rank, forCall)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(f.life, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	why, err := io.ReadAll(io.LimitReader(c, 2048)) // why it could not; it hangs up
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.link != nil:
		return nil
	case err != nil:
		return err
	case len(why) == 0:
		return fmt.Errorf("rank %d could not connect to this rank at %s", p.rank, f.mesh.Address(f.rank))
	}
	m := message{body: why}
	return &RefusedError{p.rank, m.text()}
}

// handleCalls is the other side of dial and call.
func (f *Fabric) handleCalls() {
	f.mesh.Handle(forCall, func(rank int, c *net.TCPConn) {
		defer c.Close()
		if rank < f.rank {
			return
		}
		if a := f.peers[rank].begin(); a != nil {
			select {
			case <-a.done:
				if a.err != nil {
					_ = c.SetWriteDeadline(time.Now().Add(time.Second))
					_, _ = io.WriteString(c, clip(a.err.Error())) // if it cannot be told, it sees that we hang up
				}
			case <-f.life.Done():
			}
		}
	})
	f.mesh.Handle(forLink, func(rank int, c *net.TCPConn) {
		p := &f.peers[rank]
		p.making.Lock() // until what is left of a try before is gone
		defer p.making.Unlock()
		if rank > f.rank || p.take() != nil {
			c.Close()
			return
		}
		err := p.make(c, false)
		if err != nil && !f.isClosed() {
			f.log.Warn("a peer could not be connected", "rank", f.rank, "peer", rank, "cause", err)
		}
	})
}

func clip(s string) string { return s[:min(len(s), maxMessageLen)] }

// make makes the link over a control connection, which it takes over in any
// case. first says that this side offers first.
func (p *peer) make(c *net.TCPConn, first bool) (err error) {
	f := p.fabric
	l := &rcLink{
		fabric: f, rank: p.rank, control: c,
		counters: map[mem.Remote]*counterOf{}, spoken: make(chan struct{}, 1), hung: make(chan struct{}),
	}
	for id := maxCounters - 1; id >= 0; id-- {
		l.freeIDs = append(l.freeIDs, uint16(id))
	}
	l.places.Store(new(map[mem.RegionID]*place))
	stop := context.AfterFunc(f.life, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	var numbered bool
	defer func() {
		if err == nil {
			return
		}
		stop()
		if !errors.As(err, new(*RefusedError)) {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = c.Write(appendMessage(nil, kindFailed, []byte(clip(err.Error())))) // if it cannot be told, it sees that we hang up
		}
		c.Close()
		if numbered { // what has completed names its lanes; they stay in the table
			cause := error(&ClosedError{f.rank, "connect"})
			l.gone.CompareAndSwap(nil, &cause)
		}
		err = errors.Join(err, l.close())
		if f.life.Err() != nil {
			err = &ClosedError{f.rank, "connect"}
		}
	}()
	var room [maxMessageLen]byte
	lanes := min(MaxLanes, f.cfg.QueuePairs*len(f.rails))
	if !first {
		if err := l.hear(&room); err != nil {
			return err
		}
		lanes = len(l.theirs.lanes)
	}
	mine, err := l.open(lanes)
	if err != nil {
		return err
	}
	if err := f.addLanes(l.lanes); err != nil {
		return err
	}
	numbered = true
	for _, ln := range l.lanes {
		if err := ln.fill(); err != nil {
			return err
		}
	}
	if _, err := c.Write(appendMessage(nil, kindOffer, mine.encode())); err != nil {
		return err
	}
	if first {
		if err := l.hear(&room); err != nil {
			return err
		}
		if len(l.theirs.lanes) != lanes {
			return &ProtocolError{p.rank, fmt.Sprintf("%d lanes in answer to %d", len(l.theirs.lanes), lanes)}
		}
	}
	for i, ln := range l.lanes {
		ln.peerRail = int(l.theirs.lanes[i].rail)
		if err := ln.connect(&l.theirs.lanes[i], l.theirs.mtuForced); err != nil {
			return ln.failure(err)
		}
		l.theirs.maxMessage = min(l.theirs.maxMessage, ln.rail.port.MaxMessage, 1<<30)
	}
	// Who was dialled has its link when it says that it is ready, and not before
	// the other is: a link that one of them uses is one of both.
	ready := appendMessage(nil, kindReady, nil)
	if first {
		if _, err := c.Write(ready); err != nil {
			return err
		}
	}
	if _, err := l.step(&room, kindReady); err != nil {
		return err
	}
	if !stop() {
		return f.life.Err()
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !first {
		l.words = ready
		l.spoken <- struct{}{}
	}
	if !f.start(l.listen) || !f.start(l.speak) {
		return &ClosedError{f.rank, "connect"}
	}
	p.link = l
	close(p.up)
	return nil
}

// step reads the message of a kind that comes next.
func (l *rcLink) step(room *[maxMessageLen]byte, kind byte) (message, error) {
	if l.fabric.life.Err() == nil { // else the deadline has passed and stays so
		_ = l.control.SetReadDeadline(time.Now().Add(offerTimeout))
		if l.fabric.life.Err() != nil {
			_ = l.control.SetReadDeadline(time.Unix(1, 0))
		}
	}
	m, err := readMessage(l.control, room)
	switch {
	case errors.Is(err, io.EOF):
		return m, fmt.Errorf("rank %d hung up", l.rank)
	case err != nil:
		return m, err
	case m.kind == kindFailed:
		return m, &RefusedError{l.rank, m.text()}
	case m.kind != kind:
		return m, &ProtocolError{l.rank, fmt.Sprintf("a message of kind %d instead of %d", m.kind, kind)}
	}
	return m, nil
}

// hear reads the peer's offer.
func (l *rcLink) hear(room *[maxMessageLen]byte) error {
	m, err := l.step(room, kindOffer)
	if err != nil {
		return err
	}
	if l.theirs, err = decodeOffer(m.body); err != nil {
		return &ProtocolError{l.rank, err.Error()}
	}
	return nil
}

// open makes the lanes and the room for records.
func (l *rcLink) open(lanes int) (offer, error) {
	f := l.fabric
	l.granted = f.cfg.Credits
	for _, r := range f.rails { // a quarter more, and some
		l.granted = min(l.granted, (r.attr.MaxQPRequests-spareReceives)*4/5)
	}
	if l.granted < 2 {
		return offer{}, fmt.Errorf("%s takes %d requests in a queue, which is too little", f.rails[0].device.Name(), f.rails[0].attr.MaxQPRequests)
	}
	mine := offer{rails: uint8(len(f.rails)), mtuForced: f.cfg.MTU != 0, credits: uint32(l.granted), maxMessage: 1 << 30}
	for i := range lanes {
		ln := &lane{link: l, index: i, rail: f.rails[i%len(f.rails)], psn: randomPSN()}
		l.lanes = append(l.lanes, ln)
		if err := ln.open(); err != nil {
			return mine, ln.failure(err)
		}
		mine.lanes = append(mine.lanes, ln.offer())
		mine.maxMessage = min(mine.maxMessage, ln.rail.port.MaxMessage)
	}
	if err := l.received.open(l.lanes[0].rail, l.granted); err != nil {
		return mine, err
	}
	mine.slotsAddr, mine.slotsKey = l.received.slotsMR.Addr(), l.received.slotsMR.RKey()
	return mine, nil
}

func randomPSN() uint32 {
	var b [4]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:]) & 0xffffff
}

// take returns the link, if there is one.
func (p *peer) take() *rcLink {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link
}
