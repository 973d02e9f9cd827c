package tutti_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/mem"
)

// Ranks are processes as a rule, started with [bootstrap.Launch], and find
// each other by themselves: they leave Exchanger nil. Here two goroutines
// stand for them.
func ExampleAllReduce() {
	rank := func(ctx context.Context, ex bootstrap.Exchanger) ([]float32, error) {
		comm, err := tutti.Init(ctx, tutti.Config{Exchanger: ex})
		if err != nil {
			return nil, err
		}
		defer comm.Close()
		buf, err := comm.Alloc(4 * 4)
		if err != nil {
			return nil, err
		}
		x := mem.Slice[float32](buf.Bytes())
		for i := range x {
			x[i] = float32(10*comm.Rank() + i)
		}
		if err := tutti.AllReduce(ctx, comm, x, x, mem.Sum); err != nil {
			return nil, err
		}
		return append([]float32{}, x...), nil // Close unmaps what Alloc gave
	}

	results := make([]any, 2)
	var ranks sync.WaitGroup
	for i, ex := range bootstrap.Memory(2) {
		ranks.Go(func() {
			sums, err := rank(context.Background(), ex)
			if results[i] = sums; err != nil {
				results[i] = err
			}
		})
	}
	ranks.Wait()
	fmt.Println(results[0])
	fmt.Println(results[1])
	// Output:
	// [10 12 14 16]
	// [10 12 14 16]
}
