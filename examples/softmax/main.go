// Softmax normalises a row of logits that is cut into a piece for each rank, as
// the output layer of a large model is.
//
//	softmax(x)[i] = exp(x[i]-m) / Σ exp(x[j]-m), m = max(x)
//
// Without the subtraction exp would overflow here. It takes two allreduces of
// one number each; the logits never leave their ranks.
//
//	go run ./examples/softmax
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/examples/internal/job"
	"github.com/tutti-go/tutti/mem"
)

const piece = 3 // logits of a rank

func main() {
	ranks := flag.Int("ranks", 4, "how many ranks")
	flag.Parse()
	job.Main(*ranks, tutti.Config{}, softmax)
}

func softmax(ctx context.Context, r *job.Rank) error {
	x := logits(r.Rank())
	r.Headline("before: the logits of each rank; math.Exp(1000) is %v", math.Exp(1000))
	if err := r.Say(ctx, "%v", x); err != nil {
		return err
	}

	// 1. The greatest of all logits: of the local one, the greatest of all.
	greatest := []float64{slices.Max(x)}
	if err := tutti.AllReduce(ctx, r.Comm, greatest, greatest, mem.Max); err != nil {
		return err
	}
	// 2. The numerators, none above 1, and their sum.
	total := []float64{0}
	for i := range x {
		x[i] = math.Exp(x[i] - greatest[0])
		total[0] += x[i]
	}
	if err := tutti.AllReduce(ctx, r.Comm, total, total, mem.Sum); err != nil {
		return err
	}
	// 3. The quotients.
	for i := range x {
		x[i] /= total[0]
	}

	r.Headline("after: AllReduce by mem.Max gives %v, AllReduce of the exponentials by mem.Sum %.6f", greatest[0], total[0])
	if err := r.Say(ctx, "%.6f", x); err != nil {
		return err
	}

	// The same in one process. Sums in another order differ in the last bits.
	want := alone(r.Size())[piece*r.Rank():]
	near := true
	for i := range x {
		near = near && math.Abs(x[i]-want[i]) <= 1e-15
	}
	sum := []float64{0}
	for _, p := range x {
		sum[0] += p
	}
	if err := tutti.AllReduce(ctx, r.Comm, sum, sum, mem.Sum); err != nil {
		return err
	}
	if err := r.Check(ctx, near, "one process comes to the same"); err != nil {
		return err
	}
	return r.Check(ctx, math.Abs(sum[0]-1) < 1e-12, fmt.Sprintf("the probabilities add up to %.6f", sum[0]))
}

// logits are those of a rank: around 1000, where exp is infinite.
func logits(rank int) []float64 {
	x := make([]float64, piece)
	for i := range x {
		x[i] = 1000 + float64((rank*7+i*4)%13)/2
	}
	return x
}

// alone is softmax of all ranks' logits in one process.
func alone(ranks int) []float64 {
	var x []float64
	for rank := range ranks {
		x = append(x, logits(rank)...)
	}
	greatest, total := slices.Max(x), 0.0
	for i := range x {
		x[i] = math.Exp(x[i] - greatest)
		total += x[i]
	}
	for i := range x {
		x[i] /= total
	}
	return x
}
