package bootstrap

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// handshakeTime is how long a caller has to say who it is and to prove it.
const handshakeTime = 10 * time.Second

// spareCallers is how many may be at it at a time, beyond one for each rank.
// Of more, the one that has been at it longest is sent away: a stranger that
// holds connections open keeps nobody out, and a rank dials again.
const spareCallers = 128

// gate lets callers in that prove to be ranks, and nobody else. One goroutine
// accepts on each listener, one talks to each caller.
type gate struct {
	gateSpec
	listeners []net.Listener
	working   sync.WaitGroup

	mu      sync.Mutex
	callers []net.Conn // not let in yet, the oldest first
	closed  bool
}

// gateSpec says whom to let in. Its functions may be called at the same time
// for different callers.
type gateSpec struct {
	role     byte
	rank     int // whose gate it is
	size     int
	version  uint16
	secret   []byte // of the MACs
	isSecret bool   // whether the job has one
	job      [jobSize]byte

	// claim decides about a caller that has proved itself, and keeps its place
	// for it, or says why not.
	claim func(h hello, address string, conn net.Conn) *JoinError
	// enter takes over the connection of one whose claim was granted.
	enter func(h hello, address string, w *wire)
	// refused hears of callers that spoke our protocol and were sent away;
	// proven is whether they have the secret, or there is none.
	refused func(e *JoinError, proven bool)
}

func newGate(spec gateSpec, listeners []net.Listener) *gate {
	g := &gate{gateSpec: spec, listeners: listeners}
	for _, l := range listeners {
		g.working.Go(func() { g.accept(l) })
	}
	return g
}

func (g *gate) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, or the caller has gone: others may come
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !g.admit(conn) {
			conn.Close()
			return
		}
		g.working.Go(func() {
			if !g.talk(conn) {
				conn.Close()
			}
			g.forget(conn)
		})
	}
}

// admit notes a caller, and sends the oldest away if there are too many. It
// reports false when the gate is closed.
func (g *gate) admit(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if len(g.callers) >= g.size+spareCallers {
		g.callers[0].Close()
		g.callers = g.callers[1:]
	}
	g.callers = append(g.callers, conn)
	return true
}

// forget reports whether the caller was still in good standing.
func (g *gate) forget(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.callers {
		if c == conn {
			g.callers = append(g.callers[:i:i], g.callers[i+1:]...)
			return true
		}
	}
	return false
}

// close stops accepting and sends away who is not let in yet.
func (g *gate) close() {
	for _, l := range g.listeners {
		l.Close()
	}
	g.mu.Lock()
	g.closed = true
	for _, c := range g.callers {
		c.Close()
	}
	g.mu.Unlock()
	g.working.Wait()
}

// talk does the server's part of the handshake and reports whether the
// connection has found its owner. A stranger gets no answer.
func (g *gate) talk(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	if err := checkPeer(conn); err != nil {
		return false
	}
	from := addressOf(conn.RemoteAddr())
	h, raw, err := readHello(conn, g.version)
	if err != nil {
		if errors.Is(err, ErrVersion) {
			e := &JoinError{ErrVersion, -1, from, fmt.Sprintf("it speaks version %d, rank %d version %d", h.version, g.rank, g.version)}
			g.refuse(conn, e, !g.isSecret)
		}
		return false
	}
	e := &JoinError{Rank: int(h.rank), Address: from}
	switch {
	case h.role != g.role:
		return false
	case h.job != g.job:
		e.Cause = ErrOtherJob
	case h.hasSecret && !g.isSecret:
		e.Cause, e.Detail = ErrSecret, fmt.Sprintf("it has a secret and rank %d has none", g.rank)
	case !h.hasSecret && g.isSecret:
		e.Cause, e.Detail = ErrSecret, fmt.Sprintf("it has none and rank %d has one", g.rank)
	}
	if e.Cause != nil {
		g.refuse(conn, e, false)
		return false
	}
	a := answer{version: g.version, hasSecret: g.isSecret, nonce: newNonce()}
	reply := a.encode()
	t := &transcript{key: g.secret}
	t.add(raw)
	t.add(reply)
	if _, err := conn.Write(reply); err != nil {
		return false
	}
	address, raw, mac, err := readProof(conn)
	if err != nil {
		return false
	}
	t.add(raw)
	if want := t.mac("caller"); !hmac.Equal(mac[:], want[:]) {
		e.Cause = ErrSecret
		g.verdictOf(conn, e, false)
		return false
	}
	t.add(mac[:])
	if !g.forget(conn) {
		return false // sent away meanwhile
	}
	if e := g.claim(h, address, conn); e != nil {
		g.verdictOf(conn, e, true)
		return false
	}
	_ = conn.SetDeadline(time.Time{})
	// Whether this arrives or not, the rank has come: who owns the connection
	// will see it break.
	_ = conn.SetWriteDeadline(time.Now().Add(handshakeTime))
	_, _ = conn.Write((&verdict{mac: t.mac("server")}).encode())
	_ = conn.SetWriteDeadline(time.Time{})
	in, out := t.keys()
	g.enter(h, address, newWire(conn, in, out))
	return true
}

// refuse answers a hello with why not, verdictOf a proof.
func (g *gate) refuse(conn net.Conn, e *JoinError, proven bool) {
	_, _ = conn.Write((&answer{version: g.version, code: codeOf(e.Cause), text: e.Error()}).encode())
	g.sendAway(conn, e, proven)
}

func (g *gate) verdictOf(conn net.Conn, e *JoinError, proven bool) {
	_, _ = conn.Write((&verdict{code: codeOf(e.Cause), text: e.Error()}).encode())
	g.sendAway(conn, e, proven)
}

func (g *gate) sendAway(conn net.Conn, e *JoinError, proven bool) {
	hangUp(conn)
	if g.refused != nil {
		g.refused(e, proven)
	}
}

// hangUp closes a connection such that what was written arrives: closing with
// bytes unread would reset it.
func hangUp(conn net.Conn) {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	var rest [512]byte
	for range 64 {
		if _, err := conn.Read(rest[:]); err != nil {
			break
		}
	}
	conn.Close()
}

// addressOf is an address for people.
func addressOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	if a.Network() == "unix" {
		return "this machine"
	}
	return a.String()
}
