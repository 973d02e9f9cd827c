package algo

import "github.com/tutti-go/tutti/plan"

// AllToAllPairwise is alltoall/pairwise: every rank puts every other its block,
// in an order in which at any time each gets one: in round k the ranks r and
// r xor k swap if n is a power of two; else rank r puts to r+k while r-k puts
// to it.
//
//	n = 4     round 1   round 2   round 3
//	rank 0    ↔ 1       ↔ 2       ↔ 3
//	rank 1    ↔ 0       ↔ 3       ↔ 2
//	rank 2    ↔ 3       ↔ 0       ↔ 1
//	rank 3    ↔ 2       ↔ 1       ↔ 0
//
// Cost for each rank, with b the bytes of n blocks: α + (2n-1)/n·b·β, in 2n-1
// steps: n-1 puts, n-1 copies out of scratch and one of its own block. No put
// waits for another: the rounds are only an order. Nothing needs to be mapped
// or exposed.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
// Communication Operations in MPICH", Int. J. High Performance Computing
// Applications 19(1), 2005.
func AllToAllPairwise(ranks int) (*plan.Plan, error) {
	n := ranks
	x := newExchange(plan.NewBuilder("alltoall/pairwise", plan.AllToAll, n, 1), n, n, plan.Out.At)
	arrived := make([]holding, n)
	for r := range n {
		arrived[r] = holding{r, plan.In.At(r, r)}
	}
	for k := 1; k <= n; k++ {
		came := make([]holding, n)
		for r := range n {
			if to := partner(r, k, n); k < n {
				came[to] = holding{r, x.put(plan.In.At(r, to), to)}
			}
		}
		for r, h := range arrived {
			x.Copy(r, h.at, plan.Out.At(r, h.block))
		}
		arrived = came
	}
	return x.Plan()
}

// partner returns whom rank r of n puts to in round k.
func partner(r, k, n int) int {
	if n&(n-1) == 0 {
		return r ^ k
	}
	return (r + k) % n
}
