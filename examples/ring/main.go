// Ring is an allreduce written by hand, with messages to the next rank only. Each
// rank sends 2(n-1)/n of the vector, and no algorithm gets by with less.
//
// The vector is cut into n chunks. In the first n-1 steps every rank passes a
// chunk on and adds the one it gets to its own: after them, rank r has all of
// chunk r+1. In n-1 more steps the finished chunks go once around.
//
//	go run ./examples/ring
package main

import (
	"context"
	"flag"
	"slices"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/examples/internal/job"
	"github.com/tutti-go/tutti/mem"
)

func main() {
	ranks := flag.Int("ranks", 4, "how many ranks")
	flag.Parse()
	job.Main(*ranks, tutti.Config{}, compare)
}

func compare(ctx context.Context, r *job.Rank) error {
	// Two elements a chunk, and one more, so that chunks are not all alike.
	x := make([]int64, 2*r.Size()+1)
	for i := range x {
		x[i] = int64(100*r.Rank() + i)
	}
	engines := slices.Clone(x)
	r.Headline("before: the vector of each rank")
	if err := r.Say(ctx, "%d", x); err != nil {
		return err
	}
	if err := allReduce(ctx, r, x); err != nil {
		return err
	}
	r.Headline("after: %d steps of tutti.SendRecv(ctx, comm, chunk, next, incoming, previous)", 2*(r.Size()-1))
	if err := r.Say(ctx, "%d", x); err != nil {
		return err
	}
	if err := tutti.AllReduce(ctx, r.Comm, engines, engines, mem.Sum); err != nil {
		return err
	}
	return r.Check(ctx, slices.Equal(x, engines), "tutti.AllReduce comes to the same")
}

// allReduce leaves the sum of all ranks' x in every rank's x.
func allReduce(ctx context.Context, r *job.Rank, x []int64) error {
	n, rank := r.Size(), r.Rank()
	next, previous := (rank+1)%n, (rank+n-1)%n
	chunk := func(i int) []int64 { // chunks are numbered around the ring
		i = (i%n + n) % n
		return x[len(x)*i/n : len(x)*(i+1)/n]
	}
	incoming := make([]int64, len(x)/n+1)

	// Reduce-scatter: a chunk grows by one rank's share with every step.
	for step := range n - 1 {
		mine := chunk(rank - step - 1)
		got := incoming[:len(mine)]
		if err := tutti.SendRecv(ctx, r.Comm, chunk(rank-step), next, got, previous); err != nil {
			return err
		}
		for i := range mine {
			mine[i] += got[i]
		}
	}
	// Allgather: finished chunks replace unfinished ones.
	for step := range n - 1 {
		if err := tutti.SendRecv(ctx, r.Comm, chunk(rank+1-step), next, chunk(rank-step), previous); err != nil {
			return err
		}
	}
	return nil
}
