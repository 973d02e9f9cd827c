package bootstrap

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// How long a rank waits between attempts to reach another: the pauses grow,
// and are spread so that many ranks do not come at once.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// caller is the other end of a gate.
type caller struct {
	role     byte
	rank     int
	peer     int // whose gate it is
	size     int
	version  uint16
	secret   []byte
	isSecret bool
	job      [jobSize]byte
	target   target
	// mayOpen is whether a peer may be on another machine without a secret.
	mayOpen bool
	// advertise says where this rank listens, given a connection to the peer.
	advertise func(conn net.Conn) (string, error)
}

// call connects, as often as it takes until ctx ends, and proves who it is.
// Errors: *UnreachableError, *JoinError if the other end refuses, *OpenError.
func (c *caller) call(ctx context.Context) (*wire, error) {
	began := time.Now()
	var last error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		w, final, err := c.attempt(ctx)
		if err == nil || final {
			return w, err
		}
		// The end of ctx says less than what was wrong before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return nil, &UnreachableError{c.rank, c.peer, c.target.String(), time.Since(began), errors.Join(last, context.Cause(ctx))}
		}
	}
}

// attempt connects once. final means that another attempt would be no better.
func (c *caller) attempt(ctx context.Context) (w *wire, final bool, err error) {
	conn, err := c.target.dial(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	// The end of ctx ends the talk.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := checkPeer(conn); err != nil {
		return nil, true, &JoinError{ErrUser, c.rank, c.target.String(), err.Error()}
	}
	if !c.isSecret && !c.mayOpen && !isLocal(conn.RemoteAddr()) {
		return nil, true, &OpenError{c.target.String()}
	}
	address, err := c.advertise(conn)
	if err != nil {
		return nil, true, err
	}
	if len(address) > addressSize {
		return nil, true, &OptionError{"Listen", address, "a shorter address"}
	}
	_ = conn.SetDeadline(time.Now().Add(handshakeTime + handshakeTime/2))
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	h := hello{version: c.version, role: c.role, hasSecret: c.isSecret, rank: uint32(c.rank), size: uint32(c.size), job: c.job, nonce: newNonce()}
	t := &transcript{key: c.secret}
	first := h.encode()
	t.add(first)
	if _, err := conn.Write(first); err != nil {
		return nil, false, err
	}
	a, raw, err := readAnswer(conn, c.version)
	if err != nil {
		return nil, false, err
	}
	if a.code != codeFine {
		return nil, true, c.refusal(a.code, a.text)
	}
	if a.hasSecret != c.isSecret {
		return nil, true, &JoinError{ErrSecret, c.rank, c.target.String(), fmt.Sprintf("rank %d has one: %t, this one: %t", c.peer, a.hasSecret, c.isSecret)}
	}
	t.add(raw)
	proof := append([]byte{byte(len(address))}, address...)
	t.add(proof)
	mac := t.mac("caller")
	t.add(mac[:])
	if _, err := conn.Write(append(proof, mac[:]...)); err != nil {
		return nil, false, err
	}
	v, err := readVerdict(conn)
	if err != nil {
		return nil, false, err
	}
	if v.code != codeFine {
		return nil, true, c.refusal(v.code, v.text)
	}
	if want := t.mac("server"); !hmac.Equal(v.mac[:], want[:]) {
		return nil, true, &JoinError{ErrSecret, c.rank, c.target.String(), fmt.Sprintf("rank %d did not prove that it knows it", c.peer)}
	}
	if !stop() {
		return nil, false, context.Cause(ctx)
	}
	_ = conn.SetDeadline(time.Time{})
	keep(conn)
	out, in := t.keys()
	return newWire(conn, in, out), false, nil
}

// refusal is the error of a rank that was sent away.
func (c *caller) refusal(code byte, text string) error {
	cause, ok := joinCauses[code]
	if !ok {
		cause = errors.New("refused")
	}
	return &JoinError{cause, c.rank, c.target.String(), "told by rank " + fmt.Sprint(c.peer) + ": " + text}
}

// target is where a gate is: a host and a port, or the name of an abstract
// socket of this machine.
type target struct {
	host, port string
	socket     string // without the @
}

func (t target) String() string {
	if t.socket != "" {
		return "unix:@" + t.socket
	}
	return net.JoinHostPort(t.host, t.port)
}

func (t target) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	if t.socket != "" {
		return d.DialContext(ctx, "unix", "@"+t.socket)
	}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(t.host, t.port))
}

// isLocal is whether an address leads nowhere but into this machine.
func isLocal(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}
