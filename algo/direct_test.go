package algo

import "github.com/tutti-go/tutti/plan"

var (
	mapped        = always(plan.Reach{PeerData: true})
	mappedScratch = always(plan.Reach{PeerScratchRead: true})
)

var mappedPromises = map[string]promise{
	"allreduce/direct": {
		counts: func(n int) counts { return counts{steps: n, moves: 2 * n * (n - 1)} },
		reach:  mapped,
	},
	"allreduce/oneshot": {
		counts: func(n int) counts { return counts{steps: 2 * n, moves: n * (n - 1), copies: n, skew: 1} },
		reach:  mappedScratch,
	},
	"allreduce/staged": {
		counts: func(n int) counts {
			return counts{steps: n * (2*n - 1), moves: 2 * n * (n - 1), copies: 2 * n * (n - 1), skew: 2, depth: 3}
		},
		reach: mappedScratch,
	},
	"barrier/direct": {
		counts: func(n int) counts { return counts{steps: 2 * n, moves: n * (n - 1), copies: n, skew: 1} },
		reach:  mappedScratch,
	},
}
