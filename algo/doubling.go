package algo

import (
	"math/bits"
	"slices"

	"github.com/tutti-go/tutti/plan"
)

// AllGatherDoubling is allgather/doubling: [ReduceScatterHalving] backwards.
// Two groups tell each other what they know, each rank the one across, and are
// one group from then on.
//
//	n = 8      0 1 2 3 4 5 6 7
//	round 0    └─┘ └─┘ └─┘ └─┘     0↔1 2↔3 4↔5 6↔7, 1 block each way
//	round 1    └───┘   └───┘       0↔2 1↔3 4↔6 5↔7, 2 blocks
//	round 2    └───────┘           0↔4 1↔5 2↔6 3↔7, 4 blocks
//
//	n = 5      0 │ 1               0↔1
//	           0 1 │ 2   3 │ 4     0↔2 3↔4, and from 2 its block to 1
//	           0 1 2 │ 3 4         0↔3 1↔4, and from 3 and 4 their blocks to 2
//
// The extra rank of a group tells nobody, and hears each block from its owner.
//
// Cost for each rank, with b the bytes of n blocks: log2 n·α + (2n-1)/n·b·β
// for powers of two: n-1 puts, and n copies to Out. For other rank counts it
// is at most ⌈log2 n⌉·α, and 1 + (⌈n/2⌉ + ⌈n/4⌉ + ... + 1)/n times b·β, which
// [AllGatherBruck] does better; but here the first rounds stay among
// neighbours. Nothing needs to be mapped or exposed.
//
// Source: as [ReduceScatterHalving].
func AllGatherDoubling(ranks int) (*plan.Plan, error) {
	const name = "allgather/doubling"
	if ranks == 1 {
		return alone(name, plan.AllGather)
	}
	x := newExchange(plan.NewBuilder(name, plan.AllGather, ranks, 1), ranks, ranks, plan.Out.At)
	x.spread(own(ranks), backwards(halving(ranks)))
	return x.Plan()
}

// AllReduceDoubling is allreduce/doubling: in round k every rank and the one
// whose number differs in bit k put to each other all they have summed up, and
// both add it up. The part of the lower rank comes first at both, so that the
// sums are the same to the bit.
//
//	n = 6, of which 4 take part in the rounds: 0 2 4 5
//	fold      1→0  3→2           0 sums up 0 1, and 2 sums up 2 3
//	round 0   0↔2  4↔5           0..3, 4..5
//	round 1   0↔4  2↔5           0..5
//	unfold    0→1  2→3           the result
//
// If n is not a power of two, m = 2^⌊log2 n⌋, then n-m ranks stand aside: of
// the first 2(n-m) each odd one hands its input to the one before, and gets
// the result from there.
//
// Cost: ⌈log2 n⌉·(α + b·β + b·γ), and one α more where more than m/2 ranks
// stand aside. For short messages; nothing needs to be mapped or exposed.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
// Communication Operations in MPICH", Int. J. High Performance Computing
// Applications 19(1), 2005.
func AllReduceDoubling(ranks int) (*plan.Plan, error) {
	const name = "allreduce/doubling"
	if ranks == 1 {
		return alone(name, plan.AllReduce)
	}
	x := newExchange(plan.NewBuilder(name, plan.AllReduce, ranks, 1), ranks, 1, plan.Out.At)
	x.double(each(ranks, func(r int) plan.Place { return plan.In.At(r, 0) }))
	return x.Plan()
}

// double lets the ranks that hold the parts of a sum tell each other, in rounds,
// all they have summed up, and returns where each of them has the sum.
func (x *exchange) double(parts []plan.Place) []plan.Place {
	m := 1 << (bits.Len(uint(len(parts))) - 1)
	extra := len(parts) - m
	sums := make([]plan.Place, m) // of those who take part
	for v := range sums {
		sums[v] = parts[v+min(v, extra)]
	}
	for v := range extra {
		came := x.put(parts[2*v+1], parts[2*v].Rank)
		x.sum(&sums[v], m == 1, parts[2*v], came)
	}
	for dist := 1; dist < m; dist *= 2 {
		x.swap(sums, dist)
	}
	all := slices.Clone(sums)
	for v := range extra {
		aside := parts[2*v+1].Rank
		came := x.put(sums[v], aside)
		all = append(all, x.keep(aside, 0, came))
	}
	return all
}

// swap is a round: who is dist apart tell each other their sums, and add.
func (x *exchange) swap(sums []plan.Place, dist int) {
	came := make([]plan.Place, len(sums))
	for v, s := range sums {
		came[v^dist] = x.put(s, sums[v^dist].Rank)
	}
	last := 2*dist == len(sums)
	for v, s := range sums {
		if v&dist == 0 {
			x.sum(&sums[v], last, s, came[v])
		} else {
			x.sum(&sums[v], last, came[v], s)
		}
	}
}

// sum lets a rank add up a and b to where the sum ends, or in scratch that is
// not where either came in: the next tile needs those places before the next
// round has read the sum.
func (x *exchange) sum(to *plan.Place, last bool, a, b plan.Place) {
	r := to.Rank
	var dsts []plan.Place
	if last {
		dsts = x.ends(r, 0)
	} else {
		dsts = []plan.Place{x.scratch(r)}
	}
	x.Reduce(r, dsts, a, b)
	*to = dsts[0]
}

// doublingHops returns how many waits a doubling among n ranks comes to.
func doublingHops(n int) int {
	rounds := bits.Len(uint(n - 1))
	if aside := n - 1<<floorLog2(n); aside > 1<<floorLog2(n)/2 {
		rounds++
	}
	return rounds
}
