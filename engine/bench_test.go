package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/shm"
	"github.com/tutti-go/tutti/tune"
)

// BenchmarkCollective measures two ranks of one process, each on a core of its
// own, with the algorithm that is chosen and with each that can be forced. The
// size is nccl-tests': of the buffer that has a block for every rank, if one
// has. commbench measures processes, and is the one to quote.
func BenchmarkCollective(b *testing.B) {
	for _, c := range plan.Collectives() {
		if c == plan.Barrier {
			continue
		}
		for _, kind := range []string{"alloc", "user"} {
			names := []string{""}
			for _, name := range []string{"oneshot", "attach", "staged"} {
				if kind == "user" {
					names = append(names, c.String()+"/"+name)
				}
			}
			for _, name := range names {
				for _, size := range []int{8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20} {
					if name == c.String()+"/oneshot" && size > tune.OneShotBytes {
						continue
					}
					label := name
					if label == "" {
						label = c.String() + "/auto"
					}
					b.Run(fmt.Sprintf("%s/%s/%d", label, kind, size), func(b *testing.B) {
						benchCollective(b, c, name, size, kind == "alloc")
					})
				}
			}
		}
	}
}

func benchCollective(b *testing.B, collective plan.Collective, name string, size int, registered bool) {
	const n = 2
	ex := bootstrap.Memory(n)
	choose := chooseOnly(collective, name)
	loop := func(r int, timed bool) error {
		ctx := context.Background()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer pinThread(r)()
		fabric, err := shm.Open(ctx, ex[r], nil)
		if err != nil {
			return err
		}
		c, err := engine.New(ctx, engine.Config{
			Rank: r, Size: n, Exchanger: ex[r], Fabric: fabric, Plan: algo.NewOver, Choose: choose,
		})
		if err != nil {
			return err
		}
		defer c.Close()
		// Every rank has room for whatever the collective wants of it.
		block := size
		if collective.Blocks(plan.In, 0, 0, n) == n || collective.Blocks(plan.Out, 0, 0, n) == n {
			block = max(4, size/n)
		}
		var bufs [2][]byte
		for i := range bufs {
			bufs[i] = make([]byte, n*block)
			if registered {
				shared, err := c.Alloc(n * block)
				if err != nil {
					return err
				}
				bufs[i] = shared.Bytes()
			}
		}
		in := bufs[0][:collective.Blocks(plan.In, r, 0, n)*block]
		out := bufs[1][:collective.Blocks(plan.Out, r, 0, n)*block]
		call := collectiveCall(c, collective, in, out)
		for range 3 { // bind and map
			if err := call(ctx); err != nil {
				return err
			}
		}
		if timed {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
		}
		for range b.N {
			if err := call(ctx); err != nil {
				return err
			}
		}
		if timed {
			b.StopTimer()
		}
		return c.Barrier(ctx)
	}
	peer := make(chan error)
	go func() { peer <- loop(1, false) }()
	if err := loop(0, true); err != nil {
		b.Fatal(err)
	}
	if err := <-peer; err != nil {
		b.Fatal(err)
	}
}

// collectiveCall returns a call of sums of f32, with root 0.
func collectiveCall(c *engine.Comm, collective plan.Collective, in, out []byte) func(context.Context) error {
	return func(ctx context.Context) error {
		switch collective {
		case plan.AllReduce:
			return c.AllReduce(ctx, in, out, mem.F32, mem.Sum)
		case plan.Broadcast:
			return c.Broadcast(ctx, in, out, mem.F32, 0)
		case plan.Reduction:
			return c.Reduce(ctx, in, out, mem.F32, mem.Sum, 0)
		case plan.Gather:
			return c.Gather(ctx, in, out, mem.F32, 0)
		case plan.AllGather:
			return c.AllGather(ctx, in, out, mem.F32)
		case plan.Scatter:
			return c.Scatter(ctx, in, out, mem.F32, 0)
		case plan.ReduceScatter:
			return c.ReduceScatter(ctx, in, out, mem.F32, mem.Sum)
		case plan.AllToAll:
			return c.AllToAll(ctx, in, out, mem.F32)
		}
		return c.Barrier(ctx)
	}
}

// chooseOnly insists on an algorithm for a collective, if one is named.
func chooseOnly(collective plan.Collective, name string) func(tune.Request) tune.Choice {
	return func(r tune.Request) tune.Choice {
		if name != "" && r.Collective == collective {
			return tune.For(name, r)
		}
		return tune.Choose(r)
	}
}
