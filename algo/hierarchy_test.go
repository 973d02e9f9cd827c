package algo

import (
	"fmt"
	"math"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// provedOver returns what is wrong with the plan of a hierarchical algorithm.
func provedOver(name string, nodes plan.Nodes, root int, depths ...int) error {
	p, err := NewOver(name, nodes, root)
	if err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return err
	}
	_, ok := p.ReachOver(nodes)
	if !ok {
		return fmt.Errorf("reaches memory of other nodes")
	}
	want, err := CostOver(name, nodes, root)
	if err != nil {
		return err
	}
	if got := CostOfOver(p, nodes); !near(got, want) {
		return fmt.Errorf("the plan costs %+v, the formula says %+v", got, want)
	}
	for _, depth := range depths {
		l, err := plan.LowerOver(p, depth, nodes)
		if err != nil {
			return err
		}
		if err := l.Verify(); err != nil {
			return fmt.Errorf("depth %d: %w", depth, err)
		}
	}
	return nil
}

// near reports whether two costs are the same but for rounding.
func near(a, b LevelCost) bool {
	const tiny = 1e-9
	same := func(x, y Cost) bool {
		return x.Alpha == y.Alpha && math.Abs(x.Beta-y.Beta) < tiny && math.Abs(x.Gamma-y.Gamma) < tiny
	}
	return same(a.Inside, b.Inside) && same(a.Across, b.Across) && math.Abs(a.Wire-b.Wire) < tiny
}

// partitions calls f for every way of parting n ranks into nodes of descending
// size, in contiguous numbers.
func partitions(n int, f func(sizes []int)) {
	var part func(left, most int, sizes []int)
	part = func(left, most int, sizes []int) {
		if left == 0 {
			f(sizes)
			return
		}
		for s := min(left, most); s > 0; s-- {
			part(left-s, s, append(sizes, s))
		}
	}
	part(n, n, nil)
}

// grouped returns the grouping of contiguous ranks into nodes of these sizes.
func grouped(sizes ...int) plan.Nodes {
	var nodes plan.Nodes
	for k, s := range sizes {
		for range s {
			nodes = append(nodes, k)
		}
	}
	return nodes
}

func TestEverySplit(t *testing.T) {
	for _, g := range hierGenerators {
		t.Run(g.name, func(t *testing.T) {
			for n := 1; n <= 8; n++ {
				partitions(n, func(sizes []int) {
					for _, root := range roots(g.collective, n) {
						if err := provedOver(g.name, grouped(sizes...), root, 1, 2, 3, 4); err != nil {
							t.Errorf("nodes of %v, root %d: %v", sizes, root, err)
						}
					}
				})
			}
			for _, sizes := range [][]int{{8, 8}, {3, 5, 1}, {1, 15}, {2, 2, 2, 2, 2, 2, 2}, {8, 8, 8, 8, 8, 8, 8, 8}, {32, 32}} {
				if err := provedOver(g.name, grouped(sizes...), 0, 3); err != nil {
					t.Errorf("nodes of %v: %v", sizes, err)
				}
			}
		})
	}
}
