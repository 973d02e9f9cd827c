// Tpdp crosses tensor parallelism with data parallelism on 8 ranks: a layer
// y = x·w is cut in two parts, and there are four replicas of it, each with a
// batch of its own.
//
//	            part 0  part 1
//	replica 0   rank 0  rank 1   <- a tensor-parallel group: 4 of 2 ranks
//	replica 1   rank 2  rank 3
//	replica 2   rank 4  rank 5
//	replica 3   rank 6  rank 7
//	              ^ a data-parallel group: 2 of 4 ranks
//
// The parts of a replica add up their partial products, while the replicas of a
// part average the gradient of its weights. Groups may work at the same time,
// also where they share ranks: each rank does both at once, on two goroutines.
//
//	go run ./examples/tpdp
package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/examples/internal/job"
	"github.com/tutti-go/tutti/mem"
)

const (
	parts, replicas       = 2, 4
	batch, inner, outputs = 2, 4, 3 // x is batch × inner, w is inner × outputs
	share                 = inner / parts
)

func main() { job.Main(parts*replicas, tutti.Config{}, step) }

func step(ctx context.Context, r *job.Rank) error {
	replica, part := r.Rank()/parts, r.Rank()%parts

	// Groups come in two ways: by a color, which ranks of a group have in common
	// (and a key, by which they are numbered) ...
	tp, err := r.Split(ctx, replica, part)
	if err != nil {
		return err
	}
	// ... or by a list of ranks.
	var members []int
	for q := range replicas {
		members = append(members, q*parts+part)
	}
	dp, err := r.Group(ctx, members)
	if err != nil {
		return err
	}
	r.Headline("groups: each rank's numbers in them")
	if err := r.Say(ctx, "tensor parallel: %d of %d, data parallel: %d of %d", tp.Rank(), tp.Size(), dp.Rank(), dp.Size()); err != nil {
		return err
	}

	// Of x a rank has the columns of its part, and of w the rows.
	x := columns(inputs(replica), part)
	w := weights()[part*share*outputs:][:share*outputs]
	partial := product(x, w, batch, share, outputs)
	// The gradient of w is xᵀ·dy; of it too a rank has the rows of its part.
	gradient := product(transposed(x, batch, share), slopes(replica), share, batch, outputs)
	r.Headline("before: the partial product, and the gradient of the rank's rows of w")
	if err := r.Say(ctx, "%3v  %6.2f", partial, gradient); err != nil {
		return err
	}

	var both sync.WaitGroup
	var errTP, errDP error
	both.Go(func() { errTP = tutti.AllReduce(ctx, tp, partial, partial, mem.Sum) })
	both.Go(func() { errDP = tutti.AllReduce(ctx, dp, gradient, gradient, mem.Avg) })
	both.Wait()
	if err := errors.Join(errTP, errDP); err != nil {
		return err
	}

	r.Headline("after: the product, the same in a replica; the mean gradient, the same for a part")
	if err := r.Say(ctx, "%3v  %6.2f", partial, gradient); err != nil {
		return err
	}

	// One process does it with whole matrices. All numbers are small integers
	// and quarters, so float32 has them exactly.
	y := product(inputs(replica), weights(), batch, inner, outputs)
	mean := make([]float32, inner*outputs)
	for q := range replicas {
		for i, g := range product(transposed(inputs(q), batch, inner), slopes(q), inner, batch, outputs) {
			mean[i] += g / replicas
		}
	}
	err = r.Check(ctx, slices.Equal(partial, y), "one process comes to the same product")
	return errors.Join(err,
		r.Check(ctx, slices.Equal(gradient, mean[part*len(gradient):][:len(gradient)]), "one process comes to the same gradient"),
		tp.Close(), dp.Close())
}

// product is the rows × columns product of a, rows × depth, and b, depth ×
// columns. All matrices lie row by row.
func product(a, b []float32, rows, depth, columns int) []float32 {
	c := make([]float32, rows*columns)
	for i := range rows {
		for k := range depth {
			for j := range columns {
				c[i*columns+j] += a[i*depth+k] * b[k*columns+j]
			}
		}
	}
	return c
}

func transposed(a []float32, rows, columns int) []float32 {
	t := make([]float32, len(a))
	for i := range rows {
		for j := range columns {
			t[j*rows+i] = a[i*columns+j]
		}
	}
	return t
}

// columns is a part's columns of x.
func columns(x []float32, part int) (cut []float32) {
	for i := range batch {
		cut = append(cut, x[i*inner+part*share:][:share]...)
	}
	return cut
}

// The numbers: x and dy differ from replica to replica, w does not.
func inputs(replica int) []float32 { return numbers(batch*inner, 3+replica) }
func slopes(replica int) []float32 { return numbers(batch*outputs, 5-replica) }
func weights() []float32           { return numbers(inner*outputs, 2) }

func numbers(n, seed int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32((i*seed+seed)%7 - 3)
	}
	return x
}
