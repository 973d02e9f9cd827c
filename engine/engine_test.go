package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/link/linktest"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/shm"
	"github.com/tutti-go/tutti/span"
	"github.com/tutti-go/tutti/tune"
)

// medium makes the fabrics of n ranks that live in this process.
type medium struct {
	name   string
	mapped bool
	nodes  func(ranks int) plan.Nodes // nil: as Config has it
	open   func(t *testing.T, ex []bootstrap.Exchanger) []link.Fabric
}

var media = []medium{
	{"shm", true, nil, func(t *testing.T, ex []bootstrap.Exchanger) []link.Fabric {
		fabrics := make([]link.Fabric, len(ex))
		onEveryRank(t, len(ex), func(r int) error {
			f, err := shm.Open(t.Context(), ex[r], nil)
			fabrics[r] = f
			return err
		})
		return fabrics
	}},
	{"memory", true, nil, memory(linktest.Options{Mapped: true})},
	{"put", false, nil, memory(linktest.Options{})},
	{"late", false, nil, memory(linktest.Options{Late: true})},
	{"span", false, twoNodes, spanned},
}

// spanned puts ranks on two nodes by turns: they share memory inside a node and
// put to the other.
func spanned(t *testing.T, ex []bootstrap.Exchanger) []link.Fabric {
	inside := linktest.Memory(len(ex), linktest.Options{Mapped: true})
	across := linktest.Memory(len(ex), linktest.Options{Late: true})
	out := make([]link.Fabric, len(ex))
	for r := range out {
		f, err := span.Join(r, twoNodes(len(ex)), inside[r], across[r])
		if err != nil {
			t.Fatal(err)
		}
		out[r] = f
	}
	return out
}

// twoNodes is the node of each rank of a medium that spans two.
func twoNodes(ranks int) plan.Nodes {
	nodes := plan.OneNode(ranks)
	for r := range nodes {
		nodes[r] = r % 2
	}
	return nodes
}

// planOf returns the plan of an algorithm for the ranks of a medium, whether it
// can run there, and what it needs inside nodes.
func (m *medium) planOf(name string, ranks, root int) (p *plan.Plan, inside plan.Reach, ok bool) {
	nodes := m.grouping(ranks)
	switch {
	case nodes == nil && m.mapped:
		nodes = plan.OneNode(ranks)
	case nodes == nil:
		nodes = plan.Apart(ranks)
	}
	p, err := algo.NewOver(name, nodes, root)
	if err != nil {
		panic(err)
	}
	inside, ok = p.ReachOver(nodes)
	return p, inside, ok
}

// grouping is what a medium's ranks are told of their nodes.
func (m *medium) grouping(ranks int) plan.Nodes {
	if m.nodes == nil {
		return nil
	}
	return m.nodes(ranks)
}

func memory(o linktest.Options) func(*testing.T, []bootstrap.Exchanger) []link.Fabric {
	return func(_ *testing.T, ex []bootstrap.Exchanger) []link.Fabric { return linktest.Memory(len(ex), o) }
}

// onEveryRank runs f for each rank side by side and fails the test with the
// first error.
func onEveryRank(t *testing.T, n int, f func(rank int) error) {
	t.Helper()
	for rank, err := range errorsOf(n, f) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
}

func errorsOf(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	return errs
}

type job []*engine.Comm

// open starts a job of n ranks. algo forces an algorithm; adjust may change
// what it is forced with.
func open(t *testing.T, m medium, n int, algoName string, adjust func(*tune.Choice), threads int) job {
	t.Helper()
	ex := bootstrap.Memory(n)
	fabrics := m.open(t, ex)
	j := make(job, n)
	onEveryRank(t, n, func(r int) error {
		c, err := engine.New(t.Context(), engine.Config{
			Rank: r, Size: n, Nodes: m.grouping(n), Exchanger: ex[r], Fabric: fabrics[r], Plan: algo.NewOver, Threads: threads,
			Cores:  runtime.GOMAXPROCS(0),
			Choose: chooser(algoName, adjust),
		})
		j[r] = c
		return err
	})
	t.Cleanup(func() {
		for _, c := range j {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return j
}

func chooser(name string, adjust func(*tune.Choice)) func(tune.Request) tune.Choice {
	if name == "" && adjust == nil {
		return tune.Choose
	}
	return func(r tune.Request) tune.Choice {
		choice := tune.Choose(r)
		if name != "" && r.Collective == plan.AllReduce {
			choice = tune.For(name, r)
		}
		if adjust != nil {
			adjust(&choice)
		}
		return choice
	}
}

// buffers gives each rank memory of its own, registered or not.
func (j job) buffers(t *testing.T, bytes int, registered bool) [][]byte {
	t.Helper()
	out := make([][]byte, len(j))
	for r, c := range j {
		if !registered || bytes == 0 {
			out[r] = mem.Bytes(make([]uint64, (bytes+7)/8))[:bytes]
			continue
		}
		b, err := c.Alloc(bytes)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free() })
		out[r] = b.Bytes()
	}
	return out
}

// fillInts fills each rank's int32s and returns their sum over the ranks.
func fillInts(bufs [][]byte, seed uint64) []int32 {
	if len(bufs[0]) == 0 {
		return nil
	}
	sum := make([]int32, len(bufs[0])/4)
	for r, b := range bufs {
		rng := rand.New(rand.NewPCG(seed, uint64(r)))
		for i := range mem.Slice[int32](b) {
			x := int32(rng.Uint32())
			mem.Slice[int32](b)[i] = x
			sum[i] += x
		}
	}
	return sum
}

func TestAllReduceEveryPlan(t *testing.T) {
	sizes := []int{4, 60, 64, 68, 1000, 4096, 33000, 100_004}
	for _, m := range media {
		for _, name := range append(algo.Names(plan.AllReduce), "") {
			for _, n := range []int{1, 2, 3, 4, 5, 8} {
				t.Run(fmt.Sprintf("%s/%s/%d", m.name, name, n), func(t *testing.T) {
					if testing.Short() && n > 4 {
						t.Skip("short")
					}
					// Small tiles, so that every size takes many.
					j := open(t, m, n, name, func(c *tune.Choice) { c.TileBytes = min(c.TileBytes, 1024) }, 1)
					attach, _ := j[0].Attachable()
					for _, registered := range []bool{true, false} {
						for _, inPlace := range []bool{false, true} {
							for _, size := range sizes {
								j.checkSum(t, size, registered, inPlace, needsMapping(name, m, n, registered, attach))
							}
						}
					}
				})
			}
		}
	}
}

// needsMapping tells whether a forced algorithm must refuse the call.
func needsMapping(name string, m medium, n int, registered, attach bool) bool {
	if n == 1 || name == "" {
		return false
	}
	_, inside, ok := m.planOf(name, n, 0)
	return !ok || inside.PeerData && !registered && (!attach || !inside.AttachOnly())
}

func (j job) checkSum(t *testing.T, size int, registered, inPlace, refused bool) {
	t.Helper()
	in := j.buffers(t, size, registered)
	out := in
	if !inPlace {
		out = j.buffers(t, size, registered)
	}
	want := fillInts(in, uint64(size))
	before := make([][]byte, len(in))
	for r := range in {
		before[r] = bytes.Clone(in[r])
	}
	errs := errorsOf(len(j), func(r int) error {
		return j[r].AllReduce(t.Context(), in[r], out[r], mem.I32, mem.Sum)
	})
	for r, err := range errs {
		var arg *engine.ArgumentError
		if refused != errors.As(err, &arg) || !refused && err != nil {
			t.Fatalf("%d bytes, registered %v: rank %d: %v", size, registered, r, err)
		}
		if refused {
			continue
		}
		if got := mem.Slice[int32](out[r]); !slices.Equal(got, want) {
			t.Fatalf("%d bytes, registered %v, in place %v: rank %d has a wrong result", size, registered, inPlace, r)
		}
		if !inPlace && !bytes.Equal(in[r], before[r]) {
			t.Fatalf("%d bytes: rank %d's input was changed", size, r)
		}
	}
}

// TestManyCalls runs calls of all kinds behind each other without pause, more
// ranks than cores, each rank at its own speed.
func TestManyCalls(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			const n, calls = 5, 400
			j := open(t, m, n, "", func(c *tune.Choice) { c.TileBytes = min(c.TileBytes, 4096) }, 1)
			rng := rand.New(rand.NewPCG(1, 2))
			sizes := make([]int, calls)
			for i := range sizes {
				sizes[i] = 4 * (1 + rng.IntN(1<<rng.IntN(16)))
			}
			registered := j.buffers(t, 1<<18, true)
			plain := j.buffers(t, 1<<18, false)
			onEveryRank(t, n, func(r int) error {
				for i, size := range sizes {
					buf := registered[r]
					if i%3 == 0 {
						buf = plain[r]
					}
					x := mem.Slice[int32](buf[:size])
					for e := range x {
						x[e] = int32(i + r*e)
					}
					if i%(r+2) == 0 {
						runtime.Gosched()
					}
					if err := j[r].AllReduce(t.Context(), buf[:size], buf[:size], mem.I32, mem.Sum); err != nil {
						return err
					}
					for e, got := range x {
						if want := int32(n*i + n*(n-1)/2*e); got != want {
							return fmt.Errorf("call %d (%d bytes): element %d is %d, want %d", i, size, e, got, want)
						}
					}
					if i%7 == 0 {
						if err := j[r].Barrier(t.Context()); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	}
}

func TestBarrierHoldsEverybody(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			const n, rounds = 5, 50
			j := open(t, m, n, "", nil, 1)
			var mu sync.Mutex
			entered := make([]int, rounds)
			onEveryRank(t, n, func(r int) error {
				for i := range rounds {
					mu.Lock()
					entered[i]++
					mu.Unlock()
					if err := j[r].Barrier(t.Context()); err != nil {
						return err
					}
					mu.Lock()
					if entered[i] != n {
						return fmt.Errorf("left barrier %d when %d of %d had entered", i, entered[i], n)
					}
					mu.Unlock()
				}
				return nil
			})
		})
	}
}

func TestBitwiseIdentical(t *testing.T) {
	const n = 5
	for _, name := range []string{"", "allreduce/direct", "allreduce/staged", "allreduce/ring", "allreduce/tree"} {
		t.Run(name, func(t *testing.T) {
			j := open(t, media[0], n, name, nil, 1)
			bufs := j.buffers(t, 40_000, true)
			var first []byte
			for round := range 3 {
				for r, b := range bufs {
					rng := rand.New(rand.NewPCG(7, uint64(r)))
					for i := range mem.Slice[float32](b) {
						mem.Slice[float32](b)[i] = float32(rng.NormFloat64())
					}
				}
				onEveryRank(t, n, func(r int) error {
					return j[r].AllReduce(t.Context(), bufs[r], bufs[r], mem.F32, mem.Sum)
				})
				if round == 0 {
					first = bytes.Clone(bufs[0])
				}
				for r := range bufs {
					if !bytes.Equal(bufs[r], first) {
						t.Fatalf("round %d: rank %d differs", round, r)
					}
				}
			}
		})
	}
}

func TestThreads(t *testing.T) {
	j := open(t, media[0], 2, "", nil, 3)
	for _, size := range []int{4 * 1001, 1 << 20, 1<<20 + 4, 5<<20 + 12} {
		for _, registered := range []bool{true, false} {
			j.checkSum(t, size, registered, true, false)
		}
	}
}

func TestAverageDividesOnce(t *testing.T) {
	const n = 3
	for _, m := range media {
		for _, name := range algo.Names(plan.AllReduce) {
			if needsMapping(name, m, n, true, false) {
				continue
			}
			t.Run(m.name+"/"+name, func(t *testing.T) {
				j := open(t, m, n, name, func(c *tune.Choice) { c.TileBytes = min(c.TileBytes, 256) }, 1)
				bufs := j.buffers(t, 4000, true)
				for r, b := range bufs {
					for i := range mem.Slice[int32](b) {
						mem.Slice[int32](b)[i] = int32(i*10 - 2000 + r*r) // 0+1+4: the sum is 30i-5995
					}
				}
				onEveryRank(t, n, func(r int) error {
					return j[r].AllReduce(t.Context(), bufs[r], bufs[r], mem.I32, mem.Avg)
				})
				for r, b := range bufs {
					for i, got := range mem.Slice[int32](b) {
						if want := (30*int32(i) - 5995) / 3; got != want {
							t.Fatalf("rank %d element %d: %d, want %d", r, i, got, want)
						}
					}
				}
			})
		}
	}
}

func TestArgumentErrors(t *testing.T) {
	j := open(t, media[0], 2, "", nil, 1)
	b := make([]byte, 64)
	for name, call := range map[string]func() error{
		"lengths differ":   func() error { return j[0].AllReduce(t.Context(), b[:8], b[:12], mem.F32, mem.Sum) },
		"not whole":        func() error { return j[0].AllReduce(t.Context(), b[:7], b[:7], mem.F32, mem.Sum) },
		"overlap":          func() error { return j[0].AllReduce(t.Context(), b[:32], b[4:36], mem.F32, mem.Sum) },
		"bits of floats":   func() error { return j[0].AllReduce(t.Context(), b, b, mem.F32, mem.Bxor) },
		"unknown operator": func() error { return j[0].AllReduce(t.Context(), b, b, mem.F32, mem.Op(77)) },
		"negative alloc":   func() error { _, err := j[0].Alloc(-1); return err },
	} {
		var arg *engine.ArgumentError
		if err := call(); !errors.As(err, &arg) {
			t.Errorf("%s: %v, want an ArgumentError", name, err)
		}
	}
	j.checkSum(t, 64, true, true, false) // and the job goes on
}

// TestZeroCount: a call without elements meets nobody, and those around it are
// none the worse.
func TestZeroCount(t *testing.T) {
	for _, m := range media {
		t.Run(m.name, func(t *testing.T) {
			const n = 3
			j := open(t, m, n, "", nil, 1)
			bufs := j.buffers(t, 16<<10, true)
			onEveryRank(t, n, func(r int) error {
				for range 300 {
					if err := errors.Join(
						j[r].Barrier(t.Context()),
						j[r].AllReduce(t.Context(), nil, nil, mem.I32, mem.Sum),
						j[r].AllReduce(t.Context(), bufs[r], bufs[r], mem.I32, mem.Sum),
						j[r].AllReduce(t.Context(), nil, nil, mem.I32, mem.Sum),
					); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, size := range []int{8, 4096, 1 << 18} {
		for _, registered := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d/%v", size, registered), func(t *testing.T) {
				const runs = 200
				j := open(t, media[0], 2, "", nil, 1)
				bufs := j.buffers(t, size, registered)
				call := func(r int) error {
					return j[r].AllReduce(context.Background(), bufs[r], bufs[r], mem.F32, mem.Max)
				}
				onEveryRank(t, 2, call) // the first call binds
				peer := make(chan error)
				go func() {
					for range runs + 1 { // AllocsPerRun warms up once
						if err := call(1); err != nil {
							peer <- err
							return
						}
					}
					peer <- nil
				}()
				if n := testing.AllocsPerRun(runs, func() {
					if err := call(0); err != nil {
						t.Error(err)
					}
				}); n != 0 {
					t.Errorf("%v allocations a call", n)
				}
				if err := <-peer; err != nil {
					t.Error(err)
				}
			})
		}
	}
}
