package tcp

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

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// What ranks dial each other for. Of two ranks the lower makes the connections,
// both directions of which are used. The higher, if it is the one that wants
// them, calls, and the lower hangs up when it has done what it could.
const (
	forStripes = "tcp stripe"
	forCall    = "tcp call"
)

// startTimeout is how long a rank that was let in may take to say which stripe
// it starts.
const startTimeout = 5 * time.Second

// peer is how far this rank has come in connecting to another.
type peer struct {
	fabric *Fabric
	rank   int
	up     chan struct{} // closed when there is a link

	mu      sync.Mutex
	link    *tcpLink
	attempt *attempt // under way, if any
	parts   parts    // of a link that the peer is making
}

// attempt is one try to connect. It is the fabric's, not that of whoever asked
// first: it ends with the fabric.
type attempt struct {
	done chan struct{} // closed at the end, when err is set
	err  error
}

// parts are stripes that a peer has started, until there are all.
type parts struct {
	try   uint64 // which of the peer's tries
	conns []*net.TCPConn
	have  int
}

// Connect implements link.Fabric. It blocks until the peer's process has
// answered. A *mesh.DialError with ECONNREFUSED in it says that the peer has
// closed its fabric or died before.
func (f *Fabric) Connect(ctx context.Context, rank int) (link.Link, error) {
	if rank < 0 || rank >= len(f.peers) || rank == f.rank {
		return nil, fmt.Errorf("tcp: rank %d of %d cannot connect to rank %d: %w", f.rank, len(f.peers), rank, link.ErrRange)
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
		return nil, fmt.Errorf("tcp: rank %d: connect to rank %d: %w", f.rank, rank, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		return p.link, nil
	}
	if f.isClosed() {
		return nil, &ClosedError{f.rank, "connect"}
	}
	return nil, fmt.Errorf("tcp: rank %d: connect to rank %d: %w", f.rank, rank, a.err)
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

// start runs a goroutine that Close waits for, unless it is too late for that.
func (f *Fabric) start(run func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.running.Go(run)
	return true
}

// dial makes the connections to a higher rank.
func (p *peer) dial() (err error) {
	f := p.fabric
	conns := make([]*net.TCPConn, 0, f.cfg.Stripes)
	defer func() {
		for _, c := range conns { // unless they have become a link
			c.Close()
		}
	}()
	var try [8]byte
	rand.Read(try[:])
	for stripe := range f.cfg.Stripes {
		c, err := f.mesh.Dial(f.life, p.rank, forStripes)
		if err != nil {
			return err
		}
		conns = append(conns, c)
		start := frame{kind: kindStart, region: mem.RegionID(f.cfg.Stripes), offset: uint64(stripe), value: binary.LittleEndian.Uint64(try[:])}
		if _, err := c.Write(start.append(nil)); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(f.life, func() { _ = conns[0].SetReadDeadline(time.Unix(1, 0)) })
	ready, err := readFrame(conns[0])
	if !stop() {
		return f.life.Err()
	}
	if err == nil && ready.kind != kindReady {
		err = &FrameError{p.rank, errOrder.Error()}
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := conns
	conns = nil
	return p.make(taken, nil)
}

// call lets a lower rank make the connections, and returns when it has.
func (p *peer) call() error {
	f := p.fabric
	c, err := f.mesh.Dial(f.life, p.rank, forCall)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(f.life, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = c.Read(make([]byte, 1)) // nothing is said; it hangs up
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.link != nil:
		return nil
	case !errors.Is(err, io.EOF):
		return err
	}
	return fmt.Errorf("rank %d could not connect to this rank at %s", p.rank, f.mesh.Address(f.rank))
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
			case <-f.life.Done():
			}
		}
	})
	f.mesh.Handle(forStripes, func(rank int, c *net.TCPConn) {
		if rank > f.rank {
			c.Close()
			return
		}
		stop := context.AfterFunc(f.life, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
		_ = c.SetReadDeadline(time.Now().Add(startTimeout))
		start, err := readFrame(c)
		if !stop() || err != nil || start.kind != kindStart || c.SetReadDeadline(time.Time{}) != nil {
			c.Close()
			return
		}
		if err := f.peers[rank].add(&start, c); err != nil {
			f.log.Warn("a peer could not be connected", "rank", f.rank, "peer", rank, "cause", err)
		}
	})
}

// readFrame reads a frame from a connection that is not a link's yet.
func readFrame(c *net.TCPConn) (frame, error) {
	var b [headerBytes]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return frame{}, err
	}
	return decodeHeader(&b)
}

// add takes a stripe that the peer has started.
func (p *peer) add(start *frame, c *net.TCPConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		return c.Close()
	}
	stripes, stripe := int(start.region), int(start.offset)
	if p.parts.try != start.value || len(p.parts.conns) != stripes {
		p.dropParts()
		p.parts = parts{try: start.value, conns: make([]*net.TCPConn, stripes)}
	}
	if p.parts.conns[stripe] != nil {
		return c.Close()
	}
	p.parts.conns[stripe] = c
	if p.parts.have++; p.parts.have < stripes {
		return nil
	}
	conns := p.parts.conns
	p.parts = parts{}
	return p.make(conns, &frame{kind: kindReady})
}

// dropParts hangs up on what is not a link yet. mu is held.
func (p *peer) dropParts() {
	for _, c := range p.parts.conns {
		if c != nil {
			c.Close()
		}
	}
	p.parts = parts{}
}

// make makes the link of connections, which it takes over in any case, and says
// first, if there is anything to say. mu is held.
func (p *peer) make(conns []*net.TCPConn, first *frame) (err error) {
	f := p.fabric
	l := &tcpLink{fabric: f, rank: p.rank, out: make([]byte, 0, 4096), marked: true}
	l.sizes.Store(new(map[mem.RegionID]int))
	defer func() {
		if err == nil {
			return
		}
		for _, c := range l.conns {
			c.mu.Lock()
			c.stop()
			unix.Close(c.fd)
			c.mu.Unlock()
		}
	}()
	for stripe, c := range conns {
		fd, e := detach(c)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		l.conns = append(l.conns, &conn{fd: fd, link: l, stripe: stripe, ahead: make([]byte, aheadBytes)})
		err = errors.Join(err, f.cfg.tune(fd))
	}
	if err != nil {
		return err
	}
	if first != nil {
		l.out = first.append(l.out)
	}
	if err := f.attendTo(l.conns); err != nil {
		return err
	}
	p.link = l
	close(p.up)
	l.tryFlush()
	return nil
}

// tune sets what the configuration says of a socket.
func (c *Config) tune(fd int) error {
	if c.SocketBytes != 0 {
		if err := errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, c.SocketBytes),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, c.SocketBytes)); err != nil {
			return &ConfigError{"SocketBytes", err}
		}
	}
	if c.Congestion != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, c.Congestion); err != nil {
			return &ConfigError{"Congestion", fmt.Errorf("%q: %w (net.ipv4.tcp_allowed_congestion_control lists what may be chosen)", c.Congestion, err)}
		}
	}
	return nil
}

// try finds out early what the kernel thinks of the configuration.
func (c *Config) try() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: socket: %w", ErrUnavailable, err)
	}
	defer unix.Close(fd)
	return c.tune(fd)
}

// attendTo lets connections be read from now on.
func (f *Fabric) attendTo(added []*conn) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &ClosedError{f.rank, "connect"}
	}
	before := *f.conns.Load()
	conns := append(before[:len(before):len(before)], added...)
	for i, c := range added {
		c.at = len(before) + i
	}
	f.conns.Store(&conns)
	for _, c := range added {
		if err := f.listenTo(c.fd, c.at); err != nil {
			f.conns.Store(&before)
			return err
		}
	}
	return nil
}

// close ends what is not a link yet, and returns the link if there is one.
func (p *peer) close() *tcpLink {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropParts()
	return p.link
}
