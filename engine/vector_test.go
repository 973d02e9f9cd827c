package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// vectorSizes are elements of 8 bytes: nothing, what fits a line, what fits the
// door, what ordinary memory shows there, what it does not.
var vectorSizes = []int{0, 1, 3, 100, 900, 1500, 3000, 9000}

// drawVector draws the elements of the block from a to b, by [a][b]. Mostly all
// are of a size, so that all ranks show theirs or all give notice.
func drawVector(rng *rand.Rand, n int) [][]int {
	usual := vectorSizes[rng.IntN(len(vectorSizes))]
	sizes := make([][]int, n)
	for a := range sizes {
		for range n {
			size := usual
			if rng.IntN(4) == 0 {
				size = vectorSizes[rng.IntN(len(vectorSizes))]
			}
			sizes[a] = append(sizes[a], size)
		}
	}
	return sizes
}

// vectorOf is a call of a long row: mostly like the last, so that it need not be
// checked and chosen for again.
type vectorOf struct {
	collective plan.Collective
	root       int
	sizes      [][]int
}

var vectorCollectives = []plan.Collective{plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll}

func (k *vectorOf) draw(rng *rand.Rand, n int) {
	if k.sizes == nil || rng.IntN(4) == 0 {
		k.collective = vectorCollectives[rng.IntN(len(vectorCollectives))]
	}
	if rng.IntN(8) == 0 {
		k.root = rng.IntN(n)
	}
	if k.sizes == nil || rng.IntN(3) == 0 {
		k.sizes = drawVector(rng, n)
	}
}

// TestVectorsInALongRow: v forms of all sizes, one after the other, of ranks of
// which some show their blocks at the door and some give notice.
func TestVectorsInALongRow(t *testing.T) {
	calls := 1000
	if testing.Short() {
		calls = 300
	}
	const n = 3
	most := n * vectorSizes[len(vectorSizes)-1]
	for _, m := range media[:2] {
		t.Run(m.name, func(t *testing.T) {
			j := open(t, m, n, "", nil, 1)
			var buffers [2][2][][]byte // by kind of memory, in or out, rank
			for kind := range buffers {
				for i := range buffers[kind] {
					buffers[kind][i] = j.buffers(t, 8*most, kind == 1)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			onEveryRank(t, n, func(r int) error {
				shared, own := rand.New(rand.NewPCG(9, n)), rand.New(rand.NewPCG(9, uint64(r)))
				var k vectorOf
				for call := range calls {
					k.draw(shared, n)
					in := mem.Slice[int64](buffers[own.IntN(8)/7][0][r])
					out := mem.Slice[int64](buffers[own.IntN(8)/7][1][r])
					if err := vectorCall(ctx, j, r, call, &k, in, out); err != nil {
						return fmt.Errorf("call %d, %vv, root %d, of %v: %w", call, k.collective, k.root, k.sizes, err)
					}
				}
				return nil
			})
		})
	}
}

// TestVectorAgainIsChecked: a v form like the last, but in buffers that overlap,
// is refused, and the job goes on.
func TestVectorAgainIsChecked(t *testing.T) {
	const n = 2
	j := open(t, media[0], n, "", nil, 1)
	onEveryRank(t, n, func(r int) error {
		c, counts := j[r], []int{1, 1}
		in, out, four := mem.Bytes(make([]int32, 4)), mem.Bytes(make([]int32, 4)), mem.Bytes(make([]int32, 4))
		calls := map[string]func(in, out []byte) error{
			"allgatherv": func(in, out []byte) error { return c.AllGatherV(t.Context(), in[:4], out[:8], counts, mem.I32) },
			"reduce_scatterv": func(in, out []byte) error {
				return c.ReduceScatterV(t.Context(), in[:8], out[:4], counts, mem.I32, mem.Sum)
			},
			"alltoallv": func(in, out []byte) error {
				return c.AllToAllV(t.Context(), in[:8], counts, out[:8], counts, mem.I32)
			},
		}
		for _, name := range []string{"allgatherv", "reduce_scatterv", "alltoallv"} {
			for range 2 {
				if err := calls[name](in, out); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			var bad *engine.ArgumentError
			if err := calls[name](four, four[2:]); !errors.As(err, &bad) {
				return fmt.Errorf("%s of buffers that overlap: %w", name, err)
			}
		}
		return nil
	})
}

// TestEmptyLastBlock: what a rank has for itself may be nothing and come last,
// in Go's memory and while the collector runs. A pointer to where it would be
// points to another object.
func TestEmptyLastBlock(t *testing.T) {
	const bytes = 40 << 10 // a span of its own
	j := open(t, media[0], 2, "", nil, 1)
	stop := make(chan struct{})
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	onEveryRank(t, 2, func(r int) error {
		sends, recvs := []int{0, 0}, []int{0, bytes}
		if r == 1 {
			sends, recvs = []int{bytes, 0}, []int{0, 0}
		}
		for range 20_000 {
			in, out := make([]byte, sends[0]), make([]byte, recvs[1]) // now and then before what is free
			if err := j[r].AllToAllV(t.Context(), in, sends, out, recvs, mem.U8); err != nil {
				return err
			}
		}
		return nil
	})
	close(stop)
	collector.Wait()
}

// vectorCall makes one call on one rank, and checks what comes of it. What rank
// a brings as element i of the block for b is shown(call*n+b, a, i).
func vectorCall(ctx context.Context, j job, r, call int, k *vectorOf, in, out []int64) error {
	n, sizes := len(j), k.sizes
	block := func(a, b int) []int64 {
		x := make([]int64, sizes[a][b])
		for i := range x {
			x[i] = shown(call*n+b, a, i)
		}
		return x
	}
	column := func(b int) (counts []int) {
		for a := range n {
			counts = append(counts, sizes[a][b])
		}
		return counts
	}
	var want []int64
	ins := in[:0]
	var run func(send, recv []byte) error
	switch k.collective {
	case plan.Gather: // the block from a to the root
		ins = append(ins, block(r, k.root)...)
		if r == k.root {
			for a := range n {
				want = append(want, block(a, r)...)
			}
		}
		run = func(send, recv []byte) error {
			return j[r].GatherV(ctx, send, recv, column(k.root), mem.I64, k.root)
		}
	case plan.Scatter: // the block from the root to b
		if r == k.root {
			for b := range n {
				ins = append(ins, block(r, b)...)
			}
		}
		want = block(k.root, r)
		run = func(send, recv []byte) error {
			return j[r].ScatterV(ctx, send, sizes[k.root], recv, mem.I64, k.root)
		}
	case plan.AllGather: // everybody gets the block from a to 0
		ins = append(ins, block(r, 0)...)
		for a := range n {
			want = append(want, block(a, 0)...)
		}
		run = func(send, recv []byte) error {
			return j[r].AllGatherV(ctx, send, recv, column(0), mem.I64)
		}
	case plan.ReduceScatter: // block b is as long as that from b to 0
		for b := range n {
			for i := range sizes[b][0] {
				ins = append(ins, shown(call*n+b, r, i))
			}
		}
		for i := range sizes[r][0] {
			var s int64
			for a := range n {
				s += shown(call*n+r, a, i)
			}
			want = append(want, s)
		}
		run = func(send, recv []byte) error {
			return j[r].ReduceScatterV(ctx, send, recv, column(0), mem.I64, mem.Sum)
		}
	default:
		for b := range n {
			ins = append(ins, block(r, b)...)
			want = append(want, block(b, r)...)
		}
		run = func(send, recv []byte) error {
			return j[r].AllToAllV(ctx, send, sizes[r], recv, column(r), mem.I64)
		}
	}
	out = out[:len(want)]
	clear(out)
	if err := run(mem.Bytes(ins), mem.Bytes(out)); err != nil {
		return err
	}
	for i, x := range want {
		if out[i] != x {
			return fmt.Errorf("element %d is %d, want %d", i, out[i], x)
		}
	}
	return nil
}
