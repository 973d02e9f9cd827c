package algo

import "github.com/tutti-go/tutti/plan"

// mappedGenerators have every contribution go straight to who needs it: over
// memory that ranks map of each other, the callers' buffers or scratch; by
// copies of the kernel; or by puts.
var mappedGenerators = []generator{
	{"allreduce/direct", plan.AllReduce, unrooted(AllReduceDirect), func(n int) Cost { return Cost{0, share(2*(n-1), n), share(n-1, n)} }},
	{"allreduce/attach", plan.AllReduce, unrooted(AllReduceAttach), func(n int) Cost { return Cost{0, share(2*(n-1), n), share(n-1, n)} }},
	{"allreduce/staged", plan.AllReduce, unrooted(AllReduceStaged), func(n int) Cost { return Cost{2, share(4*(n-1), n), share(n-1, n)} }},
	{"allreduce/oneshot", plan.AllReduce, unrooted(AllReduceOneShot), func(n int) Cost { return Cost{1, float64(n), float64(n - 1)} }},
	{"allreduce/pairwise", plan.AllReduce, unrooted(AllReducePairwise), func(n int) Cost { return Cost{2, share(3*(n-1), n), share(n-1, n)} }},

	{"broadcast/direct", plan.Broadcast, BroadcastDirect, func(int) Cost { return Cost{0, 1, 0} }},
	{"broadcast/attach", plan.Broadcast, BroadcastAttach, func(n int) Cost { return Cost{1, share(2*n-1, n), 0} }},
	{"broadcast/staged", plan.Broadcast, BroadcastStaged, func(int) Cost { return Cost{1, 2, 0} }},
	{"broadcast/oneshot", plan.Broadcast, BroadcastOneShot, func(int) Cost { return Cost{1, 2, 0} }},

	{"reduce/direct", plan.Reduction, ReduceDirect, func(n int) Cost { return Cost{0, 1, share(n-1, n)} }},
	{"reduce/attach", plan.Reduction, ReduceAttach, func(n int) Cost { return Cost{0, 1, share(n-1, n)} }},
	{"reduce/staged", plan.Reduction, ReduceStaged, func(n int) Cost { return Cost{2, share(3*(n-1), n), share(n-1, n)} }},
	{"reduce/oneshot", plan.Reduction, ReduceOneShot, func(n int) Cost { return Cost{1, float64(n - 1), float64(n - 1)} }},
	{"reduce/pairwise", plan.Reduction, ReducePairwise, func(n int) Cost { return Cost{2, share(2*(n-1), n), share(n-1, n)} }},

	{"gather/direct", plan.Gather, GatherDirect, func(n int) Cost { return Cost{0, share(2*n-1, n*n), 0} }},
	{"gather/attach", plan.Gather, GatherAttach, func(n int) Cost { return Cost{0, share(2*n-1, n*n), 0} }},
	{"gather/staged", plan.Gather, GatherStaged, func(int) Cost { return Cost{1, 1, 0} }},
	{"gather/oneshot", plan.Gather, GatherOneShot, func(int) Cost { return Cost{1, 1, 0} }},

	{"allgather/direct", plan.AllGather, unrooted(AllGatherDirect), func(n int) Cost { return Cost{0, share(n-1, n), 0} }},
	{"allgather/attach", plan.AllGather, unrooted(AllGatherAttach), func(int) Cost { return Cost{0, 1, 0} }},
	{"allgather/staged", plan.AllGather, unrooted(AllGatherStaged), func(n int) Cost { return Cost{1, share(n+1, n), 0} }},
	{"allgather/oneshot", plan.AllGather, unrooted(AllGatherOneShot), func(n int) Cost { return Cost{1, share(n+1, n), 0} }},

	{"scatter/direct", plan.Scatter, ScatterDirect, func(n int) Cost { return Cost{0, share(2*n-1, n*n), 0} }},
	{"scatter/attach", plan.Scatter, ScatterAttach, func(n int) Cost { return Cost{0, share(2*n-1, n*n), 0} }},
	{"scatter/staged", plan.Scatter, ScatterStaged, func(int) Cost { return Cost{1, 1, 0} }},
	{"scatter/oneshot", plan.Scatter, ScatterOneShot, func(int) Cost { return Cost{1, 1, 0} }},

	{"reduce_scatter/direct", plan.ReduceScatter, unrooted(ReduceScatterDirect), func(n int) Cost { return Cost{0, share(n-1, n), share(n-1, n)} }},
	{"reduce_scatter/attach", plan.ReduceScatter, unrooted(ReduceScatterAttach), func(n int) Cost { return Cost{0, share(n-1, n), share(n-1, n)} }},
	{"reduce_scatter/staged", plan.ReduceScatter, unrooted(ReduceScatterStaged), func(n int) Cost { return Cost{1, share(2*(n-1), n), share(n-1, n)} }},
	{"reduce_scatter/oneshot", plan.ReduceScatter, unrooted(ReduceScatterOneShot), func(n int) Cost { return Cost{1, share(2*(n-1), n), share(n-1, n)} }},
	{"reduce_scatter/pairwise", plan.ReduceScatter, unrooted(ReduceScatterPairwise), func(n int) Cost { return Cost{1, share(n-1, n), share(n-1, n)} }},

	{"alltoall/direct", plan.AllToAll, unrooted(AllToAllDirect), func(int) Cost { return Cost{0, 1, 0} }},
	{"alltoall/attach", plan.AllToAll, unrooted(AllToAllAttach), func(int) Cost { return Cost{0, 1, 0} }},
	{"alltoall/staged", plan.AllToAll, unrooted(AllToAllStaged), func(n int) Cost { return Cost{1, share(2*n-1, n), 0} }},
	{"alltoall/oneshot", plan.AllToAll, unrooted(AllToAllOneShot), func(n int) Cost { return Cost{1, share(2*n-1, n), 0} }},

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

// BroadcastDirect is broadcast/direct: everything is mapped, and rank r copies
// chunk r of the root's input to everybody's Out, in one pass.
//
//	          chunk 0   chunk 1   chunk 2
//	root  In  [ a0 ]    [ a1 ]    [ a2 ]
//	          rank 0    rank 1    rank 2       each: one Copy
//	Out 0     ┌ a0 ┐    ┌ a1 ┐    ┌ a2 ┐
//	Out 1     │ a0 │    │ a1 │    │ a2 │
//	Out 2     └ a0 ┘    └ a1 ┘    └ a2 ┘
//
// The root's own Out is among the destinations; in place that is the source.
//
// Cost: b·β, in 1 step for each rank: it reads b/n from the root and writes as
// much to n-1 peers. Over all ranks every byte is read once and written once.
//
// Source: the second half of [AllReduceDirect].
func BroadcastDirect(ranks, root int) (*plan.Plan, error) {
	return author("broadcast/direct", plan.Broadcast, ranks, root, ranks, func(b *plan.Builder) {
		for r := range ranks {
			b.Copy(r, plan.In.At(root, r), each(ranks, func(q int) plan.Place { return plan.Out.At(q, r) })...)
		}
	})
}

// ReduceDirect is reduce/direct: everything is mapped, and rank r reduces chunk
// r of all inputs into the root's Out, in one pass.
//
//	          chunk 0   chunk 1   chunk 2
//	In  0     ┌ a0 ┐    ┌ a1 ┐    ┌ a2 ┐
//	In  1     │ b0 │    │ b1 │    │ b2 │
//	In  2     └ c0 ┘    └ c1 ┘    └ c2 ┘
//	          rank 0    rank 1    rank 2       each: one Reduce
//	root Out  [ Σ0 ]    [ Σ1 ]    [ Σ2 ]
//
// Cost: b·β + (n-1)/n·b·γ, in 1 step for each rank: it reads b/n from n-1 peers
// and writes as much to the root.
//
// Source: the first half of [AllReduceDirect].
func ReduceDirect(ranks, root int) (*plan.Plan, error) {
	return author("reduce/direct", plan.Reduction, ranks, root, ranks, func(b *plan.Builder) {
		for r := range ranks {
			b.Reduce(r, []plan.Place{plan.Out.At(root, r)}, each(ranks, func(q int) plan.Place { return plan.In.At(q, r) })...)
		}
	})
}

// GatherDirect is gather/direct: everything is mapped, and rank k copies piece
// k of every input to the root's Out, so that all cores are at work and not
// only the root's.
//
//	         piece 0   piece 1   piece 2
//	In  0   [ a0 ]    [ a1 ]    [ a2 ]   ─►  Out[0] ┐
//	In  1   [ b0 ]    [ b1 ]    [ b2 ]   ─►  Out[1] │ root
//	In  2   [ c0 ]    [ c1 ]    [ c2 ]   ─►  Out[2] ┘
//	         rank 0    rank 1    rank 2       each: n Copies
//
// Cost: (2n-1)/n²·b·β, in n steps for each rank: it copies b/n in all, mostly
// from peers to the root.
//
// Source: the copies of [BroadcastDirect], with other places.
func GatherDirect(ranks, root int) (*plan.Plan, error) {
	return author("gather/direct", plan.Gather, ranks, root, ranks, func(b *plan.Builder) {
		for k := range ranks {
			for i := range ranks {
				q := (k + i) % ranks // at any moment all copy another block
				b.Copy(k, plan.In.At(q, k), plan.Out.At(root, q*ranks+k))
			}
		}
	})
}

// ScatterDirect is scatter/direct: everything is mapped, and rank k copies piece
// k of every block of the root's In to the rank that it is for.
//
//	              piece 0   piece 1   piece 2
//	     ┌ In[0]  [ a0 ]    [ a1 ]    [ a2 ]   ─►  Out 0
//	root │ In[1]  [ b0 ]    [ b1 ]    [ b2 ]   ─►  Out 1
//	     └ In[2]  [ c0 ]    [ c1 ]    [ c2 ]   ─►  Out 2
//	              rank 0    rank 1    rank 2       each: n Copies
//
// Cost: (2n-1)/n²·b·β, in n steps for each rank: it copies b/n in all, mostly
// from the root to peers.
//
// Source: the mirror image of [GatherDirect].
func ScatterDirect(ranks, root int) (*plan.Plan, error) {
	return author("scatter/direct", plan.Scatter, ranks, root, ranks, func(b *plan.Builder) {
		for k := range ranks {
			for i := range ranks {
				q := (k + i) % ranks
				b.Copy(k, plan.In.At(root, q*ranks+k), plan.Out.At(q, k))
			}
		}
	})
}

// AllGatherDirect is allgather/direct: everything is mapped, and every rank
// copies its input to everybody's Out, in one pass.
//
//	        block 0   block 1   block 2
//	         In 0      In 1      In 2
//	         rank 0    rank 1    rank 2       each: one Copy
//	Out 0   ┌ a  ┐    ┌ b  ┐    ┌ c  ┐
//	Out 1   │ a  │    │ b  │    │ c  │
//	Out 2   └ a  ┘    └ b  ┘    └ c  ┘
//
// Cost for each rank: (n-1)/n·b·β, in 1 step: b/n written to n-1 peers and to
// its own Out. Every byte is read once and written once.
//
// Source: the second half of [AllReduceDirect].
func AllGatherDirect(ranks int) (*plan.Plan, error) {
	return author("allgather/direct", plan.AllGather, ranks, 0, 1, func(b *plan.Builder) {
		for r := range ranks {
			b.Copy(r, plan.In.At(r, 0), each(ranks, func(q int) plan.Place { return plan.Out.At(q, r) })...)
		}
	})
}

// ReduceScatterDirect is reduce_scatter/direct: everything is mapped, and every
// rank reduces its block of all inputs into its own Out, in one pass.
//
//	        block 0   block 1   block 2
//	In  0   ┌ a0 ┐    ┌ a1 ┐    ┌ a2 ┐
//	In  1   │ b0 │    │ b1 │    │ b2 │
//	In  2   └ c0 ┘    └ c1 ┘    └ c2 ┘
//	         rank 0    rank 1    rank 2       each: one Reduce
//	         Out 0     Out 1     Out 2
//
// Cost for each rank: (n-1)/n·b·β + (n-1)/n·b·γ, in 1 step.
//
// Source: the first half of [AllReduceDirect].
func ReduceScatterDirect(ranks int) (*plan.Plan, error) {
	return author("reduce_scatter/direct", plan.ReduceScatter, ranks, 0, 1, func(b *plan.Builder) {
		for r := range ranks {
			b.Reduce(r, []plan.Place{plan.Out.At(r, 0)}, each(ranks, func(q int) plan.Place { return plan.In.At(q, r) })...)
		}
	})
}

// AllToAllDirect is alltoall/direct: everything is mapped, and every rank pulls
// its blocks, its right neighbour's first, so that at any moment all read from
// different peers.
//
//	rank 0               rank 1               rank 2
//	In1[0] ─► Out[1]     In2[1] ─► Out[2]     In0[2] ─► Out[0]
//	In2[0] ─► Out[2]     In0[1] ─► Out[0]     In1[2] ─► Out[1]
//	In0[0] ─► Out[0]     In1[1] ─► Out[1]     In2[2] ─► Out[2]
//
// Cost for each rank: b·β, in n steps: (n-1)/n·b read from peers, b/n copied.
//
// Source: the pairwise exchange of R. Thakur, R. Rabenseifner, W. Gropp,
// "Optimization of collective communication operations in MPICH", Int. J. High
// Performance Computing Applications 19(1), 2005, with reading in place of
// sending.
func AllToAllDirect(ranks int) (*plan.Plan, error) {
	return pullAllToAll("alltoall/direct", ranks)
}

// pullAllToAll is alltoall/direct and alltoall/attach.
func pullAllToAll(name string, ranks int) (*plan.Plan, error) {
	return author(name, plan.AllToAll, ranks, 0, 1, func(b *plan.Builder) {
		for r := range ranks {
			others(ranks, r, func(q int) { b.Copy(r, plan.In.At(q, r), plan.Out.At(r, q)) })
			b.Copy(r, plan.In.At(r, r), plan.Out.At(r, r))
		}
	})
}
