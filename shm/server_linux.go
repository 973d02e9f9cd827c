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

// helloTimeout is how long a stranger may hold a connection without proving
// that it is a rank of the job.
const helloTimeout = 5 * time.Second

// server hands this rank's regions to its peers.
type server struct {
	fabric   *Fabric
	token    [tokenBytes]byte
	listener *net.UnixListener

	mu    sync.Mutex
	conns map[*net.UnixConn]struct{} // that have said hello
	all   map[*net.UnixConn]struct{}

	running sync.WaitGroup
}

func listen(f *Fabric, c card) (*server, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: c.socket(), Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("%w: listen: %w", ErrUnavailable, err)
	}
	s := &server{
		fabric: f, token: c.token, listener: l,
		conns: map[*net.UnixConn]struct{}{}, all: map[*net.UnixConn]struct{}{},
	}
	s.running.Go(s.accept)
	return s, nil
}

func (s *server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely. Peers wait in the backlog.
			time.Sleep(time.Millisecond)
			continue
		}
		s.mu.Lock()
		s.all[c] = struct{}{}
		s.mu.Unlock()
		s.running.Go(func() {
			defer func() {
				s.mu.Lock()
				delete(s.all, c)
				delete(s.conns, c)
				s.mu.Unlock()
				c.Close()
			}()
			if err := s.serve(c); err != nil {
				s.fabric.log.Warn("refused a connection", "rank", s.fabric.rank, "cause", err)
			}
		})
	}
}

// serve answers one peer until it hangs up. The error is for strangers; a peer
// that goes away is noticed on the connection that we made to it.
func (s *server) serve(c *net.UnixConn) error {
	if _, err := sameUser(c); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(helloTimeout))
	hello, err := readMessage(c)
	if err != nil {
		return err
	}
	if hello.kind != kindHello || subtle.ConstantTimeCompare(hello.token[:], s.token[:]) != 1 {
		return errors.New("not a rank of this job")
	}
	_ = c.SetReadDeadline(time.Time{})
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	for {
		m, err := readMessage(c)
		if err != nil || m.kind != kindWant {
			return nil
		}
		if err := s.hand(c, mem.RegionID(m.region)); err != nil {
			return nil
		}
	}
}

// hand sends the descriptor of a region, or the news that there is none.
func (s *server) hand(c *net.UnixConn, region mem.RegionID) error {
	reply := message{kind: kindHave, region: uint32(region)}
	s.fabric.mu.Lock() // held so that a Free cannot close the descriptor meanwhile
	defer s.fabric.mu.Unlock()
	seg, ok := s.fabric.segments[region]
	var rights []byte
	if ok {
		reply.bytes = uint64(seg.bytes)
		rights = unix.UnixRights(int(seg.file.Fd()))
	}
	_, _, err := c.WriteMsgUnix(reply.encode(), rights, nil)
	return err
}

// broadcast sends m to every peer that is connected; those that are gone are
// none of its business.
func (s *server) broadcast(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_, _ = c.Write(m.encode())
	}
}

// close says goodbye and stops every goroutine.
func (s *server) close() error {
	err := s.listener.Close()
	s.broadcast(message{kind: kindBye})
	s.mu.Lock()
	for c := range s.all {
		c.Close()
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
