package algo

import (
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// What the mapped family needs of the paths between ranks.
var (
	mapped        = always(plan.Reach{PeerData: true, PeerDataMapped: true})
	mappedPuts    = always(plan.Reach{PeerData: true, PeerDataMapped: true, PeerPut: true})
	attach        = always(plan.Reach{PeerData: true})
	attachPuts    = always(plan.Reach{PeerData: true, PeerPut: true})
	mappedScratch = always(plan.Reach{PeerScratchRead: true})
	putScratch    = always(plan.Reach{PeerPut: true})
)

var mappedPromises = map[string]promise{
	"allreduce/direct": {
		counts: func(n int) counts { return counts{steps: n, moves: 2 * n * (n - 1)} },
		reach:  mapped,
	},
	"allreduce/attach": {
		counts: func(n int) counts { return counts{steps: n * (2*n - 1), moves: 2 * n * (n - 1), puts: n * (n - 1)} },
		reach:  attachPuts,
	},
	"allreduce/staged": {
		counts: func(n int) counts {
			return counts{steps: n * (2*n - 1), moves: 2 * n * (n - 1), copies: 2 * n * (n - 1), skew: 2, depth: 3}
		},
		reach: mappedScratch,
	},
	"allreduce/oneshot": {
		counts: func(n int) counts { return counts{steps: 2 * n, moves: n * (n - 1), copies: n, skew: 1} },
		reach:  mappedScratch,
	},
	"allreduce/pairwise": {
		counts: func(n int) counts {
			return counts{steps: 3*n*(n-1) + n, moves: 2 * n * (n - 1), puts: 2 * n * (n - 1), copies: n * (n - 1), skew: 2}
		},
		reach: putScratch,
	},
	"broadcast/direct": {
		counts: func(n int) counts { return counts{steps: n, moves: n*n - 1} },
		reach:  mapped,
	},
	"broadcast/attach": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1), puts: n - 1, copies: n, skew: 1} },
		reach:  attachPuts,
	},
	"broadcast/staged": {
		counts: func(n int) counts { return counts{steps: n + 1, moves: n - 1, copies: 2, skew: 1} },
		reach:  mappedScratch,
	},
	"broadcast/oneshot": {
		counts: func(n int) counts { return counts{steps: n + 1, moves: n - 1, copies: 2, skew: 1} },
		reach:  mappedScratch,
	},
	"reduce/direct": {
		counts: func(n int) counts { return counts{steps: n, moves: n*n - 1} },
		reach:  mapped,
	},
	"reduce/attach": {
		counts: func(n int) counts { return counts{steps: n*n + n - 1, moves: n*n - 1, puts: n - 1} },
		reach:  attachPuts,
	},
	"reduce/staged": {
		counts: func(n int) counts {
			return counts{steps: n*n + n - 1, moves: n*n - 1, copies: n*n - 1, skew: 2, depth: 3, below: 1}
		},
		reach: mappedScratch,
	},
	"reduce/oneshot": {
		counts: func(n int) counts { return counts{steps: n, moves: n - 1, copies: n - 1, skew: 1} },
		reach:  mappedScratch,
	},
	"reduce/pairwise": {
		counts: func(n int) counts {
			return counts{steps: n*n + 2*n - 2, moves: n*n - 1, puts: n*n - 1, copies: n - 1, skew: 2}
		},
		reach: putScratch,
	},
	"gather/direct": {
		counts: func(n int) counts { return counts{steps: n * n, moves: 2 * n * (n - 1), copies: 1, puts: n - 1} },
		reach:  mappedPuts,
	},
	"gather/attach": {
		counts: func(n int) counts {
			return counts{steps: n * n, moves: n * (n - 1), copies: n, puts: (n - 1) * (n - 1)}
		},
		reach: attachPuts,
	},
	"gather/staged": {
		counts: func(n int) counts { return counts{steps: 2*n - 1, moves: n - 1, copies: n, skew: 1} },
		reach:  mappedScratch,
	},
	"gather/oneshot": {
		counts: func(n int) counts { return counts{steps: 2*n - 1, moves: n - 1, copies: n, skew: 1} },
		reach:  mappedScratch,
	},
	"scatter/direct": {
		counts: func(n int) counts { return counts{steps: n * n, moves: 2 * n * (n - 1), copies: 1, puts: n - 1} },
		reach:  mappedPuts,
	},
	"scatter/attach": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1), copies: n, puts: n - 1} },
		reach:  attachPuts,
	},
	"scatter/staged": {
		counts: func(n int) counts { return counts{steps: 2*n - 1, moves: n - 1, copies: n, skew: 1} },
		reach:  mappedScratch,
	},
	"scatter/oneshot": {
		counts: func(n int) counts { return counts{steps: 2*n - 1, moves: n - 1, copies: n, skew: 1} },
		reach:  mappedScratch,
	},
	"allgather/direct": {
		counts: func(n int) counts { return counts{steps: n, moves: n * (n - 1)} },
		reach:  mapped,
	},
	"allgather/attach": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1), puts: n * (n - 1), copies: n} },
		reach:  attachPuts,
	},
	"allgather/staged": {
		counts: func(n int) counts { return counts{steps: n * (n + 1), moves: n * (n - 1), copies: 2 * n, skew: 1} },
		reach:  mappedScratch,
	},
	"allgather/oneshot": {
		counts: func(n int) counts { return counts{steps: n * (n + 1), moves: n * (n - 1), copies: 2 * n, skew: 1} },
		reach:  mappedScratch,
	},
	"reduce_scatter/direct": {
		counts: func(n int) counts { return counts{steps: n, moves: n * (n - 1)} },
		reach:  mapped,
	},
	"reduce_scatter/attach": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1)} },
		reach:  attach,
	},
	"reduce_scatter/staged": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1), copies: n * (n - 1), skew: 1} },
		reach:  mappedScratch,
	},
	"reduce_scatter/oneshot": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1), copies: n * (n - 1), skew: 1} },
		reach:  mappedScratch,
	},
	"reduce_scatter/pairwise": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1), puts: n * (n - 1), skew: 1} },
		reach:  putScratch,
	},
	"alltoall/direct": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1), copies: n} },
		reach:  attach,
	},
	"alltoall/attach": {
		counts: func(n int) counts { return counts{steps: n * n, moves: n * (n - 1), copies: n} },
		reach:  attach,
	},
	"alltoall/staged": {
		counts: func(n int) counts { return counts{steps: n * (2*n - 1), moves: n * (n - 1), copies: n * n, skew: 1} },
		reach:  mappedScratch,
	},
	"alltoall/oneshot": {
		counts: func(n int) counts { return counts{steps: n * (2*n - 1), moves: n * (n - 1), copies: n * n, skew: 1} },
		reach:  mappedScratch,
	},
	"barrier/direct": {
		counts: func(n int) counts { return counts{steps: 2 * n, moves: n * (n - 1), copies: n, skew: 1} },
		reach:  mappedScratch,
	},
}

// TestClasses: what the name of an algorithm says of its reach and of the
// order in which it reduces.
func TestClasses(t *testing.T) {
	for _, g := range generators {
		_, kind, _ := strings.Cut(g.name, "/")
		for _, n := range []int{1, 2, 3, 4, 7, 8} {
			for _, root := range roots(g.collective, n) {
				p, err := New(g.name, n, root)
				if err != nil {
					t.Fatal(err)
				}
				r := p.Reach()
				switch kind {
				case "attach":
					if !r.AttachOnly() || r.PeerScratchRead {
						t.Errorf("%s, %d ranks: reach %+v", g.name, n, r)
					}
				case "staged", "oneshot":
					if !r.ScratchOnly() {
						t.Errorf("%s, %d ranks: reach %+v", g.name, n, r)
					}
				case "pairwise":
					if !r.PutOnly() {
						t.Errorf("%s, %d ranks: reach %+v", g.name, n, r)
					}
				}
				switch {
				case slices.Contains([]string{"direct", "attach", "staged", "oneshot", "pairwise"}, kind):
					if !p.RankOrder() {
						t.Errorf("%s, %d ranks, root %d is not in rank order", g.name, n, root)
					}
				case n > 2 && slices.Contains([]string{"allreduce/ring", "allreduce/tree"}, g.name):
					// A tree of three ranks is one reduction, in rank order.
					if p.RankOrder() && (kind != "tree" || n > 3) {
						t.Errorf("%s, %d ranks is in rank order", g.name, n)
					}
				}
			}
		}
	}
}
