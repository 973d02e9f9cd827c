package algo

import "github.com/tutti-go/tutti/plan"

// AllReduceStaged is allreduce/staged: the direct algorithm for buffers that peers
// cannot map. What peers must read passes through mapped scratch, a tile at
// a time, so that it stays in the cache.
//
//	rank 0                    rank 1                    rank 2
//	In[1]→S[1] In[2]→S[2]     In[0]→S[0] In[2]→S[2]     In[0]→S[0] In[1]→S[1]
//	Σ0 = In+S1[0]+S2[0]       Σ1 = S0[1]+In+S2[1]       Σ2 = S0[2]+S1[2]+In
//	 →Out[0], S1[0], S2[0]     →Out[1], S0[1], S2[1]     →Out[2], S0[2], S1[2]
//	S[1]→Out[1] S[2]→Out[2]   S[0]→Out[0] S[2]→Out[2]   S[0]→Out[0] S[1]→Out[1]
//
// The result goes back to where the inputs came from (Sq is the scratch of
// rank q). The reducing core has just read those lines, and the rank that
// takes the result out has them at hand when it fills them for the next tile.
// So, with two ranks, a line goes to the reducer and back, where a result in
// the reducer's own scratch moves a second set of lines to and fro. More ranks
// pay for it with n-1 stores of each result instead of one, and no line is
// fetched by more than one of them. A chunk of scratch lives through all three
// stages: at a depth below 3 they do not overlap.
//
// Cost for each rank: 2α + 4(n-1)/n·b·β + (n-1)/n·b·γ, in 2n-1 steps:
// (n-1)/n·b copied to its own scratch, the same read from peers and written
// back to them, and the same copied out of its own scratch.
//
// Source: the copy-in copy-out form of [AllReduceDirect], as in R. L. Graham,
// G. Shipman, EuroPVM/MPI 2008; writing back where the inputs were is ours.
func AllReduceStaged(ranks int) (*plan.Plan, error) {
	const name = "allreduce/staged"
	if ranks == 1 {
		return alone(name, plan.AllReduce)
	}
	b := plan.NewBuilder(name, plan.AllReduce, ranks, ranks)
	// Rank r begins with its right neighbour's chunk, so that at any moment
	// the ranks take the results of different peers.
	others := func(r int, f func(c int)) {
		for k := 1; k < ranks; k++ {
			f((r + k) % ranks)
		}
	}
	for r := range ranks {
		others(r, func(c int) { b.Copy(r, plan.In.At(r, c), plan.Scratch.At(r, c)) })
	}
	for r := range ranks {
		b.Reduce(r,
			each(ranks, func(q int) plan.Place {
				if q == r {
					return plan.Out.At(r, r)
				}
				return plan.Scratch.At(q, r)
			}),
			each(ranks, func(q int) plan.Place {
				if q == r {
					return plan.In.At(r, r)
				}
				return plan.Scratch.At(q, r)
			})...)
	}
	for r := range ranks {
		others(r, func(c int) { b.Copy(r, plan.Scratch.At(r, c), plan.Out.At(r, c)) })
	}
	return b.Plan()
}
