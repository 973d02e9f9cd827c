package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
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
// One goroutine reads from the connection, and maps. It does not unmap what the
// peer frees: a peer whose call failed may free while this rank, which is slow,
// still computes in that memory. The notice therefore carries the peer's
// progress. A peer whose progress has risen past it has begun another call, so
// it has left the earlier ones in good order, which it does only when nobody
// touches its buffers any more. From then on any thread may unmap; Map and
// Alloc do. After a failed call progress stands still, and the memory stays
// until Close.
type peer struct {
	connecting sync.Mutex
	fabric     *Fabric
	rank       int
	pid        int
	link       *shmLink // nil until connected
	conn       *net.UnixConn
	reading    sync.WaitGroup

	mu     sync.Mutex
	mapped map[mem.RegionID][]byte
	wanted map[mem.RegionID][]chan<- mapping
	freed  []freedRegion
	gone   error // why no region can be had any more
	asking sync.Mutex
}

// freedRegion is memory that the peer has freed and that is still mapped here.
type freedRegion struct {
	memory   []byte
	progress uint64 // of the peer, when it freed the region
}

// mapping is the answer to a want.
type mapping struct {
	memory []byte
	err    error
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
	p.mapped = map[mem.RegionID][]byte{}
	p.wanted = map[mem.RegionID][]chan<- mapping{}
	p.reading.Go(p.read)
	board, err := p.region(ctx, boardRegion)
	if err != nil {
		return errors.Join(err, p.hangUp())
	}
	p.link = &shmLink{peer: p, seen: link.CounterAt(board)}
	return nil
}

// read takes what the peer's server says until it is gone.
func (p *peer) read() {
	var bye *message
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
		case kindHave:
			p.have(m, fd)
		case kindFreed:
			p.retire(mem.RegionID(m.region), m.bytes)
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
	} else if got.memory, got.err = mapForeign(fd, m.bytes); got.err != nil {
		got.err = fmt.Errorf("shm: region %d of rank %d: %w", region, p.rank, got.err)
	}
	p.answer(region, got)
}

// answer tells everybody who asked for a region what became of it.
func (p *peer) answer(region mem.RegionID, got mapping) {
	p.mu.Lock()
	asked := p.wanted[region]
	delete(p.wanted, region)
	if got.err == nil {
		p.mapped[region] = got.memory
	}
	p.mu.Unlock()
	for _, ch := range asked {
		ch <- got
	}
}

// retire takes a region that the peer has freed out of use.
func (p *peer) retire(region mem.RegionID, progress uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if memory, ok := p.mapped[region]; ok {
		delete(p.mapped, region)
		p.freed = append(p.freed, freedRegion{memory, progress})
	}
}

// unmapFreed unmaps what the peer has freed and nobody can be using. p.mu is
// held.
func (p *peer) unmapFreed() {
	if len(p.freed) == 0 {
		return
	}
	progress := link.CounterAt(p.mapped[boardRegion]).Load()
	p.freed = slices.DeleteFunc(p.freed, func(r freedRegion) bool {
		if progress <= r.progress {
			return false
		}
		if err := unmapForeign(r.memory); err != nil {
			p.fabric.log.Warn("unmapping a freed region", "rank", p.fabric.rank, "peer", p.rank, "cause", err)
		}
		return true
	})
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

// region returns the memory of one of the peer's regions, mapping it first if
// need be.
func (p *peer) region(ctx context.Context, region mem.RegionID) ([]byte, error) {
	p.mu.Lock()
	p.unmapFreed()
	if memory, ok := p.mapped[region]; ok {
		p.mu.Unlock()
		return memory, nil
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
		return got.memory, got.err
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
	for _, memory := range p.mapped {
		err = errors.Join(err, unmapForeign(memory))
	}
	for _, r := range p.freed {
		err = errors.Join(err, unmapForeign(r.memory))
	}
	p.mapped, p.freed = nil, nil
	p.conn = nil
	p.link = nil
	return err
}

// shmLink implements link.Link and link.Mapper.
type shmLink struct {
	peer *peer
	seen *link.Counter
}

var (
	_ link.Link   = (*shmLink)(nil)
	_ link.Mapper = (*shmLink)(nil)
)

// Put implements link.Link by a copy.
func (l *shmLink) Put(dst mem.Remote, src []byte) error {
	memory, err := l.Map(context.Background(), dst.Region)
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

// Notify implements link.Link. All peers see the same counter.
func (l *shmLink) Notify(v uint64) error {
	if l.peer.fabric.isClosed() {
		return &ClosedError{l.peer.fabric.rank, "notify"}
	}
	l.peer.fabric.own.Raise(v)
	return nil
}

// Seen implements link.Link.
func (l *shmLink) Seen() *link.Counter { return l.seen }

// Map implements link.Mapper.
func (l *shmLink) Map(ctx context.Context, region mem.RegionID) ([]byte, error) {
	if l.peer.fabric.isClosed() {
		return nil, &ClosedError{l.peer.fabric.rank, "map"}
	}
	return l.peer.region(ctx, region)
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
