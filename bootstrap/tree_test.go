package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"testing"
	"time"
)

// rounds counts the rounds of an AllGather: in one a rank sends or takes one
// message, and a message takes one round.
type rounds struct {
	mu       sync.Mutex
	clock    []int // by rank: the rounds that it has been through
	sent     map[[2]int]int
	messages int
}

func newRounds(size int) *rounds { return &rounds{clock: make([]int, size), sent: map[[2]int]int{}} }

func (r *rounds) hear(sent bool, _ byte, from, to int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent {
		r.clock[from]++
		r.sent[[2]int{from, to}] = r.clock[from]
		r.messages++
		return
	}
	r.clock[to] = max(r.clock[to]+1, r.sent[[2]int{from, to}])
}

// check is whether the rounds since the last check are as few as can be.
func (r *rounds) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	size, most := len(r.clock), 0
	for _, c := range r.clock {
		most = max(most, c)
	}
	if want := 2 * bits.Len(uint(size-1)); most > want || r.messages != 2*(size-1) {
		t.Errorf("%d ranks: %d rounds of %d messages, want at most %d of %d", size, most, r.messages, want, 2*(size-1))
	}
	r.messages = 0
	clear(r.clock)
	clear(r.sent)
}

// TestRounds: an AllGather of n ranks takes at most 2⌈log₂ n⌉ rounds, over
// n-1 connections, also of 1024 ranks in one process, which arrive in an order
// of chance.
func TestRounds(t *testing.T) {
	sizes := []int{2, 3, 7, 8, 33, 1024}
	if testing.Short() {
		sizes[len(sizes)-1] = 200
	}
	for _, size := range sizes {
		o := options(t, size, "127.0.0.1")
		o.Secret = testSecret
		r := newRounds(size)
		nodes := make([]*node, size)
		o.joined = func(n *node) { n.trace, nodes[n.rank] = r.hear, n }
		all := form(t, o)
		for turn := range 3 {
			err := everywhere(all, func(x Exchanger) error {
				got, err := x.AllGather(t.Context(), binary.AppendUvarint(nil, uint64(x.Rank()*10+turn)))
				for rank, b := range got {
					if v, _ := binary.Uvarint(b); int(v) != rank*10+turn {
						return fmt.Errorf("rank %d, turn %d: %d of rank %d", x.Rank(), turn, v, rank)
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			r.check(t)
		}
		links := 0
		for _, n := range nodes {
			n.mu.Lock()
			links += len(n.links)
			n.mu.Unlock()
		}
		if links != 2*(size-1) {
			t.Errorf("%d ranks hold %d ends of connections, want %d", size, links, 2*(size-1))
		}
		closeAll(all)
	}
}

// everywhere runs f as every rank and returns their first error.
func everywhere(all []Exchanger, f func(x Exchanger) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() { errs[i] = f(x) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func closeAll(all []Exchanger) {
	for _, x := range all {
		if x != nil {
			x.Close()
		}
	}
}

// within fails the test if what is told takes more than a time that is far
// beyond what it should.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: nothing after 20 s", what)
	}
}

// cut ends a rank's connections as the end of its process would.
func cut(x Exchanger) {
	n := x.(*node)
	n.mu.Lock()
	n.shut = true // what follows is no news to the rank itself
	for _, l := range n.links {
		l.conn.Close()
	}
	n.mu.Unlock()
}

// TestDeathIsToldToAll: whichever rank dies, all others learn which it was.
func TestDeathIsToldToAll(t *testing.T) {
	const size = 9
	for dead := range size {
		all := form(t, options(t, size, "127.0.0.1"))
		cut(all[dead])
		for _, x := range all {
			if x.Rank() == dead {
				continue
			}
			within(t, "the death of a rank", x.Done())
			var lost *LostError
			if err := x.Err(); !errors.As(err, &lost) || lost.Rank != dead {
				t.Errorf("rank %d of the death of %d: %v", x.Rank(), dead, err)
			}
			if _, err := x.AllGather(t.Context(), nil); !errors.As(err, &lost) || lost.Rank != dead {
				t.Errorf("rank %d calls after the death of %d: %v", x.Rank(), dead, err)
			}
		}
		closeAll(all)
	}
}

// TestFirstCauseIsKept: what fails later is not what is told.
func TestFirstCauseIsKept(t *testing.T) {
	all := form(t, options(t, 4, "127.0.0.1"))
	defer closeAll(all)
	cut(all[2])
	for _, r := range []int{0, 1, 3} {
		within(t, "a death", all[r].Done())
	}
	cut(all[1])
	for _, r := range []int{0, 3} {
		var lost *LostError
		if err := all[r].Err(); !errors.As(err, &lost) || lost.Rank != 2 {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestLeaveWhileOthersWait: whichever rank leaves, those that wait for it hear
// which it was.
func TestLeaveWhileOthersWait(t *testing.T) {
	const size = 8
	for leaver := range size {
		all := form(t, options(t, size, "127.0.0.1"))
		err := everywhere(all, func(x Exchanger) error {
			_, err := x.AllGather(t.Context(), nil)
			if err == nil && x.Rank() == leaver {
				return x.Close()
			}
			if err == nil { // else others have found out before the round came here
				_, err = x.AllGather(t.Context(), nil)
			}
			if !errors.Is(err, ErrLeft) {
				return fmt.Errorf("rank %d, when %d has left: %w", x.Rank(), leaver, err)
			}
			if want := fmt.Sprintf("rank %d left", leaver); !strings.Contains(err.Error(), want) {
				return fmt.Errorf("rank %d is told %w, want %q", x.Rank(), err, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		closeAll(all)
	}
}

// TestLeaveBetweenRounds: a rank that all are done with may go, and is neither
// dead nor waited for; who has the last round still gets it.
func TestLeaveBetweenRounds(t *testing.T) {
	for range 20 {
		all := form(t, options(t, 13, "127.0.0.1"))
		err := everywhere(all, func(x Exchanger) error {
			for range 3 {
				if _, err := x.AllGather(t.Context(), make([]byte, 10000)); err != nil {
					return fmt.Errorf("rank %d: %w", x.Rank(), err)
				}
			}
			return x.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			if err := x.Err(); !errors.Is(err, ErrClosed) {
				t.Errorf("rank %d: %v", x.Rank(), err)
			}
		}
	}
}

// TestGivingUpIsTold: a rank whose context ends takes the others with it.
func TestGivingUpIsTold(t *testing.T) {
	all := form(t, options(t, 6, "127.0.0.1"))
	defer closeAll(all)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var wait *WaitError
	if _, err := all[4].AllGather(ctx, nil); !errors.As(err, &wait) || wait.Rank != 4 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 5") {
		t.Errorf("rank 4: %v", err)
	}
	for _, r := range []int{0, 1, 2, 3, 5} {
		within(t, "giving up", all[r].Done())
		var job *JobError
		if err := all[r].Err(); !errors.As(err, &job) || job.Rank != 4 {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestStoppedReader: a rank that does not read holds nobody beyond the
// deadline, and does not keep the others from being told.
func TestStoppedReader(t *testing.T) {
	all := form(t, options(t, 4, "127.0.0.1"))
	defer closeAll(all)
	stuck := all[2].(*node)
	stuck.mu.Lock() // its readers come to a halt at the first frame
	release := sync.OnceFunc(stuck.mu.Unlock)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := everywhere([]Exchanger{all[0], all[1], all[3]}, func(x Exchanger) error {
		_, err := x.AllGather(ctx, make([]byte, MaxBlob))
		if err == nil {
			return fmt.Errorf("rank %d: an AllGather without rank 2", x.Rank())
		}
		select {
		case <-x.Done():
			return nil
		case <-time.After(20 * time.Second):
			return fmt.Errorf("rank %d is not done", x.Rank())
		}
	})
	if err != nil {
		t.Error(err)
	}
	release()
}
