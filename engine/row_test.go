package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/tune"
)

// TestCallsInARow: where not all ranks are mapped they do not meet between
// calls, so one may be in the next call, and put into a peer's scratch, while
// that peer still reads what came in this one. Short tiles make for many
// chances; what each rank gets is checked after every call.
func TestCallsInARow(t *testing.T) {
	calls := 6000
	if testing.Short() {
		calls = 2000
	}
	const most = 4 << 10 // elements of a block
	for _, m := range media[2:] {
		for _, n := range []int{2, 3, 5} {
			t.Run(fmt.Sprintf("%s/%d", m.name, n), func(t *testing.T) {
				j := open(t, m, n, "", func(c *tune.Choice) { c.TileBytes, c.Depth = 256, 2 }, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				onEveryRank(t, n, func(r int) error {
					shared, own := rand.New(rand.NewPCG(11, uint64(n))), rand.New(rand.NewPCG(12, uint64(r)))
					in, out := make([]int64, n*most), make([]int64, n*most)
					for call := range calls {
						size := 1 + shared.IntN(64)
						if shared.IntN(8) == 0 {
							size = 1 + shared.IntN(most)
						}
						collective := plan.Collectives()[shared.IntN(len(plan.Collectives()))]
						root := shared.IntN(n)
						if err := rowCall(ctx, j, r, call, collective, root, in, out, size); err != nil {
							cancel() // the others would wait for this one
							return fmt.Errorf("call %d, %v of %d elements, root %d: %w", call, collective, size, root, err)
						}
						if own.IntN(8) == 0 {
							runtime.Gosched()
						}
					}
					return nil
				})
			})
		}
	}
}

// rowCall makes one call of blocks of size elements on one rank and checks what
// it gets. Element i of what rank a brings for rank b is shown(call*n+b, a, i);
// of what it brings for all, shown(call*n, a, i).
func rowCall(ctx context.Context, j job, r, call int, collective plan.Collective, root int, in, out []int64, size int) error {
	c, n := j[r], len(j)
	one := func(a, b, i int) int64 { return shown(call*n+b, a, i) }
	total := func(b, i int) (s int64) {
		for a := range n {
			s += one(a, b, i)
		}
		return s
	}
	ins := collective.Blocks(plan.In, r, root, n)
	outs := collective.Blocks(plan.Out, r, root, n)
	in, out = in[:ins*size], out[:outs*size]
	clear(out)
	for i := range in {
		in[i] = one(r, i/size, i%size)
	}
	if collective == plan.Scatter && r != root {
		in = nil
	}
	send, recv := mem.Bytes(in), mem.Bytes(out)
	var err error
	var want func(block, i int) int64
	switch collective {
	case plan.Barrier:
		return c.Barrier(ctx)
	case plan.Broadcast:
		err = c.Broadcast(ctx, send, recv, mem.I64, root)
		want = func(_, i int) int64 { return one(root, 0, i) }
	case plan.Reduction:
		err = c.Reduce(ctx, send, recv, mem.I64, mem.Sum, root)
		want = func(_, i int) int64 { return total(0, i) }
	case plan.AllReduce:
		err = c.AllReduce(ctx, send, recv, mem.I64, mem.Sum)
		want = func(_, i int) int64 { return total(0, i) }
	case plan.Gather:
		err = c.Gather(ctx, send, recv, mem.I64, root)
		want = func(block, i int) int64 { return one(block, 0, i) }
	case plan.AllGather:
		err = c.AllGather(ctx, send, recv, mem.I64)
		want = func(block, i int) int64 { return one(block, 0, i) }
	case plan.Scatter:
		err = c.Scatter(ctx, send, recv, mem.I64, root)
		want = func(_, i int) int64 { return one(root, r, i) }
	case plan.ReduceScatter:
		err = c.ReduceScatter(ctx, send, recv, mem.I64, mem.Sum)
		want = func(_, i int) int64 { return total(r, i) }
	case plan.AllToAll:
		err = c.AllToAll(ctx, send, recv, mem.I64)
		want = func(block, i int) int64 { return one(block, r, i) }
	default:
		return fmt.Errorf("no test of %v", collective)
	}
	if err != nil {
		return err
	}
	for i, got := range out {
		if x := want(i/size, i%size); got != x {
			return fmt.Errorf("element %d is %d, want %d", i, got, x)
		}
	}
	return nil
}
