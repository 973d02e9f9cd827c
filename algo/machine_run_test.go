package algo

import (
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// TestMachine runs what the verifier accepts, with real numbers.
func TestMachine(t *testing.T) {
	for _, g := range generators {
		for _, n := range []int{1, 2, 3, 4, 5, 8} {
			for _, depth := range []int{1, 2, 3} {
				p, err := g.new(n, 0)
				if err != nil {
					t.Fatal(err)
				}
				l, err := plan.Lower(p, depth)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Verify(); err != nil {
					t.Errorf("depth %d: %v", depth, err)
				}
				if err := tryToBreak(l, 24, uint64(n)); err != nil {
					t.Errorf("%s, %d ranks, depth %d: %v", g.name, n, depth, err)
				}
			}
		}
	}
}
