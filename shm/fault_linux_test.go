package shm

import (
	"context"
	"errors"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/link"
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

// TestConnectEnds: by its context where the peer is stopped, at once where the
// peer dies, and with Close; and not one of them is the peer's loss.
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
			if name != "dies" && len(lost) != 0 {
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
	_, mapped := l.(link.Mapper).Map(t.Context(), boardRegion)
	for op, err := range map[string]error{"alloc": alloc, "connect": connect, "map": mapped, "notify": l.Notify(1)} {
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
