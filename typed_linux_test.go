package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
)

// together runs f as every rank of a job of n goroutines.
func together(t *testing.T, n int, cfg tutti.Config, f func(ctx context.Context, c *tutti.Comm) error) {
	t.Helper()
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for r, ex := range bootstrap.Memory(n) {
		ranks.Go(func() {
			cfg := cfg
			cfg.Exchanger = ex
			c, err := tutti.Init(t.Context(), cfg)
			if err == nil {
				err = errors.Join(f(t.Context(), c), c.Barrier(t.Context()), c.Close())
			}
			errs[r] = err
		})
	}
	ranks.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestTyped makes every call with blocks of two elements, the element i of a
// block for rank q being 100·(the rank that sends) + 10·q + i; in v forms the
// block of rank q has q elements.
func TestTyped(t *testing.T) {
	const n, root = 3, 1
	at := func(from, to, i int) int16 { return int16(100*from + 10*to + i) }
	together(t, n, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		r := c.Rank()
		var mine, toAll, fromAll, fromAll0, sums, toAllV, fromAllV []int16
		for i := range 2 {
			mine = append(mine, at(r, 0, i))
			sums = append(sums, at(0, 0, i)+at(1, 0, i)+at(2, 0, i))
		}
		for q := range n {
			for i := range 2 {
				toAll = append(toAll, at(r, q, i))
				fromAll = append(fromAll, at(q, r, i))
				fromAll0 = append(fromAll0, at(q, 0, i))
			}
			for i := range q {
				toAllV = append(toAllV, at(r, q, i))
			}
			for i := range r {
				fromAllV = append(fromAllV, at(q, r, i))
			}
		}
		counts, alike := []int{0, 1, 2}, []int{r, r, r}
		own := toAllV[r*(r-1)/2:][:r]
		var everyOwn []int16 // each rank's own block
		var rootRow []int16  // what the root sends to r
		var column []int16   // the sum of what all send to r
		for q := range n {
			for i := range q {
				everyOwn = append(everyOwn, at(q, q, i))
			}
		}
		for i := range r {
			rootRow = append(rootRow, at(root, r, i))
			column = append(column, at(0, r, i)+at(1, r, i)+at(2, r, i))
		}
		sumTo := func(to int) (s []int16) {
			for i := range 2 {
				s = append(s, at(0, to, i)+at(1, to, i)+at(2, to, i))
			}
			return s
		}
		atRoot := func(want []int16) []int16 {
			if r != root {
				return make([]int16, len(want))
			}
			return want
		}
		next, last := (r+1)%n, (r+n-1)%n
		for _, k := range []struct {
			name string
			want []int16
			call func(recv []int16) error
		}{
			{"AllReduce", sums, func(recv []int16) error { return tutti.AllReduce(ctx, c, mine, recv, mem.Sum) }},
			{"Broadcast", []int16{at(root, 0, 0), at(root, 0, 1)}, func(recv []int16) error { return tutti.Broadcast(ctx, c, mine, recv, root) }},
			{"Reduce", atRoot(sums), func(recv []int16) error { return tutti.Reduce(ctx, c, mine, recv, mem.Sum, root) }},
			{"Gather", atRoot(fromAll0), func(recv []int16) error { return tutti.Gather(ctx, c, mine, recv, root) }},
			{"AllGather", fromAll0, func(recv []int16) error { return tutti.AllGather(ctx, c, mine, recv) }},
			{"Scatter", []int16{at(root, r, 0), at(root, r, 1)}, func(recv []int16) error { return tutti.Scatter(ctx, c, toAll, recv, root) }},
			{"ReduceScatter", sumTo(r), func(recv []int16) error { return tutti.ReduceScatter(ctx, c, toAll, recv, mem.Sum) }},
			{"AllToAll", fromAll, func(recv []int16) error { return tutti.AllToAll(ctx, c, toAll, recv) }},
			{"GatherV", atRoot(everyOwn), func(recv []int16) error { return tutti.GatherV(ctx, c, own, recv, counts, root) }},
			{"AllGatherV", everyOwn, func(recv []int16) error { return tutti.AllGatherV(ctx, c, own, recv, counts) }},
			{"ScatterV", rootRow, func(recv []int16) error { return tutti.ScatterV(ctx, c, toAllV, counts, recv, root) }},
			{"ReduceScatterV", column, func(recv []int16) error { return tutti.ReduceScatterV(ctx, c, toAllV, recv, counts, mem.Sum) }},
			{"AllToAllV", fromAllV, func(recv []int16) error { return tutti.AllToAllV(ctx, c, toAllV, counts, recv, alike) }},
			{"SendRecv", []int16{at(last, 0, 0), at(last, 0, 1)}, func(recv []int16) error { return tutti.SendRecv(ctx, c, mine, next, recv, last) }},
			{"Send, Recv", []int16{at(last, 0, 0), at(last, 0, 1)}, func(recv []int16) error {
				if r == 0 {
					return errors.Join(tutti.Send(ctx, c, mine, next), tutti.Recv(ctx, c, recv, last))
				}
				return errors.Join(tutti.Recv(ctx, c, recv, last), tutti.Send(ctx, c, mine, next))
			}},
		} {
			recv := make([]int16, len(k.want))
			if err := k.call(recv); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			if !slices.Equal(recv, k.want) {
				return fmt.Errorf("%s: %v, want %v", k.name, recv, k.want)
			}
		}
		return nil
	})
}

// TestFixedOrder holds sums of floats to the bits of a loop over the ranks.
func TestFixedOrder(t *testing.T) {
	const n = 5
	value := func(r, i int) float32 { return float32(r*r*r+1) / float32(3*i+7) * float32(1-2*(r%2)) }
	together(t, n, tutti.Config{FixedOrder: true}, func(ctx context.Context, c *tutti.Comm) error {
		for _, size := range []int{1, 100, 3000, 200_000} {
			x := make([]float32, size)
			for i := range x {
				x[i] = value(c.Rank(), i)
			}
			if err := tutti.AllReduce(ctx, c, x, x, mem.Avg); err != nil {
				return err
			}
			for i, got := range x {
				want := value(0, i)
				for r := 1; r < n; r++ {
					want += value(r, i)
				}
				if want /= n; got != want {
					return fmt.Errorf("element %d of %d: %v, want %v", i, size, got, want)
				}
			}
		}
		return nil
	})
}

func TestFixedOrderRefusesOthers(t *testing.T) {
	together(t, 2, tutti.Config{FixedOrder: true, Algo: "allreduce/ring"}, func(ctx context.Context, c *tutti.Comm) error {
		x := make([]float32, 100_000)
		var bad *engine.ArgumentError
		if err := tutti.AllReduce(ctx, c, x, x, mem.Sum); !errors.As(err, &bad) {
			return fmt.Errorf("got %w, want an ArgumentError", err)
		}
		return nil
	})
}
