package algo

import (
	"slices"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// TestMachine runs what the verifier accepts, with real numbers. Programs of
// plans in rank order must give what a loop over the ranks gives.
func TestMachine(t *testing.T) {
	schedules := 24
	if testing.Short() {
		schedules = 8
	}
	for _, g := range generators {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{1, 2, 3, 4, 5, 8} {
				for _, root := range roots(g.collective, n) {
					if n > 4 && root > 1 {
						continue
					}
					p, err := g.new(n, root)
					if err != nil {
						t.Fatal(err)
					}
					for depth := 1; depth <= 3; depth++ {
						l, err := plan.Lower(p, depth)
						if err != nil {
							t.Fatal(err)
						}
						if err := l.Verify(); err != nil {
							t.Errorf("%d ranks, root %d, depth %d: %v", n, root, depth, err)
						}
						if err := breakIt(l, schedules, uint64(n), p.RankOrder()); err != nil {
							t.Errorf("%d ranks, root %d, depth %d: %v", n, root, depth, err)
						}
					}
				}
			}
		})
	}
}

// TestMachineSeesOrder: reductions in another order than that of the ranks
// fail where the order counts, and only there.
func TestMachineSeesOrder(t *testing.T) {
	for _, g := range generators {
		if !g.collective.Reduces() {
			continue
		}
		p, err := g.new(3, 0)
		if err != nil {
			t.Fatal(err)
		}
		p = clonePlan(p)
		for i := range p.Steps {
			slices.Reverse(p.Steps[i].Srcs)
		}
		l, err := plan.Lower(p, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := breakIt(l, 4, 1, true); err == nil {
			t.Errorf("%s reduces backwards, and nothing is wrong", g.name)
		}
		if err := breakIt(l, 4, 1, false); err != nil {
			t.Errorf("%s reduces backwards, which is as good: %v", g.name, err)
		}
		if p.RankOrder() {
			t.Errorf("%s reduces backwards, and is in rank order", g.name)
		}
	}
}
