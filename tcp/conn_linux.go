package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// aheadBytes is how much is read at once where the next frame is not known
// yet. What it holds of a payload is copied once more, so it is not large.
const aheadBytes = 16 << 10

// conn is the reading side of one of a link's connections.
//
// Whoever has the lock reads: it takes frames out of ahead, and payloads from
// the socket into the region. over is written under the lock and read by all.
// The descriptor is open until the fabric is closed.
type conn struct {
	fd     int
	link   *tcpLink
	stripe int
	at     int         // its number in the fabric's conns, and in epoll
	over   atomic.Bool // nothing more is read

	mu     sync.Mutex
	ahead  []byte // read and not yet taken: ahead[from:to]
	from   int
	to     int
	into   mem.RegionID // the region of the put that is under way
	dst    []byte       // where its next bytes go; nil if the region was freed
	left   int          // how many are still to come
	vector [2]unix.Iovec

	// waiting: the next frame has marks that have not been reached. The reader
	// sets it and looks again whether they have; who reads another stripe counts
	// what came, and then looks at waiting.
	waiting atomic.Bool
}

// poll takes in what has arrived, unless somebody else is doing it, and reports
// whether there was anything. It makes one system call.
func (c *conn) poll() bool {
	if c.over.Load() || !c.mu.TryLock() {
		return false
	}
	moved := c.receive()
	c.mu.Unlock()
	if first := c.link.conns[0]; moved && c.stripe != 0 && first.waiting.Load() {
		// It may have nothing more in its socket to be noticed by.
		first.mu.Lock()
		first.receive()
		first.mu.Unlock()
	}
	return moved
}

// receive reads once and takes what is there. mu is held.
func (c *conn) receive() bool {
	if c.over.Load() {
		return false
	}
	if c.waiting.Load() {
		if c.take(); c.waiting.Load() || c.over.Load() {
			return false
		}
	}
	n, errno := c.read()
	switch {
	case errno == unix.EAGAIN:
		return false
	case errno != 0:
		c.finish(errno)
		return true
	case n == 0:
		c.finish(io.EOF)
		return true
	}
	c.take()
	return true
}

// read fills the rest of the payload that is under way, and ahead.
func (c *conn) read() (n int, errno unix.Errno) {
	if c.left == 0 || c.dst == nil {
		if c.from > 0 { // less than a frame is left
			c.to = copy(c.ahead, c.ahead[c.from:c.to])
			c.from = 0
		}
		n, errno = recv(c.fd, c.ahead[c.to:])
		if errno == 0 {
			c.to += n
		}
		return n, errno
	}
	c.from, c.to = 0, 0 // a payload is under way: all was taken
	most := min(c.left, mostPerCall)
	setIovec(&c.vector[0], c.dst[:most])
	setIovec(&c.vector[1], c.ahead)
	v := c.vector[:1]
	if most == c.left {
		v = c.vector[:]
	}
	n, errno = recvInto(c.fd, v)
	if errno != 0 {
		return 0, errno
	}
	c.to = max(0, n-most)
	c.placed(n - c.to)
	return n, 0
}

// placed counts n bytes of the payload as done.
func (c *conn) placed(n int) {
	c.left -= n
	if c.dst != nil {
		c.dst = c.dst[n:]
	}
	if c.left == 0 {
		c.dst = nil
		if c.stripe != 0 {
			c.link.arrived[c.stripe].Add(1)
		}
	}
}

// take takes everything that has been read ahead.
func (c *conn) take() {
	for {
		b := c.ahead[c.from:c.to]
		if c.left > 0 {
			n := min(c.left, len(b))
			if c.dst != nil {
				copy(c.dst, b[:n])
			}
			c.from += n
			c.placed(n)
			if c.left > 0 {
				return
			}
			continue
		}
		if len(b) < headerBytes {
			return
		}
		f, err := decodeHeader((*[headerBytes]byte)(b))
		if err == nil && f.marks != 0 && int(f.marks) != len(c.link.conns)-1 {
			err = errMarks
		}
		if err == nil && len(b) < f.bytes() {
			return
		}
		if err == nil {
			if f.marks != 0 && !c.reached(b[headerBytes:f.bytes()]) {
				return
			}
			c.from += f.bytes()
			err = c.obey(&f)
		}
		if err != nil {
			c.finish(&FrameError{c.link.rank, err.Error()})
		}
		if c.over.Load() {
			return
		}
	}
}

// reached reports whether as many puts have come by the other stripes as the
// marks of a frame say. If not, c is waiting.
func (c *conn) reached(marks []byte) bool {
	if c.link.arrivedAll(marks) {
		c.waiting.Store(false)
		return true
	}
	c.waiting.Store(true)
	if !c.link.arrivedAll(marks) {
		return false
	}
	c.waiting.Store(false)
	return true
}

// arrivedAll compares marks with what has come.
func (l *tcpLink) arrivedAll(marks []byte) bool {
	for stripe := 1; len(marks) > 0; stripe, marks = stripe+1, marks[8:] {
		if l.arrived[stripe].Load() < binary.LittleEndian.Uint64(marks) {
			return false
		}
	}
	return true
}

var errOrder = errors.New("it does not belong there")

// obey does what a frame says.
func (c *conn) obey(f *frame) error {
	l := c.link
	if c.stripe != 0 && f.kind != kindPut && f.kind != kindBye {
		return errOrder
	}
	switch f.kind {
	case kindPut:
		return c.begin(f)
	case kindNotify:
		return c.raise(f)
	case kindWant:
		return l.answer(frame{kind: kindHave, region: f.region, value: uint64(l.fabric.tell(l, f.region))})
	case kindHave:
		return l.learn(f)
	case kindFreed:
		return l.unlearn(f.region)
	case kindForgot:
		l.fabric.forgotten(l, f.region)
	case kindBye:
		c.stop()
		l.heardBye(f)
	default:
		return errOrder
	}
	return nil
}

// begin makes ready for the payload of a put.
func (c *conn) begin(f *frame) error {
	r := (*c.link.fabric.regions.Load())[f.region]
	if r == nil {
		return fmt.Errorf("it puts into region %d, which was never told of", f.region)
	}
	if r.freed { // the notice of that and the put have crossed
		if f.value > 1<<62 {
			return fmt.Errorf("it puts %d bytes", f.value)
		}
		c.into, c.dst, c.left = f.region, nil, int(f.value)
		return nil
	}
	size := uint64(len(r.memory))
	if f.value > size || f.offset > size-f.value {
		return fmt.Errorf("it puts %d bytes at %d of region %d, which has %d", f.value, f.offset, f.region, size)
	}
	c.into, c.dst, c.left = f.region, r.memory[f.offset:][:f.value], int(f.value)
	return nil
}

// raise raises a counter.
func (c *conn) raise(f *frame) error {
	r := (*c.link.fabric.regions.Load())[f.region]
	if r == nil {
		return fmt.Errorf("it notifies in region %d, which was never told of", f.region)
	}
	if r.freed {
		return nil
	}
	if f.offset > uint64(len(r.memory)) {
		return fmt.Errorf("it notifies at %d of region %d, which has %d bytes", f.offset, f.region, len(r.memory))
	}
	counter, err := link.CounterIn(r.memory, int(f.offset))
	if err != nil {
		return fmt.Errorf("it notifies in region %d: %w", f.region, err)
	}
	counter.Raise(f.value)
	return nil
}

// avoid returns when nothing writes any more to a region that was freed.
func (c *conn) avoid(id mem.RegionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left > 0 && c.into == id {
		c.dst = nil
	}
}

// stop lets nobody read any more. mu is held.
func (c *conn) stop() {
	c.over.Store(true)
	_ = unix.EpollCtl(c.link.fabric.epoll, unix.EPOLL_CTL_DEL, c.fd, nil)
}

// finish is the end of a connection that did not begin with a bye. mu is held.
func (c *conn) finish(cause error) {
	c.stop()
	if errors.Is(cause, io.EOF) {
		cause = errors.New("its process ended without closing the communicator")
		if e := unix.Errno(c.link.errno.Load()); e != 0 && e != unix.EPIPE {
			cause = e
		}
	}
	c.link.lose(&link.PeerLostError{Rank: c.link.rank, Err: cause})
}

// drain reads until there is nothing more, for somebody who cannot write: why
// not may be something that the peer has said.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.receive() {
	}
	if !c.over.Load() {
		c.finish(io.EOF)
	}
}
