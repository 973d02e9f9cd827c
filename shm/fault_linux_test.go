package shm

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// beside is the Exchanger of rank 0 of two, whose rank 1 is not a fabric.
type beside struct{ peer card }

func (beside) Rank() int { return 0 }
func (beside) Size() int { return 2 }

func (b beside) AllGather(_ context.Context, mine []byte) ([][]byte, error) {
	return [][]byte{mine, b.peer.encode()}, nil
}

// impostor is a peer that does with each connection what serve says.
func impostor(t *testing.T, serve func(*net.UnixConn)) card {
	t.Helper()
	c := card{name: [tokenBytes]byte(noise(tokenBytes))}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: c.socket(), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return c
}

// checkLeaks fails the test if what runs and is open at its end was not at
// its start.
func checkLeaks(t *testing.T) {
	t.Helper()
	files, goroutines := openDescriptors(t), runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			files2, goroutines2 := openDescriptors(t), runtime.NumGoroutine()
			if files2 <= files && goroutines2 <= goroutines {
				return
			}
			if time.Now().After(end) {
				stacks := make([]byte, 1<<16)
				t.Fatalf("%d descriptors and %d goroutines before, %d and %d after\n%s",
					files, goroutines, files2, goroutines2, stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}

// within fails the test if f takes longer than anything here may.
func within[T any](t *testing.T, what string, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case got := <-done:
		return got
	case <-time.After(10 * time.Second):
		stacks := make([]byte, 1<<16)
		t.Fatalf("%s takes more than 10 s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		panic("unreachable")
	}
}

// TestConnectEnds: by its context where the peer is stopped, with Close, and at
// once where the peer leaves or dies. Only the last two are the peer's doing.
func TestConnectEnds(t *testing.T) {
	checkLeaks(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	stopped := func(*net.UnixConn) { <-release }
	for name, tt := range map[string]struct {
		serve   func(*net.UnixConn)
		timeout time.Duration
		close   bool
		want    func(error) bool
	}{
		"stopped": {stopped, 20 * time.Millisecond, false, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		"closed":  {stopped, time.Hour, true, func(err error) bool { return errors.Is(err, link.ErrClosed) }},
		"leaves": {func(c *net.UnixConn) {
			time.Sleep(5 * time.Millisecond) // the hello is there and stays unread
			_, _ = c.Write((&message{kind: kindBye}).encode())
		}, time.Hour, false, func(err error) bool { return errors.Is(err, link.ErrClosed) }},
		"dies": {func(c *net.UnixConn) { _, _ = readMessage(c) }, time.Hour, false, func(err error) bool {
			var lost *link.PeerLostError
			return errors.As(err, &lost) && lost.Rank == 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Open(t.Context(), beside{impostor(t, tt.serve)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			lost := make(chan error, 9)
			f.Lost(func(_ int, err error) { lost <- err })
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			if tt.close {
				time.AfterFunc(5*time.Millisecond, func() { f.Close() })
			}
			for range 2 { // a second try is none the worse for the first
				err = within(t, "Connect", func() error { _, err := f.Connect(ctx, 1); return err })
				if !tt.want(err) {
					t.Errorf("Connect: %v", err)
				}
			}
			if (name == "stopped" || name == "closed") && len(lost) != 0 {
				t.Errorf("reported as lost: %v", <-lost)
			}
		})
	}
}

// TestClosedIsNamed: what is asked of a closed fabric says whose it was.
func TestClosedIsNamed(t *testing.T) {
	fabrics := openAll(t, 2)
	defer fabrics[0].Close()
	l, err := fabrics[1].Connect(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	fabrics[1].Close()
	_, alloc := fabrics[1].Alloc(8)
	_, connect := fabrics[1].Connect(t.Context(), 0)
	_, mapped := l.(link.Mapper).Map(t.Context(), 1)
	_, _, kept := l.(link.Mapper).Keep(t.Context(), 1)
	notify, put := l.Notify(mem.Remote{Region: 1}, 1), l.Put(mem.Remote{Region: 1}, nil)
	for op, err := range map[string]error{
		"alloc": alloc, "connect": connect, "map": mapped, "keep": kept, "notify": notify, "put": put,
	} {
		var e *ClosedError
		if !errors.As(err, &e) || e.Rank != 1 || e.Op != op || !errors.Is(err, link.ErrClosed) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func TestAllocTooLarge(t *testing.T) {
	f, err := Open(t.Context(), bootstrap.Single(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, bytes := range []int{math.MaxInt, math.MaxInt - 5000, 1 << 62} {
		_, err := f.Alloc(bytes)
		if err == nil || strings.Contains(err.Error(), "-") {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	if _, err := f.Alloc(math.MaxInt); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("got %v, want ENOMEM", err)
	}
}

// greeted is a connection to a fabric that has said hello as rank 1.
func greeted(t *testing.T, f *Fabric) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, f.server.listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	say(t, conn, message{kind: kindHello, region: 1, token: f.server.token})
	if m, err := readMessage(conn); err != nil || m.kind != kindWelcome {
		t.Fatalf("not let in: %+v, %v", m, err)
	}
	return conn
}

func say(t *testing.T, conn *net.UnixConn, m message) {
	t.Helper()
	if _, err := conn.Write(m.encode()); err != nil {
		t.Fatal(err)
	}
}

// TestStoppedPeer: one that does not read keeps nobody waiting, and finds all
// it missed in order when it reads again.
func TestStoppedPeer(t *testing.T) {
	checkLeaks(t)
	f, err := Open(t.Context(), beside{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	conn := greeted(t, f)
	const regions = 400 // more than a socket holds
	var buffers []*mem.Buffer
	for range regions {
		b, err := f.Alloc(8)
		if err != nil {
			t.Fatal(err)
		}
		buffers = append(buffers, b)
		say(t, conn, message{kind: kindWant, region: uint32(b.Region())})
	}
	for _, b := range buffers {
		if err := within(t, "Free", b.Free); err != nil {
			t.Error(err)
		}
	}
	handed := map[uint32]bool{}
	for asked := regions; asked > 0 || len(handed) > 0; {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		m, fd, err := readWithDescriptor(conn)
		if err != nil {
			t.Fatalf("%d answers and %d notices missing: %v", asked, len(handed), err)
		}
		switch {
		case m.kind == kindHave:
			asked--
			if fd >= 0 {
				handed[m.region] = true
				unix.Close(fd)
			}
		case m.kind == kindFreed && handed[m.region]:
			delete(handed, m.region)
		default:
			t.Fatalf("got %+v", m)
		}
	}
}

// TestCloseWithStoppedPeer: Close does not wait for one that never reads.
func TestCloseWithStoppedPeer(t *testing.T) {
	checkLeaks(t)
	f, err := Open(t.Context(), beside{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn := greeted(t, f)
	for range 2000 {
		say(t, conn, message{kind: kindWant, region: 77})
	}
	if err := within(t, "Close", f.Close); err != nil {
		t.Error(err)
	}
}

// TestLateClient: a connection that comes through while the fabric closes is
// hung up on.
func TestLateClient(t *testing.T) {
	checkLeaks(t)
	f, err := Open(t.Context(), beside{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + t.Name(), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	say(t, conn, message{kind: kindHello, region: 1, token: f.server.token})
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := within(t, "refusing", func() error { return f.server.serve(accepted) }); err != nil {
		t.Error(err)
	}
}

// TestOneConnectionPerRank: a rank may connect again, another process may not
// in its name.
func TestOneConnectionPerRank(t *testing.T) {
	checkLeaks(t)
	f, err := Open(t.Context(), beside{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first := greeted(t, f)
	if err := f.server.admit(&client{rank: 1, pid: 1}); err == nil {
		t.Error("let in process 1 as a rank that is another process")
	}
	greeted(t, f)
	_ = first.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := first.Read(make([]byte, 64)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first connection lives on: %d bytes, %v", n, err)
	}
}

// TestFarewellNamesTheCause: of a rank that closes because it lost another, the
// others hear whom it lost.
func TestFarewellNamesTheCause(t *testing.T) {
	p := &peer{fabric: &Fabric{rank: 0, peers: make([]peer, 3)}, rank: 1, pid: 11}
	var lost *link.PeerLostError
	for name, bye := range map[string]message{
		"no cause":   farewell(nil),
		"us":         farewell(&link.PeerLostError{Rank: 0}),
		"itself":     farewell(&link.PeerLostError{Rank: 1}),
		"no rank":    farewell(&link.PeerLostError{Rank: 3}),
		"wild words": {kind: kindBye, region: 1<<32 - 1, bytes: 1<<64 - 1},
	} {
		if err := p.said(&bye); !errors.Is(err, link.ErrClosed) || errors.As(err, &lost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bye := farewell(&link.PeerLostError{Rank: 2, Pid: 22})
	if err := p.said(&bye); !errors.As(err, &lost) || lost.Rank != 2 || lost.Pid != 22 {
		t.Errorf("a lost rank: %v", err)
	}
}
