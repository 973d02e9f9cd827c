package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
)

// ranksOf tells who is who in a group: the parent's rank of each of its ranks.
func ranksOf(ctx context.Context, group *engine.Comm, parentRank int) ([]int32, error) {
	all := make([]int32, group.Size())
	err := group.AllGather(ctx, mem.Bytes([]int32{int32(parentRank)}), mem.Bytes(all), mem.I32)
	return all, err
}

// TestSplitAsMPI: groups and ranks are those of MPI_Comm_split, also in groups
// of groups; and every group works.
func TestSplitAsMPI(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 6} {
				j := open(t, m, n, "", nil, 1)
				rng := rand.New(rand.NewPCG(2, uint64(n)))
				for range rounds {
					colors, keys := make([]int, n), make([]int, n)
					for r := range n {
						colors[r], keys[r] = rng.IntN(4)-1, rng.IntN(5)-2
					}
					onEveryRank(t, n, func(r int) error { return checkSplit(t.Context(), j[r], colors, keys, 2) })
				}
			}
		})
	}
}

func checkSplit(ctx context.Context, c *engine.Comm, colors, keys []int, depth int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r := c.Rank()
	group, err := c.Split(ctx, colors[r], keys[r])
	if err != nil {
		return err
	}
	if (group == nil) != (colors[r] == engine.NoColor) {
		return fmt.Errorf("color %d, and a group: %v", colors[r], group != nil)
	}
	if group == nil {
		return nil
	}
	var want []int32
	for q := range colors {
		if colors[q] == colors[r] {
			want = append(want, int32(q))
		}
	}
	slices.SortStableFunc(want, func(a, b int32) int { return cmp.Compare(keys[a], keys[b]) })
	got, err := ranksOf(ctx, group, r)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) || int(want[group.Rank()]) != r {
		return fmt.Errorf("colors %v, keys %v: the group of rank %d is %v, want %v", colors, keys, r, got, want)
	}
	x := make([]int32, 50_000)
	for i := range x {
		x[i] = int32(r + i)
	}
	if err := group.AllReduce(ctx, mem.Bytes(x), mem.Bytes(x), mem.I32, mem.Max); err != nil {
		return err
	}
	if most := slices.Max(want); x[7] != most+7 {
		return fmt.Errorf("the maximum is %d, want %d", x[7], most+7)
	}
	if depth > 1 { // a group of the group, by turned ranks
		n := group.Size()
		colors, keys := make([]int, n), make([]int, n)
		for q := range n {
			colors[q], keys[q] = q%2, -q
		}
		if err := checkSplit(ctx, group, colors, keys, depth-1); err != nil {
			return err
		}
	}
	return group.Close() // while slower ranks are still in the last call
}

// TestCrossingGroups: rows and columns of ranks work at the same time, each on
// a goroutine of its own, with other collectives, beside their parent.
func TestCrossingGroups(t *testing.T) {
	const rows, columns, n = 2, 3, 6
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			j := open(t, m, n, "", nil, 1)
			bufs := j.buffers(t, 1<<18, true)
			onEveryRank(t, n, func(r int) error {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				row, err := j[r].Split(ctx, r/columns, 0)
				if err != nil {
					return err
				}
				column, err := j[r].Split(ctx, r%columns, 0)
				if err != nil {
					return err
				}
				half := len(bufs[r]) / 2
				var errs [3]error
				var wg sync.WaitGroup
				wg.Go(func() { errs[0] = keepReducing(ctx, row, bufs[r][:half], rounds) })
				wg.Go(func() { errs[1] = keepGathering(ctx, column, bufs[r][half:], rounds) })
				wg.Go(func() {
					for i := range rounds {
						got, err := ranksOf(ctx, j[r], r)
						if err == nil && int(got[n-1]) != n-1 {
							err = fmt.Errorf("round %d: the parent gathers %v", i, got)
						}
						if errs[2] = err; err != nil {
							return
						}
					}
				})
				wg.Wait()
				return errors.Join(errs[:]...)
			})
		})
	}
}

func keepReducing(ctx context.Context, c *engine.Comm, buf []byte, rounds int) error {
	n := int32(c.Size())
	for i := range rounds {
		x := mem.Slice[int32](buf)[:1+i*1777%(len(buf)/4)]
		if i%3 == 0 {
			x = make([]int32, len(x))
		}
		for e := range x {
			x[e] = int32(c.Rank() + e + i)
		}
		if err := c.AllReduce(ctx, mem.Bytes(x), mem.Bytes(x), mem.I32, mem.Sum); err != nil {
			return err
		}
		for e, got := range x {
			if want := n*int32(e+i) + n*(n-1)/2; got != want {
				return fmt.Errorf("round %d: element %d of %d is %d, want %d", i, e, len(x), got, want)
			}
		}
	}
	return nil
}

func keepGathering(ctx context.Context, c *engine.Comm, buf []byte, rounds int) error {
	n := c.Size()
	for i := range rounds {
		block := 1 + i*997%(len(buf)/8/n)
		all, mine := mem.Slice[int32](buf)[:n*block], make([]int32, block)
		for e := range mine {
			mine[e] = int32(1000*c.Rank() + i + e)
		}
		var err error
		if i%2 == 0 {
			err = c.AllGather(ctx, mem.Bytes(mine), mem.Bytes(all), mem.I32)
		} else {
			x := c.NewExchange()
			for q := range n {
				x.Send(mem.Bytes(mine), mem.I32, q)
				x.Recv(mem.Bytes(all[q*block:][:block]), mem.I32, q)
			}
			err = x.Run(ctx)
		}
		if err != nil {
			return err
		}
		for e, got := range all {
			if want := int32(1000*(e/block) + i + e%block); got != want {
				return fmt.Errorf("round %d: element %d is %d, want %d", i, e, got, want)
			}
		}
	}
	return nil
}

// TestGroupLists: good lists make groups, bad ones errors of their type, on
// every rank; and the parent goes on.
func TestGroupLists(t *testing.T) {
	type lists [4][]int
	for _, m := range media {
		for name, tt := range map[string]struct {
			lists lists
			want  string // the error's type, or none
		}{
			"two groups, one rank in none": {lists{{2, 0}, {1}, {2, 0}, nil}, ""},
			"asked for by others as well":  {lists{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, ""},
			"turned":                       {lists{{3, 2, 1, 0}, {3, 2, 1, 0}, {3, 2, 1, 0}, {3, 2, 1, 0}}, ""},
			"twice":                        {lists{{0, 0}, {0, 0}, {0, 0}, {0, 0}}, "argument"},
			"too high":                     {lists{{0, 4}, {0, 4}, {0, 4}, {0, 4}}, "argument"},
			"negative":                     {lists{{-1}, {-1}, {-1}, {-1}}, "argument"},
			"other order":                  {lists{{0, 1}, {1, 0}, nil, nil}, "group"},
			"one does not join":            {lists{{0, 1, 2}, {0, 1, 2}, nil, nil}, "group"},
			"longer list of another":       {lists{{0, 1}, {0, 1}, {0, 1, 2}, nil}, "group"},
			"overlapping":                  {lists{{0, 1}, {0, 1}, {1, 2}, {3}}, "group"},
		} {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				j := open(t, m, 4, "", nil, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				onEveryRank(t, 4, func(r int) error {
					group, err := j[r].Group(ctx, tt.lists[r])
					var argument *engine.ArgumentError
					var disagreement *engine.GroupError
					switch {
					case tt.want == "argument" && !errors.As(err, &argument), tt.want == "group" && !errors.As(err, &disagreement):
						return fmt.Errorf("%w, want a %s error", err, tt.want)
					case tt.want != "":
						if group != nil {
							return errors.New("an error and a group")
						}
					case err != nil:
						return err
					case (group != nil) != slices.Contains(tt.lists[r], r):
						return fmt.Errorf("in the group: %v", group != nil)
					case group != nil:
						got, err := ranksOf(ctx, group, r)
						if err != nil {
							return err
						}
						for i, q := range tt.lists[r] {
							if int(got[i]) != q {
								return fmt.Errorf("the group is %v, want %v", got, tt.lists[r])
							}
						}
					}
					return j[r].Barrier(ctx)
				})
			})
		}
		t.Run(m.name+"/color", func(t *testing.T) {
			j := open(t, m, 2, "", nil, 1)
			var argument *engine.ArgumentError
			if _, err := j[0].Split(t.Context(), -2, 0); !errors.As(err, &argument) {
				t.Errorf("color -2: %v", err)
			}
		})
	}
}

// TestFailureInOneGroup leaves the parent and other groups in order; only
// memory is not freed any more.
func TestFailureInOneGroup(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			const n = 3
			j := open(t, m, n, "", nil, 1)
			onEveryRank(t, n, func(r int) error {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				bad, err := j[r].Split(ctx, 0, 0)
				if err != nil {
					return err
				}
				good, err := j[r].Split(ctx, 0, -r)
				if err != nil {
					return err
				}
				b, err := j[r].Alloc(1 << 16)
				if err != nil {
					return err
				}
				op := []mem.Op{mem.Sum, mem.Max, mem.Sum}[r]
				var mismatch *engine.MismatchError
				if err := bad.AllReduce(ctx, b.Bytes(), b.Bytes(), mem.F32, op); !errors.As(err, &mismatch) {
					if m.mapped { // elsewhere such calls are not compared
						return fmt.Errorf("%w, want a MismatchError", err)
					}
				}
				if err := b.Free(); err != nil {
					return err
				}
				for range 5 {
					if got, err := ranksOf(ctx, good, r); err != nil || got[0] != n-1 {
						return fmt.Errorf("the other group: %v, %w", got, err)
					}
				}
				if err := j[r].Barrier(ctx); err != nil {
					return err
				}
				return errors.Join(bad.Close(), good.Close(), j[r].Barrier(ctx))
			})
		})
	}
}

// TestClosedGroup: calls of it fail, and nothing else is the worse for it.
func TestClosedGroup(t *testing.T) {
	var watcher *freeWatcher
	j := open(t, watched(&watcher), 2, "", nil, 1)
	onEveryRank(t, 2, func(r int) error {
		g, err := j[r].Split(t.Context(), 0, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(g.Close(), g.Close()); err != nil {
			return err
		}
		var call *engine.CallError
		if err := g.Barrier(t.Context()); !errors.Is(err, link.ErrClosed) || !errors.As(err, &call) {
			return fmt.Errorf("a barrier of a closed group: %w", err)
		}
		return j[r].Barrier(t.Context())
	})
	b, err := j[0].Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	before := watcher.freed.Load()
	if err := b.Free(); err != nil || watcher.freed.Load() != before+1 {
		t.Errorf("a buffer is not freed after a call of a closed group: %v", err)
	}
}

// TestCloseWithOpenGroups: they are closed with their parent, from any number
// of levels; and if one is in a call, nothing is freed under it.
func TestCloseWithOpenGroups(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			const n = 4
			j := open(t, m, n, "", nil, 1)
			onEveryRank(t, n, func(r int) error {
				a, err := j[r].Split(t.Context(), r%2, 0)
				if err != nil {
					return err
				}
				b, err := a.Split(t.Context(), 0, 0)
				if err != nil {
					return err
				}
				w, err := b.BarrierAsync(t.Context())
				if err == nil {
					err = w.Wait(t.Context())
				}
				if err := errors.Join(err, j[r].Close()); err != nil {
					return err
				}
				if err := b.Barrier(t.Context()); !errors.Is(err, link.ErrClosed) {
					return fmt.Errorf("a barrier after the end: %w", err)
				}
				return nil
			})
		})
	}
}

func TestCloseBesideACallOfAGroup(t *testing.T) {
	if raceEnabled {
		t.Skip("a race by intent: the check is not meant to be exact")
	}
	j := open(t, media[0], 2, "", nil, 1)
	groups := make([]*engine.Comm, 2)
	onEveryRank(t, 2, func(r int) (err error) {
		groups[r], err = j[r].Split(t.Context(), 0, 0)
		return err
	})
	got := make(chan error, 1)
	go func() { got <- groups[0].Barrier(t.Context()) }()
	time.Sleep(20 * time.Millisecond)
	if err := j[0].Close(); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("Close beside a call of a group: %v, want ErrBusy", err)
	}
	if err := <-got; !errors.Is(err, link.ErrClosed) {
		t.Errorf("the call: %v, want ErrClosed", err)
	}
}

// TestGroupsLeakNothing: groups come and go without a trace.
func TestGroupsLeakNothing(t *testing.T) {
	const n, warm = 3, 10
	rounds := 50
	if testing.Short() {
		rounds = 20
	}
	for _, m := range media[:2] {
		t.Run(m.name, func(t *testing.T) {
			j := open(t, m, n, "", nil, 2)
			cycle := func(rounds int) {
				onEveryRank(t, n, func(r int) error {
					for i := range rounds {
						g, err := j[r].Split(t.Context(), 0, r*(i%3-1))
						if err != nil {
							return err
						}
						if err := g.Barrier(t.Context()); err != nil {
							return err
						}
						w, err := g.BarrierAsync(t.Context())
						if err := errors.Join(err, w.Wait(t.Context())); err != nil {
							return err
						}
						if err := g.Close(); err != nil {
							return err
						}
					}
					// Peers unmap what was freed when they next ask for memory.
					if err := j[r].Barrier(t.Context()); err != nil {
						return err
					}
					b, err := j[r].Alloc(8)
					if err != nil {
						return err
					}
					return b.Free()
				})
			}
			rounds := rounds
			if m.name == "shm" && !testing.Short() {
				rounds = 1000
			}
			cycle(warm)
			before := traces(t)
			cycle(rounds)
			var after [4]int
			for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				after = traces(t)
				// What the last groups had may be on its way out; heap in MiB.
				if after[0] <= before[0]+n && after[1] <= before[1]+4*n && after[2] <= before[2] && after[3] <= before[3]+8 {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("descriptors, mappings, goroutines and MiB: %v before, %v after %d groups", before, after, rounds)
				}
			}
		})
	}
}

// noTraces: where there is no /proc, nothing can be counted; on Linux there is.
func noTraces(t *testing.T, err error) {
	t.Helper()
	if runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	t.Skip("NOT TESTED here: ", err)
}

// traces counts descriptors, mappings, goroutines and MiB of heap in use.
func traces(t *testing.T) [4]int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		noTraces(t, err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		noTraces(t, err)
	}
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return [4]int{len(fds), strings.Count(string(maps), "memfd"), runtime.NumGoroutine(), int(s.HeapAlloc >> 20)}
}
