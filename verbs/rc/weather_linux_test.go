package rc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/verbs"
	"github.com/tutti-go/tutti/verbs/fakeverbs"
)

// onSimulated skips what can be brought about on the simulated device only.
func onSimulated(t *testing.T) {
	t.Helper()
	if simulated == nil {
		t.Skip("NOT TESTED here: no real device can be made to do this")
	}
}

// busy is two ranks, of which the first puts and notifies until it fails.
type busy struct {
	fabrics []*Fabric
	told    [2]chan error // by Lost
	ended   chan error    // the first error of Put or Notify
}

func startBusy(t *testing.T, cfg Config) *busy {
	t.Helper()
	b := &busy{fabrics: openAll(t, 2, cfg), ended: make(chan error, 1)}
	t.Cleanup(func() {
		for _, f := range b.fabrics {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	region, err := b.fabrics[1].Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range b.fabrics {
		b.told[i] = make(chan error, 9)
		f.Lost(func(_ int, err error) { b.told[i] <- err })
	}
	l, err := b.fabrics[0].Connect(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	at := mem.Remote{Region: region.Region(), Offset: 4096}
	src := make([]byte, 100_000)
	if err := l.Put(at, src); err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := uint64(1); ; i++ {
			if err := errors.Join(l.Put(at, src[:1+i*997%100_000]), l.Notify(mem.Remote{Region: at.Region}, i)); err != nil {
				b.ended <- err
				return
			}
		}
	}()
	return b
}

func within[T any](t *testing.T, what string, ch chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not within 20 s", what)
		panic("unreachable")
	}
}

// expectLost sees that both ranks are told that the other is lost.
func (b *busy) expectLost(t *testing.T) {
	t.Helper()
	for rank, told := range b.told {
		err := within(t, "Lost", told)
		if lost := (*link.PeerLostError)(nil); !errors.As(err, &lost) || lost.Rank != 1-rank {
			t.Errorf("rank %d was told %v", rank, err)
		}
	}
}

// expectPath sees that an error names device, port and peer, and is of a status.
func expectPath(t *testing.T, err error, peer int, want ...error) {
	t.Helper()
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Peer == peer {
		return // it befell the other side, which has said so
	}
	var lost *link.PeerLostError
	var path *PathError
	if !errors.As(err, &lost) || lost.Rank != peer || !errors.As(err, &path) || path.Device == "" || path.Port == 0 || path.Peer != peer {
		t.Errorf("got %v", err)
		return
	}
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	if want != nil {
		t.Errorf("got %v, want one of %v", err, want)
	}
}

// TestFailedRequests: whatever a device says of a request, both sides learn of it,
// who waits is released, and all is closed in order.
func TestFailedRequests(t *testing.T) {
	onSimulated(t)
	for _, status := range []verbs.Status{
		verbs.LocalLength, verbs.LocalQPOperation, verbs.LocalProtection, verbs.BadResponse, verbs.LocalAccess, verbs.RemoteInvalidRequest,
		verbs.RemoteAccess, verbs.RemoteOperation, verbs.RetryExceeded, verbs.RNRRetryExceeded, verbs.Fatal, verbs.General,
	} {
		for _, receive := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, receive %v", status, receive), func(t *testing.T) {
				checkLeaks(t)
				b := startBusy(t, Config{})
				if err := simulated.Fail(fakeverbs.Failure{Status: int(status), Nth: 1 + rand.IntN(9), Receive: receive}, fakeverbs.OfProcess(os.Getpid())); err != nil {
					t.Fatal(err)
				}
				err := within(t, "an operation", b.ended)
				expectPath(t, errOfLink(err), 1)
				b.expectLost(t)
			})
		}
	}
}

// errOfLink is the error, in the form of one that ended a link: an operation that
// was the first to see it says the same in fewer words.
func errOfLink(err error) error {
	if lost := (*link.PeerLostError)(nil); errors.As(err, &lost) {
		return err
	}
	return &link.PeerLostError{Rank: 1, Err: err}
}

// deviceIsDead says that fake2 is, in this process.
var deviceIsDead atomic.Bool

// TestEvents: what a device says by itself and does not recover from.
func TestEvents(t *testing.T) {
	onSimulated(t)
	for _, event := range []int{fakeverbs.EventQPFatal, fakeverbs.EventQPAccessErr, fakeverbs.EventDeviceFatal, fakeverbs.EventCQErr} {
		t.Run(verbs.EventType(event).String(), func(t *testing.T) {
			checkLeaks(t)
			cfg, of := Config{}, []fakeverbs.Of{fakeverbs.OfProcess(os.Getpid())}
			if event == fakeverbs.EventDeviceFatal { // one that no other test needs
				if deviceIsDead.Swap(true) {
					t.Skip("the device that this test may break is broken, by a run before in this process")
				}
				cfg.Devices = []string{"fake2"}
				of = append(of, fakeverbs.OfDevice(2))
			}
			b := startBusy(t, cfg)
			if err := simulated.Raise(event, of...); err != nil {
				t.Fatal(err)
			}
			expectPath(t, errOfLink(within(t, "an operation", b.ended)), 1)
			b.expectLost(t)
		})
	}
}

// TestPortDown: for longer than anybody waits, the peers are lost, and the error
// says why; for a moment, nothing is lost.
func TestPortDown(t *testing.T) {
	onSimulated(t)
	t.Run("for good", func(t *testing.T) {
		checkLeaks(t)
		b := startBusy(t, Config{PortGrace: 200 * time.Millisecond})
		if err := simulated.SetPort(fakeverbs.PortDown, fakeverbs.OfProcess(os.Getpid())); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := simulated.SetPort(fakeverbs.PortActive); err != nil {
				t.Error(err)
			}
		}()
		err := within(t, "an operation", b.ended)
		expectPath(t, errOfLink(err), 1)
		if !strings.Contains(err.Error(), "DOWN") && !strings.Contains(err.Error(), "down") {
			t.Errorf("it does not say that the port is down: %v", err)
		}
		b.expectLost(t)
	})
	t.Run("for a moment", func(t *testing.T) {
		checkLeaks(t)
		b := startBusy(t, Config{Timeout: 18})
		for range 3 {
			if err := simulated.SetPort(fakeverbs.PortDown); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			if err := simulated.SetPort(fakeverbs.PortActive); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		select {
		case err := <-b.ended:
			t.Errorf("lost by it: %v", err)
		default:
		}
		if err := b.fabrics[1].Close(); err != nil {
			t.Error(err)
		}
		if err := within(t, "an operation", b.ended); !errors.Is(err, link.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// TestCloseWhileBusy: a peer that closes while it is written to is no peer that
// was lost.
func TestCloseWhileBusy(t *testing.T) {
	for range 10 {
		checkLeaks(t)
		b := startBusy(t, Config{QueuePairs: 2})
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		if err := b.fabrics[1].Close(); err != nil {
			t.Error(err)
		}
		if err := within(t, "an operation", b.ended); !errors.Is(err, link.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if err := within(t, "Lost", b.told[0]); !errors.Is(err, link.ErrClosed) {
			t.Errorf("told %v", err)
		}
		if err := b.fabrics[0].Close(); err != nil {
			t.Error(err)
		}
	}
}

// freePort returns a port of the loopback interface.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// spawn starts the two ranks of a job as processes.
func spawn(t *testing.T, job string, env ...string) [2]*exec.Cmd {
	t.Helper()
	port := freePort(t)
	var cmds [2]*exec.Cmd
	for rank := range cmds {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "TUTTI_RC_CHILD="+job, fmt.Sprintf("RANK=%d", rank), "WORLD_SIZE=2",
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, VarDevices+"="+devices(t)[0])
		c.Env = append(c.Env, env...)
		c.Stderr = os.Stderr
		cmds[rank] = c
	}
	return cmds
}

// TestProcesses: puts and notifications at random between processes.
func TestProcesses(t *testing.T) {
	cmds := spawn(t, "play")
	var wg sync.WaitGroup
	for rank, c := range cmds {
		wg.Go(func() {
			if err := c.Run(); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
}

// TestKilled: a peer is killed at any moment, also while it connects or closes;
// the other one ends with an error that says so, or by itself.
func TestKilled(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		after := time.Duration(rand.IntN(1200)) * time.Millisecond
		cmds := spawn(t, "survive")
		for rank, c := range cmds {
			if err := c.Start(); err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
		time.Sleep(after)
		_ = cmds[1].Process.Signal(syscall.SIGKILL) // it may have ended
		_ = cmds[1].Wait()                          // it was killed
		ended := make(chan error, 1)
		go func() { ended <- cmds[0].Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("killed after %v: %v", after, err)
			}
		case <-time.After(60 * time.Second):
			_ = cmds[0].Process.Signal(syscall.SIGQUIT)
			t.Fatalf("killed after %v: the other hangs", after)
		}
	}
}

// playJob is a rank of TestProcesses.
func playJob(ctx context.Context) error {
	p, err := join(ctx, 0)
	if err != nil {
		return err
	}
	player, err := newPlayer(ctx, p.fabric, 1-p.rank, 300_000)
	if err == nil {
		err = player.play(ctx, p.rank, uint64(number("TUTTI_RC_SEED", 1)), 300_000, number("TUTTI_RC_BATCHES", 100))
	}
	return errors.Join(err, p.leave(ctx))
}

// surviveJob plays until the peer is lost, which is well, or both are done.
func surviveJob(ctx context.Context) error {
	p, err := join(ctx, 0)
	if err == nil {
		var player *player
		if player, err = newPlayer(ctx, p.fabric, 1-p.rank, 300_000); err == nil {
			err = player.play(ctx, p.rank, 1, 300_000, 1000)
		}
		err = errors.Join(err, p.leave(ctx))
	}
	if err == nil {
		return nil
	}
	// In the bootstrap it is the bootstrap's to say; later it must be ours.
	var lost *link.PeerLostError
	if p != nil && !errors.As(err, &lost) && !errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() != nil {
		return fmt.Errorf("an error that does not say that a peer was lost: %w", err)
	}
	if ctx.Err() != nil {
		return err
	}
	if live := verbs.Live(); p != nil && live != (verbs.Census{}) {
		return fmt.Errorf("after %w: left open: %v", err, live)
	}
	return nil
}
