package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/move"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// peer is this rank's view of another: the connection it fetches regions by,
// and what it has mapped.
//
// One goroutine reads from the connection, and maps. What the peer frees it only
// marks: the next Map or Alloc unmaps it, on whichever thread that is, for
// unmapping a large region takes long and the reader has others to serve. The
// peer vouched that nobody is at work in it; whoever may still look at it has
// said so by Keep.
type peer struct {
	connecting sync.Mutex
	fabric     *Fabric
	rank       int
	pid        int
	link       *shmLink // nil until connected
	conn       *net.UnixConn
	attachErr  error // why the peer's ordinary memory is out of reach; see link.Copier
	reading    sync.WaitGroup

	mu     sync.Mutex
	mapped map[mem.RegionID]*view
	wanted map[mem.RegionID][]chan<- mapping
	freed  bool  // some view may be freed and kept by nobody
	gone   error // why no region can be had any more
	asking sync.Mutex

	welcome chan struct{} // closed by read when the peer has let us in, or never will
}

// view is one of the peer's regions as it is mapped here. peer.mu guards it.
type view struct {
	memory []byte
	keeps  int  // Keep calls that are not released
	freed  bool // the peer has freed the region
}

// mapping is the answer to a want.
type mapping struct {
	*view
	err error
}

func (p *peer) connect(ctx context.Context, f *Fabric, rank int) error {
	c := f.cards[rank]
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", c.socket())
	if err != nil {
		return err
	}
	uc := conn.(*net.UnixConn)
	pid, err := sameUser(uc)
	if err != nil {
		uc.Close()
		return err
	}
	hello := message{kind: kindHello, region: uint32(f.rank), token: c.token}
	if _, err := uc.Write(hello.encode()); err != nil {
		uc.Close()
		return err
	}
	p.fabric, p.rank, p.pid, p.conn, p.gone = f, rank, pid, uc, nil
	p.mapped = map[mem.RegionID]*view{}
	p.wanted = map[mem.RegionID][]chan<- mapping{}
	p.welcome = make(chan struct{})
	p.reading.Go(p.read)
	if err := p.welcomed(ctx); err != nil {
		return errors.Join(err, p.hangUp())
	}
	p.attachErr = p.tryAttach(c.probe)
	p.link = &shmLink{peer: p}
	return nil
}

// welcomed waits until the peer has let this rank in.
func (p *peer) welcomed(ctx context.Context) error {
	select {
	case <-p.welcome:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.gone
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.fabric.down:
		return &ClosedError{p.fabric.rank, "connect"}
	}
}

// read takes what the peer's server says until it is gone.
func (p *peer) read() {
	var bye *message
	welcome := sync.OnceFunc(func() { close(p.welcome) })
	defer welcome()
	for {
		m, fd, err := readWithDescriptor(p.conn)
		if errors.Is(err, unix.ECONNRESET) {
			continue // it left without reading all we said; what it said last is still to come
		}
		if err != nil {
			p.leave(bye, err)
			return
		}
		switch m.kind {
		case kindWelcome:
			welcome()
		case kindHave:
			p.have(m, fd)
		case kindFreed:
			p.retire(mem.RegionID(m.region))
		case kindBye:
			bye = &m
		}
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// have maps what was sent and answers whoever asked for it. Only this
// goroutine maps, and a region stays wanted until it is mapped, so no region
// is mapped twice.
func (p *peer) have(m message, fd int) {
	region := mem.RegionID(m.region)
	p.mu.Lock()
	wanted := len(p.wanted[region]) != 0
	p.mu.Unlock()
	if !wanted {
		return
	}
	var got mapping
	if fd < 0 {
		got.err = fmt.Errorf("shm: rank %d has no region %d: %w", p.rank, region, link.ErrRange)
	} else if memory, err := mapForeign(fd, m.bytes); err != nil {
		got.err = fmt.Errorf("shm: region %d of rank %d: %w", region, p.rank, err)
	} else {
		got.view = &view{memory: memory}
	}
	p.answer(region, got)
}

// answer tells everybody who asked for a region what became of it.
func (p *peer) answer(region mem.RegionID, got mapping) {
	p.mu.Lock()
	asked := p.wanted[region]
	delete(p.wanted, region)
	if got.err == nil {
		p.mapped[region] = got.view
	}
	p.mu.Unlock()
	for _, ch := range asked {
		ch <- got
	}
}

// retire marks a region that the peer has freed.
func (p *peer) retire(region mem.RegionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := p.mapped[region]; ok {
		v.freed, p.freed = true, true
	}
}

// tidy unmaps what the peer has freed, on behalf of somebody who has not asked
// for that. p.mu is held.
func (p *peer) tidy() {
	if !p.freed {
		return
	}
	p.freed = false
	if err := p.unmapFreed(); err != nil {
		p.fabric.log.Warn("unmapping a freed region", "rank", p.fabric.rank, "peer", p.rank, "cause", err)
	}
}

// unmapFreed unmaps what the peer has freed and nobody keeps. p.mu is held.
func (p *peer) unmapFreed() error {
	var err error
	for region, v := range p.mapped {
		if v.freed && v.keeps == 0 {
			delete(p.mapped, region)
			err = errors.Join(err, unmapForeign(v.memory))
		}
	}
	return err
}

// keep returns one of the peer's regions and lets it stay until release.
func (p *peer) keep(ctx context.Context, region mem.RegionID) (memory []byte, release func() error, err error) {
	for {
		v, err := p.region(ctx, region)
		if err != nil {
			return nil, nil, err
		}
		p.mu.Lock()
		if p.mapped[region] != v { // freed and unmapped since: ask again, for the error
			p.mu.Unlock()
			continue
		}
		v.keeps++
		p.mu.Unlock()
		return v.memory, sync.OnceValue(func() error {
			p.mu.Lock()
			defer p.mu.Unlock()
			v.keeps--
			if !v.freed {
				return nil
			}
			return p.unmapFreed()
		}), nil
	}
}

// leave records that the peer is gone and tells everybody who waits for it.
func (p *peer) leave(bye *message, cause error) {
	ours := errors.Is(cause, net.ErrClosed) // we hung up: nobody was lost
	err := error(&link.PeerLostError{Rank: p.rank, Pid: p.pid, Err: cause})
	if errors.Is(cause, io.EOF) {
		err = &link.PeerLostError{Rank: p.rank, Pid: p.pid, Err: errors.New("its process ended without closing the communicator")}
	}
	if bye != nil {
		err = p.said(bye)
	}
	p.mu.Lock()
	p.gone = err
	waiting := p.wanted
	p.wanted = nil
	p.mu.Unlock()
	for _, asked := range waiting {
		for _, ch := range asked {
			ch <- mapping{err: err}
		}
	}
	if !ours {
		p.fabric.report(p.rank, err)
	}
}

// said is what a peer's bye means here.
func (p *peer) said(bye *message) error {
	if lost := int(bye.region) - 1; lost >= 0 && lost < len(p.fabric.peers) && lost != p.rank && lost != p.fabric.rank {
		return &link.PeerLostError{Rank: lost, Pid: int(bye.bytes),
			Err: fmt.Errorf("rank %d (pid %d) saw it and has closed its communicator", p.rank, p.pid)}
	}
	return fmt.Errorf("rank %d (pid %d) has closed its communicator: %w", p.rank, p.pid, link.ErrClosed)
}

// region returns one of the peer's regions, mapping it first if need be.
func (p *peer) region(ctx context.Context, region mem.RegionID) (*view, error) {
	p.mu.Lock()
	p.tidy()
	if v, ok := p.mapped[region]; ok {
		p.mu.Unlock()
		return v, nil
	}
	if p.gone != nil {
		p.mu.Unlock()
		return nil, p.gone
	}
	ch := make(chan mapping, 1)
	first := len(p.wanted[region]) == 0
	p.wanted[region] = append(p.wanted[region], ch)
	p.mu.Unlock()
	if first {
		if err := p.ask(ctx, region); err != nil && !errors.Is(err, unix.EPIPE) { // a peer that is gone is reported by read
			p.answer(region, mapping{err: fmt.Errorf("shm: asking rank %d for region %d: %w", p.rank, region, err)})
		}
	}
	select {
	case got := <-ch:
		return got.view, got.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-p.fabric.down:
		return nil, &ClosedError{p.fabric.rank, "map"}
	}
}

// ask sends for a region. The socket has room, unless the peer is stopped and
// hundreds have asked before.
func (p *peer) ask(ctx context.Context, region mem.RegionID) error {
	until := time.Now().Add(helloTimeout)
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		until = end
	}
	want := message{kind: kindWant, region: uint32(region)}
	p.asking.Lock()
	defer p.asking.Unlock()
	_ = p.conn.SetWriteDeadline(until)
	_, err := p.conn.Write(want.encode())
	return err
}

// close hangs up. The fabric is closed, so nobody is in a collective.
func (p *peer) close() error {
	p.connecting.Lock()
	defer p.connecting.Unlock()
	return p.hangUp()
}

// hangUp ends the connection and unmaps everything; connecting is held.
func (p *peer) hangUp() error {
	if p.conn == nil {
		return nil
	}
	err := p.conn.Close()
	p.reading.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.mapped {
		err = errors.Join(err, unmapForeign(v.memory))
	}
	p.mapped, p.freed = nil, false
	p.conn = nil
	p.link = nil
	return err
}

// shmLink implements link.Link and link.Mapper.
type shmLink struct{ peer *peer }

var (
	_ link.Link   = (*shmLink)(nil)
	_ link.Mapper = (*shmLink)(nil)
)

// Put implements link.Link by a copy.
func (l *shmLink) Put(dst mem.Remote, src []byte) error {
	memory, err := l.reach(context.Background(), "put", dst.Region)
	if err != nil {
		return err
	}
	if dst.Offset < 0 || dst.Offset > len(memory) || len(src) > len(memory)-dst.Offset {
		return fmt.Errorf("shm: put of %d bytes at %d of region %d (%d bytes) of rank %d: %w",
			len(src), dst.Offset, dst.Region, len(memory), l.peer.rank, link.ErrRange)
	}
	move.Bytes(memory[dst.Offset:][:len(src)], src)
	return nil
}

// Notify implements link.Link: the counter is raised where it lies.
func (l *shmLink) Notify(dst mem.Remote, v uint64) error {
	memory, err := l.reach(context.Background(), "notify", dst.Region)
	if err != nil {
		return err
	}
	c, err := link.CounterIn(memory, dst.Offset)
	if err != nil {
		return fmt.Errorf("shm: notify: region %d of rank %d: %w", dst.Region, l.peer.rank, err)
	}
	c.Raise(v)
	return nil
}

// Map implements link.Mapper.
func (l *shmLink) Map(ctx context.Context, region mem.RegionID) ([]byte, error) {
	return l.reach(ctx, "map", region)
}

// Keep implements link.Mapper.
func (l *shmLink) Keep(ctx context.Context, region mem.RegionID) ([]byte, func() error, error) {
	if l.peer.fabric.isClosed() {
		return nil, nil, &ClosedError{l.peer.fabric.rank, "keep"}
	}
	return l.peer.keep(ctx, region)
}

// reach returns the memory of a region for what op names.
func (l *shmLink) reach(ctx context.Context, op string, region mem.RegionID) ([]byte, error) {
	if l.peer.fabric.isClosed() {
		return nil, &ClosedError{l.peer.fabric.rank, op}
	}
	v, err := l.peer.region(ctx, region)
	if err != nil {
		return nil, err
	}
	return v.memory, nil
}

// readWithDescriptor reads one message and the descriptor that came with it,
// or -1.
func readWithDescriptor(c *net.UnixConn) (message, int, error) {
	var (
		b      [messageBytes + 1]byte
		rights = make([]byte, unix.CmsgSpace(4))
	)
	n, rn, _, _, err := c.ReadMsgUnix(b[:], rights)
	if err != nil {
		return message{}, -1, err
	}
	if n == 0 && rn == 0 {
		return message{}, -1, io.EOF
	}
	fd, err := descriptor(rights[:rn])
	if err != nil {
		return message{}, -1, err
	}
	m, err := decodeMessage(b[:n])
	if err != nil && fd >= 0 {
		unix.Close(fd)
	}
	return m, fd, err
}

// descriptor takes the one descriptor out of control data; more than one is
// refused and closed.
func descriptor(rights []byte) (int, error) {
	if len(rights) == 0 {
		return -1, nil
	}
	cmsgs, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return -1, err
	}
	var fds []int
	for i := range cmsgs {
		got, err := unix.ParseUnixRights(&cmsgs[i])
		if err != nil {
			continue
		}
		fds = append(fds, got...)
	}
	if len(fds) == 1 {
		return fds[0], nil
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return -1, fmt.Errorf("%d descriptors in one message", len(fds))
}
