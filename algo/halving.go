package algo

import (
	"math/bits"
	"slices"

	"github.com/tutti-go/tutti/plan"
)

// halving returns the rounds of a recursive halving of the ranks [0, n). In
// each round a group parts into a lower and an upper half, and each rank puts
// its sums of the other half's blocks to the rank across. Where the lower half
// has a rank more, that one puts each of them to the rank that it is for, and
// hears nothing.
func halving(n int) [][]move {
	var rounds [][]move
	for groups := []span{{0, n}}; len(groups) < n; {
		var round []move
		var halves []span
		for _, g := range groups {
			if g.hi-g.lo == 1 {
				halves = append(halves, g)
				continue
			}
			round = append(round, part(g)...)
			halves = append(halves, g.lower(), g.upper())
		}
		rounds = append(rounds, inTurn(n, round))
		groups = halves
	}
	return rounds
}

// A span is the ranks from lo to before hi, and their blocks.
type span struct{ lo, hi int }

func (g span) lower() span { return span{g.lo, (g.lo + g.hi + 1) / 2} }
func (g span) upper() span { return span{(g.lo + g.hi + 1) / 2, g.hi} }

// part returns the moves of the round in which a group becomes two.
func part(g span) []move {
	var moves []move
	low, up := g.lower(), g.upper()
	across := up.lo - low.lo
	for r := up.lo; r < up.hi; r++ {
		moves = append(moves, handOver(r-across, r, up)...)
		moves = append(moves, handOver(r, r-across, low)...)
	}
	if extra := low.hi - 1; extra+across == up.hi {
		for c := up.lo; c < up.hi; c++ {
			moves = append(moves, move{extra, c, c})
		}
	}
	return moves
}

// handOver returns the moves of a group's blocks to one of its ranks: first
// those that it will hand over in the next round, and so on; its own is last.
func handOver(from, to int, g span) []move {
	if g.hi-g.lo == 1 {
		return []move{{from, to, to}}
	}
	keep, away := g.lower(), g.upper()
	if to >= away.lo {
		keep, away = away, keep
	}
	var moves []move
	for c := away.lo; c < away.hi; c++ {
		moves = append(moves, move{from, to, c})
	}
	return append(moves, handOver(from, to, keep)...)
}

// inTurn orders moves so that all senders' first ones come first, then all
// senders' second ones.
func inTurn(n int, moves []move) []move {
	turn, sent := make(map[move]int), make([]int, n)
	for _, m := range moves {
		turn[m] = sent[m.from]
		sent[m.from]++
	}
	slices.SortStableFunc(moves, func(a, b move) int { return turn[a] - turn[b] })
	return moves
}

// backwards returns the allgather that is a reduce-scatter run backwards.
func backwards(rounds [][]move) [][]move {
	var back [][]move
	for _, round := range slices.Backward(rounds) {
		var moves []move
		for _, m := range slices.Backward(round) {
			moves = append(moves, move{m.to, m.from, m.block})
		}
		back = append(back, moves)
	}
	return back
}

// hops returns how many waits the rounds of a halving come to. 5 ranks take no
// more than 4, nor 10 more than 8: an odd group's extra rank waits for nobody.
func hops(n int) int { return min(bits.Len(uint(n-1)), bits.Len(uint(n-1)/5)+2) }

// halves returns ⌈n/2⌉ + ⌈n/4⌉ + ... + 1: how many blocks the rank that hears
// most gets in a halving. For powers of two it is n-1.
func halves(n int) int {
	sum := 0
	for n > 1 {
		n = (n + 1) / 2
		sum += n
	}
	return sum
}

// ReduceScatterHalving is reduce_scatter/halving: in every round the ranks of
// a group part into two halves, and each rank hands its sums for the other
// half to the rank across. The group that a rank cares for halves each time,
// and what it has summed up doubles.
//
//	n = 8      0 1 2 3 4 5 6 7
//	round 0    └───────┘           0↔4 1↔5 2↔6 3↔7, 4 blocks each way
//	round 1    └───┘   └───┘       0↔2 1↔3 4↔6 5↔7, 2 blocks
//	round 2    └─┘ └─┘ └─┘ └─┘     0↔1 2↔3 4↔5 6↔7, 1 block
//
//	n = 5      0 1 2 │ 3 4         0↔3 1↔4, and from 2 one block to 3, one to 4
//	           0 1 │ 2   3 │ 4     0↔2 3↔4, and from 1 one block to 2
//	           0 │ 1               0↔1
//
// The lower half of an odd group has an extra rank. It hands each block to the
// rank that this is for, and hears nothing in that round. So no number of
// ranks makes a rank stand aside, every rank sends each block but its own
// exactly once, and one that hears most combines hardly more than others.
//
// Cost for each rank, with b the bytes of n blocks: ⌈log2 n⌉·α + (n-1)/n·b·β +
// (n-1)/n·b·γ for powers of two. For others it is at most ⌈log2 n⌉·α, as many
// bytes, and (⌈n/2⌉ + ⌈n/4⌉ + ... + 1)/n·b·γ. Nothing needs to be mapped or
// exposed.
//
// Each sum that waits for another round has scratch of its own besides the
// chunks that puts go to: about 3n/2 chunks in all.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
// Communication Operations in MPICH", Int. J. High Performance Computing
// Applications 19(1), 2005, for powers of two; the odd groups are ours.
func ReduceScatterHalving(ranks int) (*plan.Plan, error) {
	const name = "reduce_scatter/halving"
	if ranks == 1 {
		return alone(name, plan.ReduceScatter)
	}
	x := newExchange(plan.NewBuilder(name, plan.ReduceScatter, ranks, 1), ranks, ranks, mine)
	x.combine(halving(ranks))
	return x.Plan()
}

// AllReduceHalvingDoubling is allreduce/halving-doubling: a reduce-scatter by
// [ReduceScatterHalving], then an allgather by [AllGatherDoubling] along the
// same pairs in the opposite order.
//
//	n = 4              chunk  0 1 2 3
//	0↔2 1↔3   halve    rank 0 ■ ■ · ·   2 chunks each way
//	0↔1 2↔3   halve    rank 0 Σ · · ·   1 chunk
//	0↔1 2↔3   double   rank 0 Σ Σ · ·   1 chunk
//	0↔2 1↔3   double   rank 0 Σ Σ Σ Σ   2 chunks
//
// Cost for each rank: 2·log2 n·α + 3(n-1)/n·b·β + (n-1)/n·b·γ for powers of
// two: as many bytes as [AllReduceRing], in fewer rounds; but each rank talks
// to log2 n others. For other rank counts it is at most 2⌈log2 n⌉·α, and with
// h = ⌈n/2⌉ + ⌈n/4⌉ + ... + 1, which is less than n+log2 n, (2(n-1) + h)/n·b·β
// + h/n·b·γ. Nothing needs to be mapped or exposed.
//
// Source: R. Rabenseifner, "Optimization of Collective Reduction Operations",
// ICCS 2004, for powers of two; the odd groups are ours.
func AllReduceHalvingDoubling(ranks int) (*plan.Plan, error) {
	const name = "allreduce/halving-doubling"
	if ranks == 1 {
		return alone(name, plan.AllReduce)
	}
	x := newExchange(plan.NewBuilder(name, plan.AllReduce, ranks, ranks), ranks, ranks, plan.Out.At)
	rounds := halving(ranks)
	x.spread(x.combine(rounds), backwards(rounds))
	return x.Plan()
}
