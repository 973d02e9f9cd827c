package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// TestManyInFlight: more calls are issued than may be in flight, of all kinds,
// and each finds what the one before has left; a call that blocks waits for all.
func TestManyInFlight(t *testing.T) {
	const n, calls = 3, 700
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			j := open(t, m, n, "", nil, 1)
			bufs := j.buffers(t, 40_000, true)
			onEveryRank(t, n, func(r int) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				x := mem.Slice[int32](bufs[r])
				for i := range x {
					x[i] = 1
				}
				all := make([]int32, n)
				var works []engine.Work
				for i := range calls {
					part := mem.Bytes(x[:1+i*31%len(x)])
					var w engine.Work
					var err error
					switch i % 4 {
					case 0: // of what is the same on all ranks
						w, err = j[r].AllReduceAsync(ctx, part, part, mem.I32, mem.Max)
					case 1:
						w, err = j[r].BroadcastAsync(ctx, part, part, mem.I32, i%n)
					case 2:
						w, err = j[r].AllGatherAsync(ctx, mem.Bytes(x[:1]), mem.Bytes(all), mem.I32)
					case 3:
						w, err = j[r].AllReduceAsync(ctx, mem.Bytes(x[:1]), mem.Bytes(x[:1]), mem.U32, mem.Sum)
					}
					if err != nil {
						return err
					}
					works = append(works, w)
				}
				if err := j[r].Barrier(ctx); err != nil {
					return err
				}
				want := uint32(1)
				for range calls / 4 {
					want *= n
				}
				if got := uint32(x[0]); got != want {
					return fmt.Errorf("%d, want %d", got, want)
				}
				for i, w := range works {
					if !w.Done() || w.Err() != nil || w.Wait(ctx) != nil {
						return fmt.Errorf("call %d is not done after one that blocks: %w", i, w.Err())
					}
				}
				return nil
			})
		})
	}
}

// TestIssueOrder: calls run one after the other as they were issued.
func TestIssueOrder(t *testing.T) {
	const n, calls = 3, 300
	j := open(t, media[0], n, "", nil, 1)
	onEveryRank(t, n, func(r int) error {
		x := []int64{int64(r)}
		want := int64(0 + 1 + 2) // the sum, then again and again twice that and one
		var last engine.Work
		var err error
		for i := range calls {
			op := mem.Max
			if i%10 == 0 {
				op = mem.Sum
			}
			if last, err = j[r].AllReduceAsync(t.Context(), mem.Bytes(x), mem.Bytes(x), mem.I64, op); err != nil {
				return err
			}
			if i > 0 && i%10 == 0 {
				want *= n
			}
		}
		if err := last.Wait(t.Context()); err != nil {
			return err
		}
		if x[0] != want {
			return fmt.Errorf("%d, want %d", x[0], want)
		}
		return nil
	})
}

// TestSyncMeetsAsync: some ranks issue a call asynchronously that others make
// in the blocking form, at every size.
func TestSyncMeetsAsync(t *testing.T) {
	const n = 3
	for _, m := range media {
		for _, size := range []int{8, 4096, 16 << 10, 32 << 10, 64 << 10} {
			for _, registered := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%d/%v", m.name, size, registered), func(t *testing.T) {
					j := open(t, m, n, "", nil, 1)
					bufs := j.buffers(t, size, registered)
					onEveryRank(t, n, func(r int) error {
						ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
						defer cancel()
						for i := range 12 {
							var err error
							if i > 3 && i%n == r {
								err = waited(j[r].AllReduceAsync(ctx, bufs[r], bufs[r], mem.F32, mem.Max))
							} else {
								err = j[r].AllReduce(ctx, bufs[r], bufs[r], mem.F32, mem.Max)
							}
							if err != nil {
								return fmt.Errorf("call %d: %w", i, err)
							}
						}
						return nil
					})
				})
			}
		}
	}
}

// TestErrorOfWork: it is told by the work that failed and by all later ones,
// not by earlier ones; and as often as one asks.
func TestErrorOfWork(t *testing.T) {
	for _, size := range []int{8, 1 << 20} {
		j := open(t, media[0], 2, "", nil, 1)
		bufs := j.buffers(t, size, true)
		onEveryRank(t, 2, func(r int) error {
			good, err := j[r].BarrierAsync(t.Context())
			if err != nil {
				return err
			}
			bad, err := j[r].AllReduceAsync(t.Context(), bufs[r], bufs[r], mem.F32, []mem.Op{mem.Sum, mem.Max}[r])
			if err != nil {
				return err
			}
			var mismatch *engine.MismatchError
			for range 2 {
				if err := bad.Wait(t.Context()); !errors.As(err, &mismatch) || !errors.Is(bad.Err(), err) {
					return fmt.Errorf("the bad one: %w", err)
				}
			}
			if err := good.Wait(t.Context()); err != nil || good.Err() != nil {
				return fmt.Errorf("the good one: %w", err)
			}
			if _, err := j[r].BarrierAsync(t.Context()); !errors.As(err, &mismatch) {
				return fmt.Errorf("issuing after a failure: %w", err)
			}
			if err := j[r].Barrier(t.Context()); !errors.As(err, &mismatch) {
				return fmt.Errorf("a blocking call after a failure: %w", err)
			}
			return nil
		})
	}
}

// TestAsyncArguments are told when the call is issued, and nothing has moved.
func TestAsyncArguments(t *testing.T) {
	const n = 2
	j := open(t, media[1], n, "", nil, 1)
	ctx, b := t.Context(), mem.Bytes(make([]uint64, 8))
	for name, issue := range map[string]func(c *engine.Comm) (engine.Work, error){
		"root":    func(c *engine.Comm) (engine.Work, error) { return c.BroadcastAsync(ctx, b, b, mem.F32, n) },
		"counts":  func(c *engine.Comm) (engine.Work, error) { return c.AllGatherVAsync(ctx, b, b, nil, mem.F32) },
		"overlap": func(c *engine.Comm) (engine.Work, error) { return c.AllToAllAsync(ctx, b, b, mem.F32) },
		"rank":    func(c *engine.Comm) (engine.Work, error) { return c.SendAsync(ctx, b, mem.F32, n) },
		"wire": func(c *engine.Comm) (engine.Work, error) {
			return c.AllReduceOverAsync(ctx, engine.Wire(77), b, b, mem.Sum)
		},
	} {
		var arg *engine.ArgumentError
		if w, err := issue(j[0]); !errors.As(err, &arg) || w.Wait(ctx) != nil {
			t.Errorf("%s: %v, want an ArgumentError and no work", name, err)
		}
	}
	j.checkSum(t, 64, false, true, false)
}

// TestContextOfWait ends the wait alone; that of the call ends the call.
func TestContextOfWait(t *testing.T) {
	j := open(t, media[0], 2, "", nil, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	w, err := j[0].BarrierAsync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || w.Done() || w.Err() != nil {
		t.Errorf("the first wait: %v", err)
	}
	if err := j[1].Barrier(t.Context()); err != nil {
		t.Error(err)
	}
	if err := w.Wait(t.Context()); err != nil {
		t.Errorf("the second wait: %v", err)
	}
	callCtx, end := context.WithCancelCause(t.Context())
	if w, err = j[0].BarrierAsync(callCtx); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	end(cause)
	var call *engine.CallError
	if err := w.Wait(t.Context()); !errors.Is(err, cause) || !errors.As(err, &call) {
		t.Errorf("got %v, want a CallError with the cause", err)
	}
}

// TestDeadlineBehindWork: a blocking call, and one for which there is no room,
// wait for work that hangs no longer than their ctx says; all then fails.
func TestDeadlineBehindWork(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *engine.Comm) error{
		"blocking": func(ctx context.Context, c *engine.Comm) error { return c.Barrier(ctx) },
		"small": func(ctx context.Context, c *engine.Comm) error {
			return c.AllReduce(ctx, make([]byte, 8), make([]byte, 8), mem.F32, mem.Sum)
		},
		"message": func(ctx context.Context, c *engine.Comm) error { return c.Send(ctx, make([]byte, 8), mem.F32, 1) },
		"exchange": func(ctx context.Context, c *engine.Comm) error {
			return c.NewExchange().Run(ctx)
		},
		"issuing": func(ctx context.Context, c *engine.Comm) error {
			for range 1000 {
				if _, err := c.BarrierAsync(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := open(t, media[0], 2, "", nil, 1)
			hangs, err := j[0].BarrierAsync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			var failure *engine.CallError
			if err := call(ctx, j[0]); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &failure) {
				t.Errorf("got %v", err)
			}
			if err := hangs.Wait(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("what it waited for: %v", err)
			}
			if err := j[0].Barrier(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// TestCloseWithWorkInFlight: all of it ends, and so do the goroutines.
func TestCloseWithWorkInFlight(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			before := engineGoroutines()
			j := open(t, m, 2, "", nil, 3)
			bufs := j.buffers(t, 1<<20, true)
			var works []engine.Work
			for range 20 {
				w, err := j[0].AllReduceAsync(t.Context(), bufs[0], bufs[0], mem.F32, mem.Sum)
				if err != nil {
					t.Fatal(err)
				}
				works = append(works, w)
			}
			time.Sleep(5 * time.Millisecond)
			if err := j[0].Close(); err != nil {
				t.Error(err)
			}
			for i, w := range works {
				var call *engine.CallError
				if err := w.Err(); !w.Done() || !errors.Is(err, link.ErrClosed) || !errors.As(err, &call) {
					t.Fatalf("work %d after Close: %v", i, err)
				}
			}
			if _, err := j[0].BarrierAsync(t.Context()); !errors.Is(err, link.ErrClosed) {
				t.Errorf("issuing after Close: %v", err)
			}
			if err := j[1].Close(); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(10 * time.Second); engineGoroutines() > before; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d goroutines of the engine, %d before", engineGoroutines(), before)
				}
			}
		})
	}
}

// engineGoroutines counts the workers and helpers that run.
func engineGoroutines() int {
	stacks := make([]byte, 1<<20)
	s := string(stacks[:runtime.Stack(stacks, true)])
	return strings.Count(s, "(*worker).serve(") + strings.Count(s, "(*team).serve(")
}
