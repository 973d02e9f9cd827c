package algo

import "github.com/tutti-go/tutti/plan"

// The pairwise algorithms put every contribution straight to the rank that
// reduces it, so that one step can reduce all of them in rank order: the
// results are those of the direct algorithms to the bit, see
// [plan.Plan.RankOrder], and nothing needs to be mapped or exposed.

// AllReducePairwise is allreduce/pairwise: every rank puts chunk c of its input
// to rank c, which reduces all of them in one step and puts the result to all
// others.
//
//	rank 0                  rank 1                  rank 2
//	In[1] ─► S1  In[2]─►S2  In[2] ─► S2  In[0]─►S0  In[0] ─► S0  In[1]─►S1   put
//	Out[0], S = In+S+S      Out[1], S = S+In+S      Out[2], S = S+S+In       reduce
//	S ─► S1, S2             S ─► S2, S0             S ─► S0, S1              put
//	S ─► Out[1], Out[2]     S ─► Out[2], Out[0]     S ─► Out[0], Out[1]      copy
//
// Inputs and results have scratch of their own, so that a chunk of scratch is
// held for two stages only. The result is put from scratch, not from Out: where
// scratch holds codes of elements, it is then coded once, for all ranks alike.
//
// Cost for each rank: 2α + 3(n-1)/n·b·β + (n-1)/n·b·γ, in 3n-2 steps: 2(n-1)
// puts of 2(n-1)/n·b, as much as a ring sends but to n-1 peers, a reduction,
// and n-1 copies out of scratch.
//
// Source: the pairwise exchange for reduce-scatter and allgather of R. Thakur,
// R. Rabenseifner, W. Gropp, "Optimization of collective communication
// operations in MPICH", Int. J. High Performance Computing Applications 19(1),
// 2005, with one reduction for all that has arrived.
func AllReducePairwise(ranks int) (*plan.Plan, error) {
	return author("allreduce/pairwise", plan.AllReduce, ranks, 0, ranks, func(b *plan.Builder) {
		result := func(r, c int) plan.Place { return plan.Scratch.At(r, ranks-1+seat(ranks, r, c)) }
		made := func(r int) plan.Place { return plan.Scratch.At(r, 2*(ranks-1)) }
		putToOwners(b, ranks)
		for r := range ranks {
			reduceArrived(b, ranks, r, plan.Out.At(r, r), made(r))
		}
		for r := range ranks {
			others(ranks, r, func(q int) { b.Copy(r, made(r), result(q, r)) })
		}
		for r := range ranks {
			others(ranks, r, func(c int) { b.Copy(r, result(r, c), plan.Out.At(r, c)) })
		}
	})
}

// arrived is where the contribution of rank q arrives at rank r.
func arrived(n, r, q int) plan.Place { return plan.Scratch.At(r, seat(n, r, q)) }

// putToOwners lets every rank put chunk q of its input to rank q.
func putToOwners(b *plan.Builder, n int) {
	for r := range n {
		others(n, r, func(q int) { b.Copy(r, plan.In.At(r, q), arrived(n, q, r)) })
	}
}

// reduceArrived lets rank r reduce chunk r.
func reduceArrived(b *plan.Builder, n, r int, to ...plan.Place) {
	b.Reduce(r, to,
		contributions(n, r, plan.In.At(r, r), func(q int) plan.Place { return arrived(n, r, q) })...)
}

// ReduceScatterPairwise is reduce_scatter/pairwise: every rank puts block q of
// its input to rank q, which reduces all of them in one step.
//
//	rank 0                  rank 1                  rank 2
//	In[1] ─► S1  In[2]─►S2  In[2] ─► S2  In[0]─►S0  In[0] ─► S0  In[1]─►S1
//	Out = In[0]+S+S         Out = S+In[1]+S         Out = S+S+In[2]
//
// Cost for each rank: α + (n-1)/n·b·β + (n-1)/n·b·γ, in n steps: n-1 puts and a
// reduction.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, 2005, as
// [AllReducePairwise].
func ReduceScatterPairwise(ranks int) (*plan.Plan, error) {
	return author("reduce_scatter/pairwise", plan.ReduceScatter, ranks, 0, 1, func(b *plan.Builder) {
		putToOwners(b, ranks)
		for r := range ranks {
			reduceArrived(b, ranks, r, plan.Out.At(r, 0))
		}
	})
}

// ReducePairwise is reduce/pairwise: every rank puts chunk c of its input to
// rank c, which reduces all of them in one step and puts the result to the
// root.
//
//	rank 0, the root        rank 1                  rank 2
//	In[1] ─► S1  In[2]─►S2  In[2] ─► S2  In[0]─►S0  In[0] ─► S0  In[1]─►S1   put
//	Out[0] = In+S+S         S1 = S+In+S             S2 = S+S+In              reduce
//	                        S1 ─► S0                S2 ─► S0                 put
//	S0 ─► Out[1], Out[2]                                                     copy
//
// Cost: 2α + 2(n-1)/n·b·β + (n-1)/n·b·γ. That is the root: n-1 puts and n-1
// copies of b/n; the others have n puts. n²+2n-2 steps.
//
// Source: the reduce-scatter and gather of R. Rabenseifner, as in R. Thakur,
// R. Rabenseifner, W. Gropp, 2005, both pairwise.
func ReducePairwise(ranks, root int) (*plan.Plan, error) {
	return author("reduce/pairwise", plan.Reduction, ranks, root, ranks, func(b *plan.Builder) {
		result := func(c int) plan.Place { return plan.Scratch.At(root, ranks-1+seat(ranks, root, c)) }
		putToOwners(b, ranks)
		reduceArrived(b, ranks, root, plan.Out.At(root, root))
		others(ranks, root, func(r int) {
			sum := plan.Scratch.At(r, 0) // a contribution until then
			reduceArrived(b, ranks, r, sum)
			b.Copy(r, sum, result(r))
		})
		others(ranks, root, func(c int) { b.Copy(root, result(c), plan.Out.At(root, c)) })
	})
}
