// Reducescatter adds up a matrix of each rank and leaves rank r with row r of
// the sum: half of an allreduce, for those who need only their share.
//
//	rank 0   rank 1    sum
//	-1  5     3 -3     2  2   -> rank 0
//	 2  2     4  1     6  3   -> rank 1
//
//	go run ./examples/reducescatter
package main

import (
	"context"
	"slices"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/examples/internal/job"
	"github.com/tutti-go/tutti/mem"
)

// A matrix lies in memory row by row. With two ranks it is two blocks, and
// block r is row r.
var (
	matrices = [][]int32{
		{-1, 5, 2, 2},
		{3, -3, 4, 1},
	}
	rowsOfSum = [][]int32{{2, 2}, {6, 3}}
)

func main() { job.Main(len(matrices), tutti.Config{}, reduceScatter) }

func reduceScatter(ctx context.Context, r *job.Rank) error {
	send, recv := matrices[r.Rank()], make([]int32, 2)
	r.Headline("before: the matrix of each rank")
	if err := r.Say(ctx, "[%v %v]", send[:2], send[2:]); err != nil {
		return err
	}
	if err := tutti.ReduceScatter(ctx, r.Comm, send, recv, mem.Sum); err != nil {
		return err
	}
	r.Headline("after: tutti.ReduceScatter(ctx, comm, send, recv, mem.Sum)")
	if err := r.Say(ctx, "%v", recv); err != nil {
		return err
	}
	return r.Check(ctx, slices.Equal(recv, rowsOfSum[r.Rank()]), "each rank has its row of the sum")
}
