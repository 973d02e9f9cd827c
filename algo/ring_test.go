package algo

import (
	"math/bits"

	"github.com/tutti-go/tutti/plan"
)

var exchangePromises = map[string]promise{
	"allreduce/ring": {
		counts: func(n int) counts {
			return counts{steps: 4 * n * (n - 1), moves: 2 * n * (n - 1), puts: 2 * n * (n - 1), copies: n * (n - 1), skew: 2 * (n - 1)}
		},
		reach: always(plan.Reach{PeerPut: true}),
	},
	"barrier/dissemination": {
		counts: func(n int) counts {
			rounds := bits.Len(uint(n - 1))
			return counts{steps: 2 * n * rounds, moves: n * rounds, puts: n * rounds, skew: -1}
		},
		reach: always(plan.Reach{PeerPut: true}),
	},
}
