package algo

import "github.com/tutti-go/tutti/plan"

// mappedGenerators work on memory that ranks map of each other: the callers'
// buffers, or scratch.
var mappedGenerators = []generator{
	{"allreduce/direct", plan.AllReduce, unrooted(AllReduceDirect), func(n int) Cost {
		return Cost{0, share(2*(n-1), n), share(n-1, n)}
	}},
	{"allreduce/oneshot", plan.AllReduce, unrooted(AllReduceOneShot), func(n int) Cost {
		return Cost{1, share(n, 1), share(n-1, 1)}
	}},
	{"allreduce/staged", plan.AllReduce, unrooted(AllReduceStaged), func(n int) Cost {
		return Cost{2, share(4*(n-1), n), share(n-1, n)}
	}},
	{"barrier/direct", plan.Barrier, unrooted(BarrierDirect), func(int) Cost { return Cost{Alpha: 1} }},
}

// AllReduceDirect is allreduce/direct: everything is mapped, and rank r reduces chunk
// r straight out of all inputs and into all outputs, in one pass.
//
//	         chunk 0   chunk 1   chunk 2
//	In  0   ┌ a0 ┐    ┌ a1 ┐    ┌ a2 ┐
//	In  1   │ b0 │    │ b1 │    │ b2 │
//	In  2   └ c0 ┘    └ c1 ┘    └ c2 ┘
//	         rank 0    rank 1    rank 2       each: one Reduce
//	Out 0   ┌ Σ0 ┐    ┌ Σ1 ┐    ┌ Σ2 ┐
//	Out 1   │ Σ0 │    │ Σ1 │    │ Σ2 │
//	Out 2   └ Σ0 ┘    └ Σ1 ┘    └ Σ2 ┘
//
// Cost for each rank: 2(n-1)/n·b·β + (n-1)/n·b·γ, in 1 step, which waits for
// nobody once all have arrived; over all ranks every byte is read once and
// written once, which no algorithm on shared memory can beat. Sources are in
// rank order, whoever reduces.
//
// Source: the one-pass form of the direct reduce-scatter and allgather for
// shared memory; R. L. Graham, G. Shipman, "MPI Support for Multi-core
// Architectures: Optimized Shared Memory Collectives", EuroPVM/MPI 2008.
func AllReduceDirect(ranks int) (*plan.Plan, error) {
	const name = "allreduce/direct"
	if ranks == 1 {
		return alone(name, plan.AllReduce)
	}
	b := plan.NewBuilder(name, plan.AllReduce, ranks, ranks)
	for r := range ranks {
		b.Reduce(r,
			each(ranks, func(q int) plan.Place { return plan.Out.At(q, r) }),
			each(ranks, func(q int) plan.Place { return plan.In.At(q, r) })...)
	}
	return b.Plan()
}
