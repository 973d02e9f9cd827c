// Mean takes the mean of numbers that are spread over the ranks, unevenly: one
// allreduce adds up the sums and the counts together.
//
//	go run ./examples/mean
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/examples/internal/job"
	"github.com/tutti-go/tutti/mem"
)

func main() {
	ranks := flag.Int("ranks", 4, "how many ranks")
	flag.Parse()
	job.Main(*ranks, tutti.Config{}, mean)
}

func mean(ctx context.Context, r *job.Rank) error {
	// Rank r has r+1 numbers.
	numbers := shard(r.Rank())
	r.Headline("before: the numbers of each rank")
	if err := r.Say(ctx, "%v", numbers); err != nil {
		return err
	}

	// The mean of the ranks' means would be wrong, since they have different
	// numbers of numbers. So they add up sums and counts, and divide once.
	local := []float64{sum(numbers), float64(len(numbers))}
	global := make([]float64, 2)
	if err := tutti.AllReduce(ctx, r.Comm, local, global, mem.Sum); err != nil {
		return err
	}
	mean := global[0] / global[1]

	r.Headline("after: tutti.AllReduce(ctx, comm, [sum count], global, mem.Sum), then global[0] / global[1]")
	if err := r.Say(ctx, "%v -> %v, mean %v", local, global, mean); err != nil {
		return err
	}

	// What one process makes of all the numbers.
	var all []float64
	for rank := range r.Size() {
		all = append(all, shard(rank)...)
	}
	want := sum(all) / float64(len(all))
	return r.Check(ctx, mean == want, fmt.Sprintf("the mean of all %d numbers is %v", len(all), want))
}

// shard is the numbers of a rank: small integers, whose sums are exact in any
// order.
func shard(rank int) []float64 {
	numbers := make([]float64, rank+1)
	for i := range numbers {
		numbers[i] = float64(10*rank + i*i)
	}
	return numbers
}

func sum(numbers []float64) (s float64) {
	for _, x := range numbers {
		s += x
	}
	return s
}
