package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/shm"
	"github.com/tutti-go/tutti/tune"
)

// TestMismatchIsTold: ranks that call different things learn what the others
// called, at every size.
func TestMismatchIsTold(t *testing.T) {
	type call struct {
		bytes int
		op    mem.Op
	}
	// Of each pair, ranks 0 and 1 make the first. The sizes are on all sides of
	// where calls begin to meet before they move anything, and to use plans.
	for _, calls := range [][2]call{
		{{1 << 20, mem.Sum}, {1 << 19, mem.Sum}},
		{{1 << 20, mem.Sum}, {1 << 20, mem.Max}},
		{{4096, mem.Sum}, {8, mem.Sum}},
		{{1 << 20, mem.Sum}, {8, mem.Sum}},
		{{8, mem.Sum}, {1 << 20, mem.Sum}},
		{{16 << 10, mem.Sum}, {8, mem.Sum}},
		{{16 << 10, mem.Sum}, {1 << 20, mem.Sum}},
		{{16, mem.Sum}, {8, mem.Sum}},
		{{8, mem.Sum}, {8, mem.Max}},
	} {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			j := open(t, media[0], 3, "", nil, 1)
			bufs := j.buffers(t, 1<<20, true)
			errs := errorsOf(3, func(r int) error {
				c := calls[r/2]
				return j[r].AllReduce(t.Context(), bufs[r][:c.bytes], bufs[r][:c.bytes], mem.F32, c.op)
			})
			for r, err := range errs {
				var mismatch *engine.MismatchError
				if !errors.As(err, &mismatch) {
					t.Errorf("rank %d: %v, want a MismatchError", r, err)
					continue
				}
				other := calls[1-r/2]
				want := engine.Signature{Call: "allreduce", Bytes: other.bytes, Type: mem.F32, Op: other.op, Root: -1}
				if mismatch.Theirs != want {
					t.Errorf("rank %d says of rank %d: %v, want %v", r, mismatch.Rank, mismatch.Theirs, want)
				}
			}
		})
	}
}

// TestVectorAgainstUniform: a rank that makes a v form and one that makes the
// other form of the same collective learn of each other.
func TestVectorAgainstUniform(t *testing.T) {
	for _, size := range []int{8, 16 << 10, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			j := open(t, media[0], 2, "", nil, 1)
			in, out := j.buffers(t, size, true), j.buffers(t, 2*size, true)
			errs := errorsOf(2, func(r int) error {
				if r == 0 {
					return j[r].AllGather(t.Context(), in[r], out[r], mem.F32)
				}
				return j[r].AllGatherV(t.Context(), in[r], out[r], []int{size / 4, size / 4}, mem.F32)
			})
			for r, err := range errs {
				var mismatch *engine.MismatchError
				if !errors.As(err, &mismatch) || mismatch.Rank != 1-r || mismatch.Mine.Call == mismatch.Theirs.Call {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestRanksThatWouldChooseOtherwise do not become a job.
func TestRanksThatWouldChooseOtherwise(t *testing.T) {
	for name, adjust := range map[string]func(c *engine.Config){
		"cores":   func(c *engine.Config) { c.Cores = 1 + c.Rank },
		"sharers": func(c *engine.Config) { c.Sharers = 1 + c.Rank },
		"nodes":   func(c *engine.Config) { c.Nodes = plan.Nodes{0, c.Rank} },
		"rules":   func(c *engine.Config) { c.Rules = []string{"auto", "ring"}[c.Rank] },
	} {
		t.Run(name, func(t *testing.T) {
			ex := bootstrap.Memory(2)
			fabrics := media[0].open(t, ex)
			for r, err := range errorsOf(2, func(r int) error {
				cfg := engine.Config{Rank: r, Size: 2, Exchanger: ex[r], Fabric: fabrics[r], Plan: algo.NewOver, Choose: tune.Choose}
				adjust(&cfg)
				_, err := engine.New(t.Context(), cfg)
				return err
			}) {
				if err == nil || !strings.Contains(err.Error(), "all ranks must be given the same") {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestMissingRank: a rank that never calls leaves the others with their
// deadline, and with a communicator that says so ever after.
func TestMissingRank(t *testing.T) {
	for _, m := range media {
		for _, size := range []int{8, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", m.name, size), func(t *testing.T) {
				j := open(t, m, 3, "", nil, 1)
				bufs := j.buffers(t, size, true)
				errs := errorsOf(2, func(r int) error {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					return j[r].AllReduce(ctx, bufs[r], bufs[r], mem.F32, mem.Sum)
				})
				for r, err := range errs {
					var call *engine.CallError
					if !errors.As(err, &call) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("rank %d: %v", r, err)
						continue
					}
					if again := j[r].Barrier(t.Context()); !errors.Is(again, context.DeadlineExceeded) {
						t.Errorf("rank %d goes on after a failed call: %v", r, again)
					}
				}
			})
		}
	}
}

func TestAbortFreesWaiters(t *testing.T) {
	j := open(t, media[0], 2, "", nil, 1)
	cause := errors.New("enough")
	got := make(chan error, 1)
	go func() { got <- j[0].Barrier(t.Context()) }()
	time.Sleep(20 * time.Millisecond)
	j[0].Abort(cause)
	select {
	case err := <-got:
		if !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting 10 s after Abort")
	}
}

func TestCloseFreesPeers(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			j := open(t, m, 2, "", nil, 1)
			got := make(chan error, 1)
			go func() { got <- j[0].Barrier(t.Context()) }()
			time.Sleep(20 * time.Millisecond)
			if err := j[1].Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-got:
				if !errors.Is(err, link.ErrClosed) {
					t.Errorf("got %v, want ErrClosed", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("still waiting 10 s after the peer closed")
			}
		})
	}
}

// TestCloseBesideACall ends the call and leaves the memory it may be in.
func TestCloseBesideACall(t *testing.T) {
	if raceEnabled {
		t.Skip("a race by intent: the check is not meant to be exact")
	}
	j := open(t, media[0], 2, "", nil, 1)
	got := make(chan error, 1)
	go func() { got <- j[0].Barrier(t.Context()) }()
	time.Sleep(20 * time.Millisecond)
	if err := j[0].Close(); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("Close beside a call: %v, want ErrBusy", err)
	}
	if err := <-got; !errors.Is(err, link.ErrClosed) {
		t.Errorf("the call: %v, want ErrClosed", err)
	}
}

// TestLastCallSurvivesClose: a rank may close as soon as its last call has
// returned, however far behind the others are.
func TestLastCallSurvivesClose(t *testing.T) {
	const n, rounds = 5, 5
	for _, m := range media {
		for _, name := range append(algo.Names(plan.AllReduce), "", "barrier") {
			forced := name
			if name == "barrier" {
				forced = ""
			}
			if needsMapping(forced, m, n, true, false) {
				continue
			}
			t.Run(m.name+"/"+name, func(t *testing.T) {
				for range rounds {
					j := open(t, m, n, forced, nil, 1)
					bufs := j.buffers(t, 1<<17, true)
					onEveryRank(t, n, func(r int) error {
						var err error
						if name == "barrier" {
							err = j[r].Barrier(t.Context())
						} else {
							err = j[r].AllReduce(t.Context(), bufs[r], bufs[r], mem.F32, mem.Sum)
						}
						return errors.Join(err, j[r].Close())
					})
				}
			})
		}
	}
}

// TestScratchBetweenCalls: calls of unlike sizes, each of many tiles, follow
// each other and the end of the communicator without a pause.
func TestScratchBetweenCalls(t *testing.T) {
	const calls, rounds, most = 20, 2, 5_000
	for _, m := range media {
		for _, name := range algo.Names(plan.AllReduce) {
			for _, n := range []int{2, 3} {
				if needsMapping(name, m, n, false, false) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", m.name, name, n), func(t *testing.T) {
					for range rounds {
						j := open(t, m, n, name, func(c *tune.Choice) { c.TileBytes = 512 }, 1)
						onEveryRank(t, n, func(r int) error {
							x := make([]int32, most)
							for call := range calls {
								part := x[:1+call*7919%most]
								for i := range part {
									part[i] = int32(i + r + call)
								}
								if err := j[r].AllReduce(t.Context(), mem.Bytes(part), mem.Bytes(part), mem.I32, mem.Sum); err != nil {
									return err
								}
								for i, v := range part {
									if want := int32(n*(i+call) + n*(n-1)/2); v != want {
										return fmt.Errorf("call %d: element %d is %d, want %d", call, i, v, want)
									}
								}
							}
							return j[r].Close()
						})
					}
				})
			}
		}
	}
}

// TestEveryLaterErrorIsACallError, whatever came first.
func TestEveryLaterErrorIsACallError(t *testing.T) {
	j := open(t, media[0], 2, "", nil, 1)
	if err := j[1].Close(); err != nil {
		t.Fatal(err)
	}
	for i, c := range []*engine.Comm{j[0], j[0], j[1]} {
		var call *engine.CallError
		if err := c.Barrier(t.Context()); !errors.As(err, &call) || call.Rank != i/2 || !errors.Is(err, link.ErrClosed) {
			t.Errorf("call %d: %v, want a CallError of rank %d that is ErrClosed", i, err, i/2)
		}
	}
}

// TestEndedContext: nothing that takes long begins with a context that ended.
func TestEndedContext(t *testing.T) {
	j := open(t, media[0], 2, "", nil, 1)
	bufs := j.buffers(t, 1<<20, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for r, err := range errorsOf(2, func(r int) error {
		return j[r].AllReduce(ctx, bufs[r], bufs[r], mem.F32, mem.Sum)
	}) {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, link.ErrClosed) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// freeWatcher counts what is really freed.
type freeWatcher struct {
	*shm.Fabric
	freed atomic.Int32
}

func (f *freeWatcher) Alloc(bytes int) (*mem.Buffer, error) {
	b, err := f.Fabric.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return mem.NewBuffer(b.Region(), b.Bytes(), func() error { f.freed.Add(1); return b.Free() }), nil
}

// watched is shm whose rank 0 counts what it frees.
func watched(watcher **freeWatcher) medium {
	return medium{"shm", true, nil, func(t *testing.T, ex []bootstrap.Exchanger) []link.Fabric {
		fabrics := media[0].open(t, ex)
		*watcher = &freeWatcher{Fabric: fabrics[0].(*shm.Fabric)}
		fabrics[0] = *watcher
		return fabrics
	}}
}

// TestFreeAfterFailure: a rank whose call failed may free its buffers at once,
// but a slow peer may still be reducing in them, so they stay until Close.
func TestFreeAfterFailure(t *testing.T) {
	var watcher *freeWatcher
	j := open(t, watched(&watcher), 2, "", nil, 1)
	var bufs [2]*mem.Buffer
	for i := range bufs {
		var err error
		if bufs[i], err = j[0].Alloc(4096); err != nil {
			t.Fatal(err)
		}
	}
	if err := bufs[0].Free(); err != nil || watcher.freed.Load() != 1 {
		t.Errorf("before a failure: %v, %d regions freed", err, watcher.freed.Load())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := j[0].Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := bufs[1].Free(); err != nil || watcher.freed.Load() != 1 {
		t.Errorf("after a failure: %v, %d regions freed", err, watcher.freed.Load())
	}
}
