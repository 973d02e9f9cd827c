package algo

import (
	"math/bits"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// TestDoublingSkew: where ranks stand aside, those that fold for them work a
// stage later than their peers in the first round, and what these wait for
// lies in scratch. That costs at most the two stages of folding, at any depth.
func TestDoublingSkew(t *testing.T) {
	for n := 3; n <= maxRanks; n++ {
		p, err := AllReduceDoubling(n)
		if err != nil {
			t.Fatal(err)
		}
		rounds := bits.Len(uint(n)) - 1
		for _, depth := range []int{2, 4} {
			l, err := plan.Lower(p, depth)
			if err != nil {
				t.Fatal(err)
			}
			if s := l.MaxSkew(); s < rounds || s > rounds+2 {
				t.Errorf("%d ranks, depth %d: skew %d, want %d to %d", n, depth, s, rounds, rounds+2)
			}
		}
	}
}
