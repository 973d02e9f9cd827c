package shm

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/mem"
)

const (
	// helloTimeout is how long a stranger may hold a connection without
	// proving that it is a rank of the job.
	helloTimeout = 5 * time.Second
	// byeTimeout is how long Close waits for peers that do not read.
	byeTimeout = time.Second
)

// server hands this rank's regions to its peers.
type server struct {
	fabric   *Fabric
	token    [tokenBytes]byte
	listener *net.UnixListener

	mu      sync.Mutex
	conns   map[*net.UnixConn]*client // nil until it has said hello
	closing bool                      // no connection is let in any more

	running sync.WaitGroup
}

// client is the server's end of one peer's connection. What the peer is to be
// told waits in a queue, which a goroutine of its own writes out, so that no
// Free and no other peer waits for a peer that is stopped. A stopped peer is
// not given up: when it is continued it finds everything in order. The queue
// stays small without a bound, because it holds only answers to what the peer
// asked, and notices of regions that it was handed.
type client struct {
	conn      *net.UnixConn
	rank, pid int

	mu     sync.Mutex
	ready  sync.Cond // queue or over has changed
	queue  []message // a want stands for its answer
	over   bool      // the peer hung up
	handed map[mem.RegionID]struct{}
}

func listen(f *Fabric, c card) (*server, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: c.socket(), Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("%w: listen: %w", ErrUnavailable, err)
	}
	s := &server{fabric: f, token: c.token, listener: l, conns: map[*net.UnixConn]*client{}}
	s.running.Go(s.accept)
	return s, nil
}

func (s *server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely. Peers wait in the backlog.
			time.Sleep(time.Millisecond)
			continue
		}
		s.running.Go(func() {
			if err := s.serve(conn); err != nil && !errors.Is(err, net.ErrClosed) {
				s.fabric.log.Warn("refused a connection", "rank", s.fabric.rank, "cause", err)
			}
		})
	}
}

// serve answers one peer until it hangs up. The error is for strangers; a peer
// that goes away is noticed on the connection that we made to it.
func (s *server) serve(conn *net.UnixConn) error {
	defer conn.Close()
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.conns[conn] = nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()

	c, err := s.greet(conn)
	if err != nil {
		return err
	}
	if err := s.admit(c); err != nil {
		return err
	}
	defer c.hungUp()
	c.tell(message{kind: kindWelcome})
	s.running.Go(func() { s.write(c) })
	for {
		m, err := readMessage(conn)
		if err != nil || m.kind != kindWant {
			return nil
		}
		c.tell(m)
	}
}

// greet lets a stranger prove that it is a peer.
func (s *server) greet(conn *net.UnixConn) (*client, error) {
	pid, err := sameUser(conn)
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	hello, err := readMessage(conn)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	if hello.kind != kindHello || subtle.ConstantTimeCompare(hello.token[:], s.token[:]) != 1 {
		return nil, fmt.Errorf("process %d is not a rank of this job", pid)
	}
	if ranks := uint32(len(s.fabric.peers)); hello.region >= ranks || int(hello.region) == s.fabric.rank {
		return nil, fmt.Errorf("process %d says that it is rank %d; this is rank %d of %d", pid, hello.region, s.fabric.rank, ranks)
	}
	_ = conn.SetReadDeadline(time.Time{})
	c := &client{conn: conn, rank: int(hello.region), pid: pid, handed: map[mem.RegionID]struct{}{}}
	c.ready.L = &c.mu
	return c, nil
}

// admit makes c the connection of its rank. A rank that tries to connect again
// replaces its former connection; another process is not let into its place.
func (s *server) admit(c *client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	for conn, former := range s.conns {
		if former == nil || former.rank != c.rank {
			continue
		}
		if former.pid != c.pid {
			return fmt.Errorf("process %d says that it is rank %d, which is process %d", c.pid, c.rank, former.pid)
		}
		conn.Close()
	}
	s.conns[c.conn] = c
	return nil
}

// tell queues a message for the peer. It does not block.
func (c *client) tell(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, m)
	c.ready.Signal()
}

func (c *client) hungUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.ready.Signal()
}

// next waits for what the peer is to be told.
func (c *client) next() (m message, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 && !c.over {
		c.ready.Wait()
	}
	if c.over {
		return message{}, false
	}
	m, c.queue = c.queue[0], c.queue[1:]
	return m, true
}

// write tells the peer what is queued for it, until one of the two has said
// goodbye.
func (s *server) write(c *client) {
	defer c.conn.Close() // which ends the reader as well
	for {
		m, ok := c.next()
		if !ok {
			return
		}
		var err error
		if m.kind == kindWant {
			err = s.hand(c, mem.RegionID(m.region))
		} else {
			_, err = c.conn.Write(m.encode())
		}
		if err != nil || m.kind == kindBye {
			return
		}
	}
}

// hand sends the descriptor of a region, or the news that there is none.
func (s *server) hand(c *client, region mem.RegionID) error {
	reply := message{kind: kindHave, region: uint32(region)}
	// What is handed over is on record before a Free can look for whom to
	// tell, so the notice comes, and comes behind the descriptor.
	s.fabric.mu.Lock()
	seg, ok := s.fabric.segments[region]
	if ok {
		c.mu.Lock()
		c.handed[region] = struct{}{}
		c.mu.Unlock()
	}
	s.fabric.mu.Unlock()
	if ok {
		raw, err := seg.file.SyscallConn()
		if err != nil {
			return err
		}
		// Control keeps the descriptor open, also if the region is freed now.
		var sent error
		err = raw.Control(func(fd uintptr) {
			reply.bytes = uint64(seg.bytes)
			_, _, sent = c.conn.WriteMsgUnix(reply.encode(), unix.UnixRights(int(fd)), nil)
		})
		if err == nil {
			return sent
		} // else it was freed before
	}
	_, err := c.conn.Write(reply.encode())
	return err
}

// freed tells those that have been handed a region that it is no more.
func (s *server) freed(region mem.RegionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c != nil && c.forget(region) {
			c.tell(message{kind: kindFreed, region: uint32(region)})
		}
	}
}

// forget reports whether the peer had been handed the region.
func (c *client) forget(region mem.RegionID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.handed[region]
	delete(c.handed, region)
	return ok
}

// close says goodbye and stops every goroutine. A peer that is stopped and
// whose socket is full misses the goodbye.
func (s *server) close() error {
	err := s.listener.Close()
	s.fabric.mu.Lock()
	bye := farewell(s.fabric.firstLost)
	s.fabric.mu.Unlock()
	s.mu.Lock()
	s.closing = true
	for conn, c := range s.conns {
		if c == nil {
			conn.Close()
			continue
		}
		_ = conn.SetWriteDeadline(time.Now().Add(byeTimeout))
		c.tell(bye)
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// readMessage reads one message that carries no descriptor.
func readMessage(c *net.UnixConn) (message, error) {
	var b [messageBytes + 1]byte
	n, err := c.Read(b[:])
	if err != nil {
		return message{}, err
	}
	return decodeMessage(b[:n])
}

func peerCredentials(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}
