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
	{"allreduce/halving-doubling", plan.AllReduce, unrooted(AllReduceHalvingDoubling), func(n int) Cost {
		return Cost{2 * hops(n), share(2*(n-1)+halves(n), n), share(halves(n), n)}
	}},
	{"allreduce/doubling", plan.AllReduce, unrooted(AllReduceDoubling), func(n int) Cost {
		return Cost{doublingHops(n), share(ceilLog2(n), 1), share(ceilLog2(n), 1)}
	}},
	{"reduce_scatter/ring", plan.ReduceScatter, unrooted(ReduceScatterRing), func(n int) Cost {
		return Cost{n - 1, share(n-1, n), share(n-1, n)}
	}},
	{"reduce_scatter/halving", plan.ReduceScatter, unrooted(ReduceScatterHalving), func(n int) Cost {
		return Cost{hops(n), share(n-1, n), share(halves(n), n)}
	}},
	{"allgather/ring", plan.AllGather, unrooted(AllGatherRing), func(n int) Cost {
		return Cost{n - 1, share(2*n-1, n), 0}
	}},
	{"allgather/doubling", plan.AllGather, unrooted(AllGatherDoubling), func(n int) Cost {
		return Cost{hops(n), share(n+halves(n), n), 0}
	}},
	{"allgather/bruck", plan.AllGather, unrooted(AllGatherBruck), func(n int) Cost {
		return Cost{bits.Len(uint(n)) - 1, share(2*n-1, n), 0}
	}},
	{"broadcast/scatter-allgather", plan.Broadcast, BroadcastScatterAllGather, func(n int) Cost {
		return Cost{n - 1, 2, 0}
	}},
	{"alltoall/pairwise", plan.AllToAll, unrooted(AllToAllPairwise), func(n int) Cost {
		return Cost{1, share(2*n-1, n), 0}
	}},
	{"alltoall/bruck", plan.AllToAll, unrooted(AllToAllBruck), func(n int) Cost {
		return Cost{bits.Len(uint(n)) - 1, share(n+ones(n), n), 0}
	}},
	{"barrier/dissemination", plan.Barrier, unrooted(BarrierDissemination), func(n int) Cost {
		return Cost{Alpha: bits.Len(uint(n - 1))}
	}},
}

// around returns the rounds of a ring: in round k every rank r puts block
// r+first-k to its right neighbour, that is, what it got in round k-1.
func around(n, first int) [][]move {
	rounds := make([][]move, n-1)
	for k := range rounds {
		for r := range n {
			rounds[k] = append(rounds[k], move{r, (r + 1) % n, (r + first - k + 2*n) % n})
		}
	}
	return rounds
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
	x := newExchange(plan.NewBuilder(name, plan.AllReduce, ranks, ranks), ranks, ranks, plan.Out.At)
	x.spread(x.combine(around(ranks, 0)), around(ranks, 1))
	return x.Plan()
}

// ReduceScatterRing is reduce_scatter/ring: the first half of
// [AllReduceRing], in which a block ends at the rank that it is for.
//
//	          step k = 0 .. n-2
//	rank r:   S[k] ◄── put ── left     block c = r-2-k, the sum of k+1 ranks
//	          S[k] + In[c] ─► S[k]     ── put ─► right's S[k+1]
//	          S[k] + In[c] ─► Out      at the last step, c = r: complete
//
// Cost for each rank, with b the bytes of n blocks: (n-1)·α + (n-1)/n·b·β +
// (n-1)/n·b·γ, in 2(n-1) steps: n-1 puts and n-1 reductions. No algorithm can
// send or combine less. Nothing needs to be mapped or exposed.
//
// Source: as [AllReduceRing].
func ReduceScatterRing(ranks int) (*plan.Plan, error) {
	const name = "reduce_scatter/ring"
	if ranks == 1 {
		return alone(name, plan.ReduceScatter)
	}
	x := newExchange(plan.NewBuilder(name, plan.ReduceScatter, ranks, 1), ranks, ranks, mine)
	x.combine(around(ranks, -1))
	return x.Plan()
}

// mine is where a rank's own block ends in a reduce-scatter.
func mine(rank, _ int) plan.Place { return plan.Out.At(rank, 0) }

// AllGatherRing is allgather/ring: the second half of [AllReduceRing]. A
// block goes around until everybody has it.
//
//	          step k = 0 .. n-2
//	rank r:   S[k] ◄── put ── left      block c = r-1-k
//	          S[k] ─► Out[c]            ── put ─► right's S[k+1]
//
// Cost for each rank, with b the bytes of n blocks: (n-1)·α + (2n-1)/n·b·β,
// in 2n-1 steps: n-1 puts, n-1 copies out of scratch and one of its own block.
// Nothing needs to be mapped or exposed.
//
// Source: as [AllReduceRing].
func AllGatherRing(ranks int) (*plan.Plan, error) {
	const name = "allgather/ring"
	if ranks == 1 {
		return alone(name, plan.AllGather)
	}
	x := newExchange(plan.NewBuilder(name, plan.AllGather, ranks, 1), ranks, ranks, plan.Out.At)
	x.spread(own(ranks), around(ranks, 0))
	return x.Plan()
}
