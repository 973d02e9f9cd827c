package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kinds makes the exchangers of a job in every way that there is, within one
// process.
var kinds = map[string]func(t *testing.T, size int) []Exchanger{
	"memory": func(_ *testing.T, size int) []Exchanger { return Memory(size) },
	"sockets": func(t *testing.T, size int) []Exchanger {
		ours := make([]net.Conn, size)
		all := make([]Exchanger, size)
		for i := range all {
			conn, file, err := socketPair()
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := net.FileConn(file)
			file.Close()
			if err != nil {
				t.Fatal(err)
			}
			ours[i], all[i] = conn, newRank(i, size, theirs)
		}
		h := newHub(ours, func(rank int, err error) {
			if !errors.Is(err, ErrLeft) { // some tests give up in the middle
				t.Errorf("rank %d: %v", rank, err)
			}
		})
		t.Cleanup(h.close)
		return all
	},
	"tree over IPv4": func(t *testing.T, size int) []Exchanger { return form(t, options(t, size, "127.0.0.1")) },
	"tree over IPv6": func(t *testing.T, size int) []Exchanger { return form(t, options(t, size, "::1")) },
	"tree over local sockets, with a secret": func(t *testing.T, size int) []Exchanger {
		o := options(t, size, "unix")
		o.Secret = testSecret
		return form(t, o)
	},
}

func TestConformance(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Run("rounds", func(t *testing.T) { conformRounds(t, open) })
			t.Run("ownership", func(t *testing.T) { conformOwnership(t, open(t, 2)) })
			t.Run("deadline", func(t *testing.T) { conformDeadline(t, open(t, 2)) })
			t.Run("close", func(t *testing.T) { conformClose(t, open(t, 2)) })
			t.Run("limits", func(t *testing.T) { conformLimits(t, open(t, 2)) })
		})
	}
}

func conformRounds(t *testing.T, open func(*testing.T, int) []Exchanger) {
	for _, size := range []int{1, 2, 3, 9} {
		all := open(t, size)
		err := everywhere(all, func(x Exchanger) error {
			if x.Size() != size || all[x.Rank()] != x {
				return fmt.Errorf("rank %d of %d, want %d", x.Rank(), x.Size(), size)
			}
			if a := x.(Addresser).Address(); !a.IsLoopback() {
				return fmt.Errorf("rank %d is at %v, where all share a machine", x.Rank(), a)
			}
			if local := x.(LocalRanker).LocalRank(); local != -1 && local != x.Rank() {
				return fmt.Errorf("rank %d is local rank %d", x.Rank(), local)
			}
			for turn := range 30 {
				got, err := x.AllGather(t.Context(), bytes.Repeat([]byte{byte(x.Rank()), byte(turn)}, turn*turn))
				if err != nil {
					return err
				}
				for rank, b := range got {
					if !bytes.Equal(b, bytes.Repeat([]byte{byte(rank), byte(turn)}, turn*turn)) {
						return fmt.Errorf("rank %d, turn %d: %d bytes of rank %d are not what it sent", x.Rank(), turn, len(b), rank)
					}
				}
			}
			return x.Err()
		})
		if err != nil {
			t.Errorf("%d ranks: %v", size, err)
		}
		closeAll(all)
	}
}

// conformOwnership: a rank may write to what it sent and to what it got.
func conformOwnership(t *testing.T, all []Exchanger) {
	defer closeAll(all)
	err := everywhere(all, func(x Exchanger) error {
		mine := []byte{byte(x.Rank())}
		for range 20 {
			got, err := x.AllGather(t.Context(), mine)
			if err != nil {
				return err
			}
			if got[0][0] != 0 || got[1][0] != 1 {
				return fmt.Errorf("rank %d sees a peer's scribbling: %v", x.Rank(), got)
			}
			got[0][0], got[1][0] = 77, 78
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func conformDeadline(t *testing.T, all []Exchanger) {
	defer closeAll(all)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := all[0].AllGather(ctx, []byte("alone")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("alone: %v", err)
	}
	<-all[0].Done()
	if _, err := all[0].AllGather(t.Context(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after it: %v, want the first cause", err)
	}
}

func conformClose(t *testing.T, all []Exchanger) {
	select {
	case <-all[0].Done():
		t.Error("done before anything happened")
	default:
	}
	if err := all[0].Err(); err != nil {
		t.Errorf("an error before anything happened: %v", err)
	}
	told := make(chan error)
	go func() {
		_, err := all[0].AllGather(t.Context(), nil)
		told <- err
	}()
	time.Sleep(5 * time.Millisecond)
	closeAll(all[:1])
	if err := <-told; !errors.Is(err, ErrClosed) {
		t.Errorf("a call during Close: %v", err)
	}
	<-all[0].Done()
	if err := all[0].Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if _, err := all[0].AllGather(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
	closeAll(all)
}

func conformLimits(t *testing.T, all []Exchanger) {
	defer closeAll(all)
	if _, err := all[0].AllGather(t.Context(), make([]byte, MaxBlob+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	err := everywhere(all, func(x Exchanger) error {
		got, err := x.AllGather(t.Context(), make([]byte, MaxBlob))
		if err == nil && (len(got[0]) != MaxBlob || len(got[1]) != MaxBlob) {
			err = fmt.Errorf("%d and %d bytes", len(got[0]), len(got[1]))
		}
		return err
	})
	if err != nil {
		t.Errorf("the largest blob: %v", err)
	}
}

// TestStoppedParentEndsWithContext: a parent that does not read must not hold
// a rank beyond its deadline.
func TestStoppedParentEndsWithContext(t *testing.T) {
	ours, theirs := net.Pipe() // holds nothing: the write blocks
	defer ours.Close()
	r := newRank(0, 1, theirs)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.AllGather(ctx, make([]byte, 100)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestStoppedRank: a rank that is stopped, with its socket full, neither keeps
// the others from being told nor the job from ending.
func TestStoppedRank(t *testing.T) {
	began := time.Now()
	var e *RankError
	if err := launch(t, 3, "stopped"); !errors.As(err, &e) || e.Rank != 0 || e.ExitCode != 4 {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 5*grace {
		t.Errorf("took %v", took)
	}
}

// playStopped: rank 1 stops itself before it reads a large result; rank 0 then
// fails.
func playStopped(x Exchanger) int {
	blob := make([]byte, MaxBlob)
	if x.Rank() == 1 {
		_ = writeFrame(x.(*rank).conn, frameGather, blob)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		return 0
	}
	if _, err := x.AllGather(context.Background(), blob); err != nil {
		return 0 // the hub may have stuck at rank 1 before it came to us
	}
	if x.Rank() == 0 {
		return 4
	}
	<-x.Done()
	return 0
}

func TestNothingLeaks(t *testing.T) {
	if err := launch(t, 2, "gather"); err != nil { // whatever is opened once is open now
		t.Fatal(err)
	}
	fds, goroutines := openFiles(t), runtime.NumGoroutine()
	for _, role := range []string{"gather", "die", "nonsense", "killed"} {
		_ = launch(t, 3, role)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		nowFiles, now := openFiles(t), runtime.NumGoroutine()
		if len(nowFiles) <= len(fds) && now <= goroutines {
			return
		}
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("before: %d goroutines, files %v\nafter: %d goroutines, files %v\n%s",
				goroutines, fds, now, nowFiles, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// openFiles lists what this process has open, but for what the runtime opens
// at times.
func openFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(target, "/proc/") && !strings.Contains(target, "anon_inode") && !strings.Contains(target, "cgroup") {
			open = append(open, target)
		}
	}
	return open
}
