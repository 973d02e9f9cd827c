package algo

import (
	"math/bits"

	"github.com/tutti-go/tutti/plan"
)

// putOnly is the reach of every plan of this family.
var putOnly = always(plan.Reach{PeerPut: true})

var exchangePromises = map[string]promise{
	"allreduce/ring": {
		counts: func(n int) counts {
			return counts{steps: 4 * n * (n - 1), moves: 2 * n * (n - 1), puts: 2 * n * (n - 1), copies: n * (n - 1), skew: 2 * (n - 1)}
		},
		reach: putOnly,
	},
	"allreduce/halving-doubling": {
		counts: func(n int) counts {
			return counts{steps: 4*n*(n-1) - joined(n), moves: 2 * n * (n - 1), puts: 2 * n * (n - 1), copies: n * (n - 1), skew: 2 * hops(n)}
		},
		reach: putOnly,
	},
	"allreduce/doubling": {
		counts: func(n int) counts {
			rounds := log2(n)
			m, skew := 1<<rounds, rounds
			aside := n - m
			if aside > 0 {
				skew = -1 // see TestDoublingSkew
			}
			puts := m*rounds + 2*aside
			return counts{steps: 2*m*rounds + 4*aside, moves: puts, puts: puts, copies: aside, skew: skew}
		},
		reach: putOnly,
	},
	"reduce_scatter/ring": {
		counts: func(n int) counts {
			return counts{steps: 2 * n * (n - 1), moves: n * (n - 1), puts: n * (n - 1), skew: n - 1}
		},
		reach: putOnly,
	},
	"reduce_scatter/halving": {
		counts: func(n int) counts {
			return counts{steps: 2*n*(n-1) - joined(n), moves: n * (n - 1), puts: n * (n - 1), skew: hops(n)}
		},
		reach: putOnly,
	},
	"allgather/ring":     {counts: func(n int) counts { return gathered(n, n-1) }, reach: putOnly},
	"allgather/doubling": {counts: func(n int) counts { return gathered(n, hops(n)) }, reach: putOnly},
	"allgather/bruck":    {counts: func(n int) counts { return gathered(n, log2(n)) }, reach: putOnly},
	"broadcast/scatter-allgather": {
		counts: func(n int) counts {
			m := n - 1
			return counts{steps: m * (2*m + 1), moves: m * m, puts: m * m, copies: m * (m + 1), skew: m}
		},
		reach: putOnly,
	},
	"alltoall/pairwise": {counts: func(n int) counts { return gathered(n, 1) }, reach: putOnly},
	"alltoall/bruck": {
		counts: func(n int) counts {
			return counts{steps: n * (n + ones(n)), moves: n * ones(n), puts: n * ones(n), copies: n * n, skew: log2(n)}
		},
		reach: putOnly,
	},
	"barrier/dissemination": {
		counts: func(n int) counts {
			rounds := bits.Len(uint(n - 1))
			return counts{steps: 2 * n * rounds, moves: n * rounds, puts: n * rounds, skew: -1}
		},
		reach: putOnly,
	},
}

// gathered are the counts where each rank gets a block from every other, each
// with one put, and copies it to Out.
func gathered(n, skew int) counts {
	return counts{steps: n * (2*n - 1), moves: n * (n - 1), puts: n * (n - 1), copies: n * n, skew: skew}
}

// joined returns how many reductions of a halving have three sources: one for
// each rank in the upper half of an odd group.
func joined(n int) int {
	if n < 2 {
		return 0
	}
	here := 0
	if n%2 == 1 {
		here = n / 2
	}
	return here + joined(n/2) + joined(n-n/2)
}
