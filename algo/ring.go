package algo

import (
	"math/bits"

	"github.com/tutti-go/tutti/plan"
)

// exchangeGenerators let all ranks send and receive at the same time.
var exchangeGenerators = []generator{
	{"allreduce/ring", plan.AllReduce, unrooted(AllReduceRing), func(n int) Cost {
		return Cost{2 * (n - 1), share(3*(n-1), n), share(n-1, n)}
	}},
	{"barrier/dissemination", plan.Barrier, unrooted(BarrierDissemination), func(n int) Cost {
		return Cost{Alpha: bits.Len(uint(n - 1))}
	}},
}

// AllReduceRing is allreduce/ring: every rank puts only to its right neighbour. Going
// once around, each chunk collects all contributions (reduce-scatter); going
// around again, the sums reach everybody (allgather).
//
//	          reduce-scatter, step k = 0 .. n-2
//	rank r:   S[k] ◄── put ── left     chunk c = r-1-k, the sum of k+1 ranks
//	          S[k] + In[c] ─► S[k]     ── put ─► right's S[k+1]
//	          S[k] + In[c] ─► Out[c]   at the last step, c = r+1: complete
//
//	          allgather, step k = 0 .. n-2
//	rank r:   S[n-1+k] ◄── put ── left      chunk c = r-k, complete
//	          S[n-1+k] ─► Out[c]            ── put ─► right's S[n+k]
//
// Cost for each rank: 2(n-1)·α + 3(n-1)/n·b·β + (n-1)/n·b·γ, in 4(n-1)
// steps: 2(n-1) puts of 2(n-1)/n·b, which is the least that any algorithm can
// send, n-1 reductions and n-1 copies out of scratch. Puts go to scratch only,
// so nothing needs to be mapped or exposed.
//
// Each step has scratch of its own. Sharing a chunk between the two rounds
// would be correct, but would hold it for n steps and end the pipelining.
//
// Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms
// for clusters of workstations", J. Parallel Distrib. Comput. 69(2), 2009.
func AllReduceRing(ranks int) (*plan.Plan, error) {
	const name = "allreduce/ring"
	if ranks == 1 {
		return alone(name, plan.AllReduce)
	}
	n := ranks
	b := plan.NewBuilder(name, plan.AllReduce, n, n)
	mod := func(i int) int { return (i + 2*n) % n }
	for k := range n - 1 {
		for r := range n {
			c := mod(r - k)
			from := plan.In.At(r, c)
			if k > 0 {
				from = plan.Scratch.At(r, k-1)
			}
			b.Copy(r, from, plan.Scratch.At(mod(r+1), k))
		}
		for r := range n {
			c := mod(r - 1 - k)
			sum := plan.Scratch.At(r, k)
			to := sum
			if k == n-2 {
				to = plan.Out.At(r, c)
			}
			b.Reduce(r, []plan.Place{to}, sum, plan.In.At(r, c))
		}
	}
	for k := range n {
		if k < n-1 {
			for r := range n {
				from := plan.Out.At(r, mod(r+1))
				if k > 0 {
					from = plan.Scratch.At(r, n-2+k)
				}
				b.Copy(r, from, plan.Scratch.At(mod(r+1), n-1+k))
			}
		}
		// What came in the step before: the neighbour waits for the put of
		// it, and nobody for the copy.
		if k > 0 {
			for r := range n {
				b.Copy(r, plan.Scratch.At(r, n-2+k), plan.Out.At(r, mod(r-k+1)))
			}
		}
	}
	return b.Plan()
}
