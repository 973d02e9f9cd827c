package algo

import "github.com/tutti-go/tutti/plan"

var treePromises = map[string]promise{
	"allreduce/tree": {
		counts: func(n int) counts {
			return counts{steps: 3*(n-1) + n/2, moves: 2 * (n - 1), puts: 2 * (n - 1), copies: n - 1, skew: 2 * log2(n)}
		},
		reach: always(plan.Reach{PeerPut: true}),
	},
}
