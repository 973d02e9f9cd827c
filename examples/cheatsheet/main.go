// Cheatsheet makes every call once, on a few elements, and prints for each rank
// what it had and what it got.
//
// Element i of rank r is 10r+i, so that each shows where it came from.
//
//	go run ./examples/cheatsheet
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/examples/internal/job"
	"github.com/tutti-go/tutti/mem"
)

func main() {
	ranks := flag.Int("ranks", 4, "how many ranks, 2 to 9")
	flag.Parse()
	job.Main(*ranks, tutti.Config{}, cheatsheet)
}

// entry is one call: how it is written, what this rank brings, and what it is to
// get. Nil stands for a slice that this rank has no use for.
type entry struct {
	call       string
	send, want []int32
	run        func(send, recv []int32) error
}

func cheatsheet(ctx context.Context, r *job.Rank) error {
	comm, n, rank := r.Comm, r.Size(), r.Rank()
	if n < 2 || n > 9 {
		return fmt.Errorf("%d ranks; want 2 to 9", n)
	}
	next, previous := (rank+1)%n, (rank+n-1)%n
	at := func(owner int, x []int32) []int32 { // x on that rank alone
		if rank != owner {
			return nil
		}
		return x
	}
	pair, all := row(rank, 0, 2), row(rank, 0, n)

	// In the v forms blocks differ: those for ranks 0, 1, 2, ... have 1, 2, 1,
	// ... elements. The own one begins behind those for the ranks before.
	counts, fromEach := make([]int, n), make([]int, n)
	var blocks []int32
	total, before := 0, 0
	for q := range counts {
		counts[q], fromEach[q] = 1+q%2, 1+rank%2
		blocks = append(blocks, row(q, 0, counts[q])...)
		if total += counts[q]; q < rank {
			before += counts[q]
		}
	}
	mine := counts[rank]
	block, uneven := row(rank, 0, mine), row(rank, 0, total)
	r.Headline("the calls, with n = %d ranks; counts = %v, and fromEach holds n times the own one", n, counts)

	right := true
	for _, e := range []entry{
		{"AllReduce(ctx, comm, send, recv, mem.Sum)", pair, over(n, sum, 0, 2),
			func(send, recv []int32) error { return tutti.AllReduce(ctx, comm, send, recv, mem.Sum) }},
		{"AllReduce(ctx, comm, send, recv, mem.Max)", pair, row(n-1, 0, 2),
			func(send, recv []int32) error { return tutti.AllReduce(ctx, comm, send, recv, mem.Max) }},
		{"Broadcast(ctx, comm, send, recv, 1)", at(1, pair), row(1, 0, 2),
			func(send, recv []int32) error { return tutti.Broadcast(ctx, comm, send, recv, 1) }},
		{"Reduce(ctx, comm, send, recv, mem.Sum, 1)", pair, at(1, over(n, sum, 0, 2)),
			func(send, recv []int32) error { return tutti.Reduce(ctx, comm, send, recv, mem.Sum, 1) }},
		{"Gather(ctx, comm, send, recv, 1)", pair, at(1, over(n, concat, 0, 2)),
			func(send, recv []int32) error { return tutti.Gather(ctx, comm, send, recv, 1) }},
		{"AllGather(ctx, comm, send, recv)", pair, over(n, concat, 0, 2),
			func(send, recv []int32) error { return tutti.AllGather(ctx, comm, send, recv) }},
		{"Scatter(ctx, comm, send, recv, 1)", at(1, all), row(1, rank, 1),
			func(send, recv []int32) error { return tutti.Scatter(ctx, comm, send, recv, 1) }},
		{"ReduceScatter(ctx, comm, send, recv, mem.Sum)", all, over(n, sum, rank, 1),
			func(send, recv []int32) error { return tutti.ReduceScatter(ctx, comm, send, recv, mem.Sum) }},
		{"AllToAll(ctx, comm, send, recv)", all, over(n, concat, rank, 1),
			func(send, recv []int32) error { return tutti.AllToAll(ctx, comm, send, recv) }},
		{"GatherV(ctx, comm, send, recv, counts, 1)", block, at(1, blocks),
			func(send, recv []int32) error { return tutti.GatherV(ctx, comm, send, recv, counts, 1) }},
		{"AllGatherV(ctx, comm, send, recv, counts)", block, blocks,
			func(send, recv []int32) error { return tutti.AllGatherV(ctx, comm, send, recv, counts) }},
		{"ScatterV(ctx, comm, send, counts, recv, 1)", at(1, uneven), row(1, before, mine),
			func(send, recv []int32) error { return tutti.ScatterV(ctx, comm, send, counts, recv, 1) }},
		{"ReduceScatterV(ctx, comm, send, recv, counts, mem.Sum)", uneven, over(n, sum, before, mine),
			func(send, recv []int32) error {
				return tutti.ReduceScatterV(ctx, comm, send, recv, counts, mem.Sum)
			}},
		{"AllToAllV(ctx, comm, send, counts, recv, fromEach)", uneven, over(n, concat, before, mine),
			func(send, recv []int32) error { return tutti.AllToAllV(ctx, comm, send, counts, recv, fromEach) }},
		{"SendRecv(ctx, comm, send, next, recv, previous)", pair, row(previous, 0, 2),
			func(send, recv []int32) error { return tutti.SendRecv(ctx, comm, send, next, recv, previous) }},
		{"Send(ctx, comm, send, 1) on rank 0, Recv(ctx, comm, recv, 0) on rank 1", at(0, pair), at(1, row(0, 0, 2)),
			func(send, recv []int32) error {
				switch rank {
				case 0:
					return tutti.Send(ctx, comm, send, 1)
				case 1:
					return tutti.Recv(ctx, comm, recv, 0)
				}
				return nil
			}},
		{"comm.Barrier(ctx)", nil, nil, func(_, _ []int32) error { return comm.Barrier(ctx) }},
	} {
		var recv []int32
		if e.want != nil {
			recv = make([]int32, len(e.want))
		}
		if err := e.run(e.send, recv); err != nil {
			return err
		}
		r.Headline("%s", e.call)
		if err := r.Say(ctx, "%-20s -> %s", show(e.send), show(recv)); err != nil {
			return err
		}
		right = right && slices.Equal(recv, e.want)
	}
	return r.Check(ctx, right, "every rank got what it was to get")
}

// row is count elements of rank r, from element i on.
func row(r, i, count int) []int32 {
	x := make([]int32, count)
	for k := range x {
		x[k] = int32(10*r + i + k)
	}
	return x
}

func sum(x, y []int32) []int32 {
	for i := range y {
		x[i] += y[i]
	}
	return x
}

func concat(x, y []int32) []int32 { return append(x, y...) }

// over combines the same elements of all ranks.
func over(n int, combine func(x, y []int32) []int32, i, count int) []int32 {
	x := row(0, i, count)
	for r := 1; r < n; r++ {
		x = combine(x, row(r, i, count))
	}
	return x
}

// show prints a slice, and - for none.
func show(x []int32) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%2d", x)
}
