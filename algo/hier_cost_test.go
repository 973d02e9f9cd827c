package algo

import (
	"errors"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// TestEqualNodes: the formulas of the doc comments, for k nodes of m ranks each,
// both more than 1.
func TestEqualNodes(t *testing.T) {
	f := func(n int) float64 { return float64(n) }
	type level struct {
		alpha int
		beta  float64
	}
	two := func(inside, across level, gamma, wire float64) LevelCost {
		return LevelCost{Cost{inside.alpha, inside.beta, gamma}, Cost{across.alpha, across.beta, 0}, wire}
	}
	for _, c := range []struct {
		name   string
		powers bool // for k a power of two alone
		trees  bool // for k of 5 and more alone; wire is not promised
		want   func(k, m float64, waits int) LevelCost
	}{
		{name: "allreduce/hier-ring", want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{2, 3*(m-1)/m + 2*(k-1)/n}, level{2 * waits, 2 * (k - 1) / n}, (n-1)/n, 2*(k-1)/k)
		}},
		{name: "allreduce/hier-ring-direct", want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{0, 2 * (m - 1) / m}, level{2 * waits, 2 * (k - 1) / n}, (n-1)/n, 2*(k-1)/k)
		}},
		{name: "allreduce/hier-halving-doubling", powers: true, want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{2, 3*(m-1)/m + 2*(k-1)/n}, level{2 * waits, 2 * (k - 1) / n}, (n-1)/n, 2*(k-1)/k)
		}},
		{name: "allreduce/hier-halving-doubling-direct", powers: true, want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{0, 2 * (m - 1) / m}, level{2 * waits, 2 * (k - 1) / n}, (n-1)/n, 2*(k-1)/k)
		}},
		{name: "allreduce/hier-tree", trees: true, want: func(_, m float64, waits int) LevelCost {
			return two(level{2, (3*m - 1) / m}, level{2 * waits, 3 / m}, (m+1)/m, 0)
		}},
		{name: "allreduce/hier-tree-direct", trees: true, want: func(_, m float64, waits int) LevelCost {
			return two(level{0, 2 * (m - 1) / m}, level{2 * waits, 3 / m}, (m+1)/m, 0)
		}},
		{name: "allreduce/hier-doubling", powers: true, want: func(_, m float64, waits int) LevelCost {
			return two(level{2, max(m-1, 2)}, level{waits, f(waits)}, m-1+f(waits), f(waits))
		}},
		{name: "broadcast/hier-chain", want: func(_, m float64, waits int) LevelCost {
			return two(level{2, 2}, level{waits, 1 / m}, 0, 1)
		}},
		{name: "broadcast/hier-chain-direct", want: func(_, m float64, waits int) LevelCost {
			return two(level{0, 1}, level{waits, 1 / m}, 0, 1)
		}},
		{name: "broadcast/hier-tree", trees: true, want: func(_, m float64, waits int) LevelCost {
			return two(level{2, 2}, level{waits, 2 / m}, 0, 2)
		}},
		{name: "broadcast/hier-tree-direct", trees: true, want: func(_, m float64, waits int) LevelCost {
			return two(level{0, 1}, level{waits, 2 / m}, 0, 2)
		}},
		{name: "reduce/hier-chain", want: func(_, m float64, waits int) LevelCost {
			return two(level{2, 3 * (m - 1) / m}, level{waits, 1 / m}, 1, 1)
		}},
		{name: "reduce/hier-chain-direct", want: func(_, m float64, waits int) LevelCost {
			return two(level{0, 1}, level{waits, 1 / m}, 1, 1)
		}},
		{name: "reduce/hier-tree", trees: true, want: func(_, m float64, waits int) LevelCost {
			return two(level{2, 3 * (m - 1) / m}, level{waits, 1 / m}, (m+1)/m, 2)
		}},
		{name: "reduce/hier-tree-direct", trees: true, want: func(_, m float64, waits int) LevelCost {
			return two(level{0, 1}, level{waits, 1 / m}, (m+1)/m, 2)
		}},
		{name: "gather/hier", want: func(k, m float64, _ int) LevelCost {
			return two(level{1, 1}, level{1, 1 / (k * m)}, 0, (k-1)/k)
		}},
		{name: "gather/hier-direct", want: func(k, m float64, _ int) LevelCost {
			return two(level{0, 1 / m}, level{1, 1 / (k * m)}, 0, (k-1)/k)
		}},
		{name: "allgather/hier-ring", want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{1, (n + k) / n}, level{waits, (k - 1) / n}, 0, (k-1)/k)
		}},
		{name: "allgather/hier-ring-direct", want: func(k, m float64, waits int) LevelCost {
			return two(level{0, (m - 1) / m}, level{waits, (k - 1) / (k * m)}, 0, (k-1)/k)
		}},
		{name: "allgather/hier-doubling", powers: true, want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{1, (n + k) / n}, level{waits, (k - 1) / n}, 0, (k-1)/k)
		}},
		{name: "allgather/hier-doubling-direct", powers: true, want: func(k, m float64, waits int) LevelCost {
			return two(level{0, (m - 1) / m}, level{waits, (k - 1) / (k * m)}, 0, (k-1)/k)
		}},
		{name: "scatter/hier", want: func(k, m float64, _ int) LevelCost {
			n := k * m
			return two(level{1, (n - k + 1) / n}, level{1, (k - 1) / n}, 0, (k-1)/k)
		}},
		{name: "scatter/hier-direct", want: func(k, m float64, _ int) LevelCost {
			return two(level{0, 1 / m}, level{1, (k - 1) / (k * m)}, 0, (k-1)/k)
		}},
		{name: "reduce_scatter/hier-ring", want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{1, 2 * (m - 1) / m}, level{waits, (k - 1) / n}, (n-1)/n, (k-1)/k)
		}},
		{name: "reduce_scatter/hier-ring-direct", want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{0, (m - 1) / m}, level{waits, (k - 1) / n}, (n-1)/n, (k-1)/k)
		}},
		{name: "reduce_scatter/hier-halving", powers: true, want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{1, 2 * (m - 1) / m}, level{waits, (k - 1) / n}, (n-1)/n, (k-1)/k)
		}},
		{name: "reduce_scatter/hier-halving-direct", powers: true, want: func(k, m float64, waits int) LevelCost {
			n := k * m
			return two(level{0, (m - 1) / m}, level{waits, (k - 1) / n}, (n-1)/n, (k-1)/k)
		}},
		{name: "alltoall/hier", want: func(k, m float64, _ int) LevelCost {
			n := k * m
			return two(level{1, (n + m - 1) / n}, level{1, (n - m) / n}, 0, m*(n-m)/n)
		}},
		{name: "alltoall/hier-direct", want: func(k, m float64, _ int) LevelCost {
			n := k * m
			return two(level{0, 1}, level{1, (n - m) / n}, 0, m*(n-m)/n)
		}},
		{name: "barrier/hier", powers: true, want: func(_, _ float64, waits int) LevelCost {
			return two(level{2, 0}, level{waits, 0}, 0, 0)
		}},
	} {
		for k := 2; k <= 16; k++ {
			for m := 2; m <= 9; m++ {
				waits := k - 1
				switch {
				case c.powers && k&(k-1) != 0, c.trees && k < 5:
					continue
				case c.powers, c.trees:
					waits = log2(k)
				}
				got, err := CostOver(c.name, equal(k, m), 0)
				if err != nil {
					t.Fatal(err)
				}
				want := c.want(f(k), f(m), waits)
				if c.name == "allreduce/hier-tree" || c.name == "allreduce/hier-tree-direct" {
					// Which node is at the top of how many lanes depends on both. A
					// lane in which all are leaves or tops has less to do.
					want.Wire = got.Wire
					if m < k {
						want.Across.Beta, want.Inside.Gamma, want.Inside.Beta = got.Across.Beta, got.Inside.Gamma, got.Inside.Beta
					}
				}
				if !near(got, want) {
					t.Errorf("%s, %d nodes of %d: %+v, want %+v", c.name, k, m, got, want)
				}
			}
		}
	}
}

// TestCostOver: a flat algorithm costs over nodes what its plan does, and over
// one node what it always does.
func TestCostOver(t *testing.T) {
	nodes := equal(3, 2)
	p, err := AllReduceRing(6)
	if err != nil {
		t.Fatal(err)
	}
	got, err := CostOver("allreduce/ring", nodes, 0)
	if err != nil || got != CostOfOver(p, nodes) {
		t.Errorf("%+v, %v", got, err)
	}
	// Every second rank of the ring has its neighbour in another node, where
	// copies to Out are within.
	want := LevelCost{Cost{5, 15. / 6, 5. / 6}, Cost{5, 10. / 6, 0}, 10. / 6}
	if !near(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, g := range generators {
		over, err := CostOver(g.name, plan.OneNode(5), 0)
		if err != nil {
			t.Fatal(err)
		}
		if flat, err := CostFor(g.name, 5); err != nil || !near(over, LevelCost{Inside: flat}) {
			t.Errorf("%s: %+v, want %+v (%v)", g.name, over, flat, err)
		}
	}
	var unknown *UnknownError
	if _, err := CostOver("allreduce/magic", nodes, 0); !errors.As(err, &unknown) {
		t.Errorf("the cost of an unknown name gives %v", err)
	}
	if _, err := NewOver("allreduce/magic", nodes, 0); !errors.As(err, &unknown) {
		t.Errorf("an unknown name gives %v", err)
	}
}

// TestNewOverErrors: whatever is wrong with a grouping or a root is an error.
// Groupings may be numbered in any way.
func TestNewOverErrors(t *testing.T) {
	for _, g := range hierGenerators {
		for _, c := range []struct {
			nodes plan.Nodes
			root  int
		}{{nil, 0}, {plan.OneNode(plan.MaxRanks + 1), 0}, {equal(2, 2), -1}, {equal(2, 2), 4}, {plan.OneNode(1), 1}} {
			if _, err := NewOver(g.name, c.nodes, c.root); err == nil {
				t.Errorf("%s accepts %d ranks with root %d", g.name, len(c.nodes), c.root)
			}
			if _, err := CostOver(g.name, c.nodes, c.root); err == nil {
				t.Errorf("%s has a cost for %d ranks with root %d", g.name, len(c.nodes), c.root)
			}
			if _, err := g.new(c.nodes, c.root); err == nil && len(c.nodes) != 1 && (c.root == 0 || g.collective.Rooted()) {
				t.Errorf("the function of %s accepts %d ranks with root %d", g.name, len(c.nodes), c.root)
			}
		}
		p, err := NewOver(g.name, plan.Nodes{7, -3, -3, 7}, 0)
		if err != nil {
			t.Fatal(err)
		}
		q, err := NewOver(g.name, plan.Nodes{0, 1, 1, 0}, 0)
		if err != nil || p.String() != q.String() {
			t.Errorf("%s: other numbers of nodes give another plan (%v)", g.name, err)
		}
		if _, err := New(g.name, 3, 0); err != nil {
			t.Error(err)
		}
	}
}
