package algo

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// partners returns how many ranks each rank puts to.
func partners(p *plan.Plan) []int {
	seen := map[[2]int]bool{}
	count := make([]int, p.Ranks)
	for i := range p.Steps {
		s := &p.Steps[i]
		if pair := [2]int{s.Rank, s.Dsts[0].Rank}; s.IsPut() && !seen[pair] {
			seen[pair] = true
			count[s.Rank]++
		}
	}
	return count
}

// TestPartners: what the doc comments say about how many others a rank puts
// to, which is what the rounds are for.
func TestPartners(t *testing.T) {
	rounds := func(n int) int { return bits.Len(uint(n - 1)) }
	powers := func(n int) int { // with odd groups, a rank puts to whole halves
		if n&(n-1) != 0 {
			return -1
		}
		return rounds(n)
	}
	for name, want := range map[string]func(n int) int{
		"allreduce/ring":             func(int) int { return 1 },
		"allreduce/halving-doubling": powers,
		"allreduce/doubling":         rounds,
		"reduce_scatter/ring":        func(int) int { return 1 },
		"reduce_scatter/halving":     powers,
		"allgather/ring":             func(int) int { return 1 },
		"allgather/doubling":         powers,
		"allgather/bruck":            rounds,
		"alltoall/pairwise":          func(n int) int { return n - 1 },
		"alltoall/bruck":             rounds,
	} {
		for n := 2; n <= 20; n++ {
			p, err := New(name, n, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := slices.Max(partners(p)), want(n); want >= 0 && got != want {
				t.Errorf("%s, %d ranks: a rank puts to %d others, want %d", name, n, got, want)
			}
		}
	}
}

// TestPairwise: in every round each rank puts to another, and each gets one
// block; over all rounds it puts to all others.
func TestPairwise(t *testing.T) {
	for n := 2; n <= 33; n++ {
		for r := range n {
			to := map[int]bool{}
			for k := 1; k < n; k++ {
				to[partner(r, k, n)] = true
			}
			if len(to) != n-1 || to[r] {
				t.Errorf("%d ranks: rank %d puts to %v", n, r, to)
			}
		}
		for k := 1; k < n; k++ {
			got := map[int]bool{}
			for r := range n {
				got[partner(r, k, n)] = true
			}
			if len(got) != n {
				t.Errorf("%d ranks: in round %d only %v get a block", n, k, got)
			}
		}
	}
}

// TestHalving: every rank hands over each block but its own once, and only
// what the group that it is in still cares for.
func TestHalving(t *testing.T) {
	for n := 2; n <= 40; n++ {
		sent := map[[2]int]int{} // by rank and block: the round
		for k, round := range halving(n) {
			for _, m := range round {
				if _, again := sent[[2]int{m.from, m.block}]; again || m.from == m.block {
					t.Fatalf("%d ranks, round %d: %+v", n, k, m)
				}
				if _, gone := sent[[2]int{m.to, m.block}]; gone {
					t.Fatalf("%d ranks, round %d: %+v comes too late", n, k, m)
				}
				sent[[2]int{m.from, m.block}] = k
			}
		}
		if len(sent) != n*(n-1) {
			t.Errorf("%d ranks: %d moves, want %d", n, len(sent), n*(n-1))
		}
	}
}
