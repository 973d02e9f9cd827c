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
	"github.com/tutti-go/tutti/shm"
	"github.com/tutti-go/tutti/tune"
)

// BenchmarkAllReduce times two ranks of one process, in place, f32 sum.
// commbench is the honest measure, with processes; this one shows
// allocations and is quick.
func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{8, 1 << 10, 32 << 10, 64 << 10, 1 << 20, 16 << 20} {
		for _, kind := range []string{"alloc", "user"} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) { benchAllReduce(b, size, kind == "alloc") })
		}
	}
}

func benchAllReduce(b *testing.B, size int, registered bool) {
	const n = 2
	ex := bootstrap.Memory(n)
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
			Rank: r, Size: n, Exchanger: ex[r], Fabric: fabric, Plan: algo.New, Choose: tune.Choose,
		})
		if err != nil {
			return err
		}
		defer c.Close()
		buf := make([]byte, size)
		if registered {
			shared, err := c.Alloc(size)
			if err != nil {
				return err
			}
			buf = shared.Bytes()
		}
		// The first calls bind and map.
		for range 3 {
			if err := c.AllReduce(ctx, buf, buf, mem.F32, mem.Sum); err != nil {
				return err
			}
		}
		if timed {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
		}
		for range b.N {
			if err := c.AllReduce(ctx, buf, buf, mem.F32, mem.Sum); err != nil {
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
