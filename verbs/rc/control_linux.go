package rc

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"time"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/verbs"
)

const (
	// verdictTimeout is how long a failure of a queue pair waits for the control
	// connection, which may know why.
	verdictTimeout = 250 * time.Millisecond
	// mostWords is how many bytes may wait for a peer that does not read.
	mostWords = 1 << 20
)

// say sends a message on the control connection. It does not block.
func (l *rcLink) say(kind byte, body []byte) {
	l.speaking.Lock()
	if len(l.words) < mostWords {
		l.words = appendMessage(l.words, kind, body)
	}
	l.speaking.Unlock()
	select {
	case l.spoken <- struct{}{}:
	default:
	}
}

// speak writes what was said, until the connection is closed.
func (l *rcLink) speak() {
	for {
		select {
		case <-l.spoken:
		case <-l.hung:
			return
		}
		l.speaking.Lock()
		words := l.words
		l.words = nil
		l.speaking.Unlock()
		if _, err := l.control.Write(words); err != nil && errors.Is(err, net.ErrClosed) {
			return // else listen sees what is wrong
		}
	}
}

// listen reads the control connection, until it is closed.
func (l *rcLink) listen() {
	defer close(l.hung)
	var room [maxMessageLen]byte
	for {
		m, err := readMessage(l.control, &room)
		if err != nil {
			l.hungUp(err)
			return
		}
		if err := l.told(&m); err != nil {
			l.lose(&link.PeerLostError{Rank: l.rank, Err: &ProtocolError{l.rank, err.Error()}})
			l.control.Close()
			return
		}
	}
}

// hungUp is the end of a control connection that may not have had a bye. What
// the peer finished before is there when it is reported.
func (l *rcLink) hungUp(err error) {
	if l.gone.Load() != nil || errors.Is(err, net.ErrClosed) {
		return
	}
	l.fabric.exhaust()
	if errors.Is(err, io.EOF) {
		err = errors.New("its process ended without closing the communicator")
	}
	l.lose(&link.PeerLostError{Rank: l.rank, Err: err})
}

func (l *rcLink) told(m *message) error {
	f := l.fabric
	switch m.kind {
	case kindWant:
		id, err := m.number()
		if err != nil {
			return err
		}
		p := f.tell(l, mem.RegionID(id))
		l.say(kindHave, p.encode())
	case kindHave:
		p, err := decodePlace(m.body)
		if err != nil {
			return err
		}
		if p.size == 0 {
			l.none.Store((l.none.Load()>>32+1)<<32 | uint64(p.region))
			return nil
		}
		if p.rails != int(l.theirs.rails) {
			return fmt.Errorf("%d keys for %d rails", p.rails, l.theirs.rails)
		}
		l.setPlace(&p)
	case kindFreed:
		id, err := m.number()
		if err != nil {
			return err
		}
		l.setPlace(&place{region: mem.RegionID(id)})
	case kindBye:
		lost, err := m.number()
		if err != nil {
			return err
		}
		f.exhaust() // what it sent before has come
		l.lose(l.meaning(int(lost) - 1))
		l.say(kindHeard, nil)
	case kindHeard:
		l.heard.Store(true)
	case kindFailed:
		f.exhaust()
		l.lose(&link.PeerLostError{Rank: l.rank, Err: &RefusedError{l.rank, m.text()}})
	default:
		return fmt.Errorf("a message of kind %d", m.kind)
	}
	return nil
}

// meaning is what a peer's bye means here: it may have closed because it lost
// another rank, which this one has not noticed yet.
func (l *rcLink) meaning(lost int) error {
	f := l.fabric
	if lost >= 0 && lost < len(f.peers) && lost != l.rank && lost != f.rank {
		f.report(lost, &link.PeerLostError{Rank: lost, Err: fmt.Errorf("rank %d, which closed its communicator then, said so", l.rank)})
	}
	return fmt.Errorf("rank %d closed its communicator: %w", l.rank, link.ErrClosed)
}

func (l *rcLink) setPlace(p *place) {
	places := maps.Clone(*l.places.Load())
	if places == nil {
		places = map[mem.RegionID]*place{}
	}
	places[p.region] = p
	l.places.Store(&places)
}

// ask asks the peer where a region is; nil: nowhere.
func (l *rcLink) ask(op string, region mem.RegionID) (*place, error) {
	l.mu.Lock()
	defer l.unlock()
	if err := l.usable(op); err != nil {
		return nil, err
	}
	before := l.none.Load()
	l.say(kindWant, numberBytes(uint32(region)))
	for looks := 0; ; looks++ {
		if p := (*l.places.Load())[region]; p != nil {
			return p, nil
		}
		if none := l.none.Load(); none != before && mem.RegionID(none) == region {
			return nil, nil
		}
		if err := l.pause(looks); err != nil {
			return nil, err
		}
	}
}

// fail is called when a lane cannot go on. It does not block. The link is lost
// unless the control connection says within a moment that the peer is gone,
// which is then the cause and not this.
func (l *rcLink) fail(ln *lane, cause error) {
	if l.gone.Load() != nil {
		return
	}
	l.failing.Lock()
	defer l.failing.Unlock()
	// Devices may flush one queue before they say in the other what was wrong.
	if l.cause == nil || errors.Is(l.cause.Err, verbs.Flushed) {
		l.cause = &PathError{Device: ln.rail.device.Name(), Port: ln.rail.port.Number, Peer: l.rank, Err: cause}
	}
	if l.suspect {
		return
	}
	l.suspect = l.fabric.start(func() { l.judge(ln) })
}

// judge is for a link with a lane that cannot go on.
func (l *rcLink) judge(ln *lane) {
	l.failing.Lock()
	first := l.cause.Err
	l.failing.Unlock()
	if lost := (*ProtocolError)(nil); !errors.As(first, &lost) {
		for end := time.Now().Add(verdictTimeout); l.gone.Load() == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	l.failing.Lock()
	cause := ln.failure(l.cause.Err)
	l.failing.Unlock()
	if l.gone.Load() == nil {
		l.say(kindFailed, []byte(clip(cause.Error())))
		l.lose(&link.PeerLostError{Rank: l.rank, Err: cause})
	}
}

// lose lets nothing more be sent to the peer, and everybody know.
func (l *rcLink) lose(err error) {
	if !l.gone.CompareAndSwap(nil, &err) {
		return
	}
	f := l.fabric
	f.forgetPeer(l)
	f.report(l.rank, err)
	f.start(func() { // nothing more is sent again and again to who is not there
		for _, ln := range l.lanes {
			if err := ln.qp.ToError(); err != nil {
				f.log.Debug("a queue pair cannot be ended", "rank", f.rank, "peer", l.rank, "cause", err)
			}
		}
	})
}
