package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/tune"
)

// smallCall is one of a long row of calls that all take the door.
type smallCall struct {
	collective plan.Collective
	root       int
	count      int // elements of a block
}

// doorPayloads are around the borders of lines and slots, in bytes.
var doorPayloads = []int{8, 40, 48, 56, 64, 1016, 4096, 8192, 32 << 10}

// drawSmallCalls draws a row in which roots and collectives stay for a while:
// only then does one rank run ahead of the others.
func drawSmallCalls(rng *rand.Rand, n, calls int) []smallCall {
	row := make([]smallCall, calls)
	var k smallCall
	for i := range row {
		if rng.IntN(6) == 0 {
			k.collective = plan.Collective(rng.IntN(int(plan.Barrier) + 1))
		}
		if rng.IntN(12) == 0 {
			k.root = rng.IntN(n)
		}
		payload := doorPayloads[rng.IntN(len(doorPayloads))]
		if rng.IntN(3) > 0 {
			payload = 8 * (1 + rng.IntN(8))
		}
		switch k.collective {
		case plan.Scatter, plan.ReduceScatter, plan.AllToAll:
			payload /= n
		}
		k.count = max(1, payload/8)
		row[i] = k
	}
	return row
}

// shown is element i of what a rank contributes to a call.
func shown(call, rank, i int) int64 { return int64(call*1_000_003 + rank*7919 + i) }

// check compares a rank's output with what the call's inputs were.
func (k *smallCall) check(call, rank, n int, out []int64) error {
	sum := func(i int) (s int64) {
		for q := range n {
			s += shown(call, q, i)
		}
		return s
	}
	for at, got := range out {
		q, i := at/k.count, at%k.count // block and element
		var want int64
		switch k.collective {
		case plan.AllReduce, plan.Reduction:
			want = sum(i)
		case plan.Broadcast:
			want = shown(call, k.root, i)
		case plan.Gather, plan.AllGather:
			want = shown(call, q, i)
		case plan.Scatter:
			want = shown(call, k.root, rank*k.count+i)
		case plan.ReduceScatter:
			want = sum(rank*k.count + i)
		case plan.AllToAll:
			want = shown(call, q, rank*k.count+i)
		}
		if got != want {
			return fmt.Errorf("call %d, %v, root %d, blocks of %d: element %d is %d, want %d",
				call, k.collective, k.root, k.count, at, got, want)
		}
	}
	return nil
}

func (k *smallCall) run(ctx context.Context, c *engine.Comm, in, out []int64) error {
	send, recv := mem.Bytes(in), mem.Bytes(out)
	switch k.collective {
	case plan.AllReduce:
		return c.AllReduce(ctx, send, recv, mem.I64, mem.Sum)
	case plan.Broadcast:
		return c.Broadcast(ctx, send, recv, mem.I64, k.root)
	case plan.Reduction:
		return c.Reduce(ctx, send, recv, mem.I64, mem.Sum, k.root)
	case plan.Gather:
		return c.Gather(ctx, send, recv, mem.I64, k.root)
	case plan.AllGather:
		return c.AllGather(ctx, send, recv, mem.I64)
	case plan.Scatter:
		return c.Scatter(ctx, send, recv, mem.I64, k.root)
	case plan.ReduceScatter:
		return c.ReduceScatter(ctx, send, recv, mem.I64, mem.Sum)
	case plan.AllToAll:
		return c.AllToAll(ctx, send, recv, mem.I64)
	}
	return c.Barrier(ctx)
}

// TestDoorInALongRow: thousands of small calls of all kinds, rooted ones and
// others, without a pause but those that each rank makes when it likes to.
func TestDoorInALongRow(t *testing.T) {
	calls := 4000
	if testing.Short() {
		calls = 1000
	}
	choose := func(r tune.Request) tune.Choice {
		shown := r.Bytes
		switch r.Collective {
		case plan.Scatter, plan.ReduceScatter, plan.AllToAll:
			shown *= r.Ranks
		}
		if shown <= tune.OneShotBytes && !r.Uneven {
			return tune.For(r.Collective.String()+"/oneshot", r)
		}
		return tune.Choose(r)
	}
	for _, m := range media[:2] {
		for _, n := range []int{2, 5} {
			t.Run(fmt.Sprintf("%s/%d", m.name, n), func(t *testing.T) {
				ex := bootstrap.Memory(n)
				fabrics := m.open(t, ex)
				row := drawSmallCalls(rand.New(rand.NewPCG(uint64(n), 5)), n, calls)
				onEveryRank(t, n, func(r int) error {
					c, err := engine.New(t.Context(), engine.Config{
						Rank: r, Size: n, Nodes: m.grouping(n), Exchanger: ex[r], Fabric: fabrics[r], Plan: algo.NewOver, Choose: choose,
						Cores: runtime.GOMAXPROCS(0), Threads: 1,
					})
					if err != nil {
						return err
					}
					defer c.Close()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					return inALongRow(ctx, c, row, rand.New(rand.NewPCG(77, uint64(r))))
				})
			})
		}
	}
}

func inALongRow(ctx context.Context, c *engine.Comm, row []smallCall, own *rand.Rand) error {
	r, n := c.Rank(), c.Size()
	in, out := make([]int64, 4096*n), make([]int64, 4096*n)
	slow := 0
	for call := range row {
		k := &row[call]
		ins := k.collective.Blocks(plan.In, r, k.root, n) * k.count
		outs := k.collective.Blocks(plan.Out, r, k.root, n) * k.count
		for i := range in[:ins] {
			in[i] = shown(call, r, i)
		}
		clear(out[:outs])
		if slow--; slow < 0 && own.IntN(400) == 0 {
			slow = own.IntN(40) // late for as many calls
		}
		switch {
		case slow > 0:
			time.Sleep(time.Duration(own.IntN(100)) * time.Microsecond)
		case own.IntN(8) == 0:
			runtime.Gosched()
		}
		if err := k.run(ctx, c, in[:ins], out[:outs]); err != nil {
			return err
		}
		if err := k.check(call, r, n, out[:outs]); err != nil {
			return err
		}
	}
	return nil
}
