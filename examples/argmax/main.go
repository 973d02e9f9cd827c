// Argmax finds where the greatest of all elements is, in a vector of which each
// rank has a piece. Of equal ones it is the first, by index in the whole vector:
// the answer does not depend on how the vector is cut.
//
//	go run ./examples/argmax
package main

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/examples/internal/job"
	"github.com/tutti-go/tutti/mem"
)

// vector is what is searched. 9 is in it three times.
var vector = []float32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 9, 8, 9, 3, 2}

func main() {
	ranks := flag.Int("ranks", 4, "how many ranks, at most 16")
	flag.Parse()
	job.Main(*ranks, tutti.Config{}, argmax)
}

func argmax(ctx context.Context, r *job.Rank) error {
	if r.Size() > len(vector) {
		return fmt.Errorf("%d ranks share %d elements; want one for each at least", r.Size(), len(vector))
	}
	from, to := len(vector)*r.Rank()/r.Size(), len(vector)*(r.Rank()+1)/r.Size()
	piece := vector[from:to]
	first := firstGreatest(piece)
	r.Headline("before: the piece of each rank, and where its greatest is")
	if err := r.Say(ctx, "[%2d:%2d] = %v: %v at %d", from, to, piece, piece[first], from+first); err != nil {
		return err
	}

	// 1. The greatest value.
	greatest := []float32{piece[first]}
	if err := tutti.AllReduce(ctx, r.Comm, greatest, greatest, mem.Max); err != nil {
		return err
	}
	// 2. The least index at which somebody has it. Who does not have it offers
	// an index that is greater than any.
	index := []int64{math.MaxInt64}
	if piece[first] == greatest[0] {
		index[0] = int64(from + first)
	}
	offered := "nothing"
	if index[0] != math.MaxInt64 {
		offered = fmt.Sprint(index[0])
	}
	if err := tutti.AllReduce(ctx, r.Comm, index, index, mem.Min); err != nil {
		return err
	}

	r.Headline("after: AllReduce of the values by mem.Max, then of the indices that have it by mem.Min")
	if err := r.Say(ctx, "greatest %v; offers %s; argmax %d", greatest[0], offered, index[0]); err != nil {
		return err
	}
	want := firstGreatest(vector)
	return r.Check(ctx, index[0] == int64(want), fmt.Sprintf("one process finds it at %d", want))
}

// firstGreatest is the index of the greatest element, the first of equal ones.
func firstGreatest(x []float32) int {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return best
}
