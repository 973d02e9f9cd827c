package algo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

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

// equal returns the grouping of contiguous ranks into nodes of one size.
func equal(nodes, size int) plan.Nodes { return grouped(slices.Repeat([]int{size}, nodes)...) }

// mixed returns the grouping with its ranks in another order.
func mixed(nodes plan.Nodes, rng *rand.Rand) plan.Nodes {
	nodes = slices.Clone(nodes)
	rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return plan.NodesOf(nodes)
}

// partitions calls f for every way of parting n ranks into nodes.
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

// equalSplits returns every grouping of n ranks into nodes of one size.
func equalSplits(n int) []plan.Nodes {
	var splits []plan.Nodes
	for size := 1; size <= n; size++ {
		if n%size == 0 {
			splits = append(splits, equal(n/size, size))
		}
	}
	return splits
}

// proofs returns the groupings that TestEverySplit takes. Into equal nodes: all
// of up to 32 ranks, and of 64. Into unequal ones: all of up to 12 ranks, in a
// row and in an order by chance; and of more, some that are far from equal, and
// some by chance. With -full all equal ones and many more by chance, with -short
// fewer of all.
func proofs() []plan.Nodes {
	rows, parted, most, chance := 32, 12, maxRanks, 8
	switch {
	case *full:
		rows, parted, chance = maxRanks, 14, 120
	case testing.Short():
		rows, parted, most, chance = 8, 6, 16, 4
	}
	rng := rand.New(rand.NewPCG(7, 7))
	var all []plan.Nodes
	for n := 1; n <= maxRanks; n++ {
		if n <= rows || n == most {
			all = append(all, equalSplits(n)...)
		}
	}
	for n := 2; n <= parted; n++ {
		partitions(n, func(sizes []int) {
			if slices.Max(sizes) != slices.Min(sizes) {
				all = append(all, grouped(sizes...), mixed(grouped(sizes...), rng))
			}
		})
	}
	if testing.Short() {
		return all
	}
	for _, sizes := range [][]int{
		{1, 16}, {16, 1}, {1, 1, 30}, {30, 1, 1}, {1, 63}, {62, 1, 1}, {2, 3, 5, 7, 11, 13}, {13, 11, 7, 5, 3, 2},
		{17, 19}, {8, 8, 8, 7}, {16, 16, 16, 15}, {1, 2, 3, 4, 5, 6, 7, 8}, {31, 1, 31, 1}, {5, 1, 1, 1, 1, 1, 1, 1, 1, 1},
	} {
		all = append(all, grouped(sizes...))
	}
	for range chance {
		n := 13 + rng.IntN(20)
		if rng.IntN(4) == 0 {
			n = 33 + rng.IntN(maxRanks-32)
		}
		ids := make([]int, n)
		for r := range ids {
			ids[r] = rng.IntN(2 + rng.IntN(n/2))
		}
		all = append(all, plan.NodesOf(ids))
	}
	return all
}

// rootsOver returns the roots with which a grouping is tried: all of few ranks,
// of more the first, one in the middle and the last.
func rootsOver(c plan.Collective, n int) []int {
	all := roots(c, n)
	if len(all) <= 5 || *full && len(all) <= 12 {
		return all
	}
	return []int{0, n/2 + 1, n - 1}
}

// TestEverySplit proves each hierarchical algorithm over the groupings that
// [proofs] returns, and holds it to its cost.
func TestEverySplit(t *testing.T) {
	for _, g := range hierGenerators {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for i, nodes := range proofs() {
				for _, root := range rootsOver(g.collective, len(nodes)) {
					depths := []int{1 + (i+root)%4}
					if *full {
						depths = []int{2, 3, 4}
					}
					if err := provedOver(g, nodes, root, depths); err != nil {
						t.Errorf("nodes %v, root %d: %v", nodes, root, err)
					}
				}
			}
		})
	}
}

// provedOver returns what is wrong with the plan of a hierarchical algorithm.
func provedOver(g overGenerator, nodes plan.Nodes, root int, depths []int) error {
	p, err := NewOver(g.name, nodes, root)
	if err != nil {
		return err
	}
	if p.Name != g.name || p.Collective != g.collective || p.Ranks != len(nodes) || p.Root != root {
		return fmt.Errorf("the plan says %s, %v, %d ranks, root %d", p.Name, p.Collective, p.Ranks, p.Root)
	}
	if err := p.Check(); err != nil {
		return err
	}
	inside, ok := p.ReachOver(nodes)
	direct := strings.HasSuffix(g.name, "-direct") && nodes.Count() < len(nodes)
	if !ok || inside.PeerData && !direct {
		return fmt.Errorf("within reach %v, inside %+v", ok, inside)
	}
	want, err := CostOver(g.name, nodes, root)
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
		if err := quiet(l); err != nil {
			return fmt.Errorf("depth %d: %w", depth, err)
		}
		if err := l.Verify(); err != nil {
			return fmt.Errorf("depth %d: %w", depth, err)
		}
	}
	return nil
}

// quiet shows that over the network nobody waits for anybody but those who put to
// it, and those who use what it has put: each put is notified once, and
// its place given back once.
func quiet(l *plan.Lowered) error {
	puts := map[[2]int]bool{}
	for r, prog := range l.Programs {
		for _, a := range prog.Actions {
			puts[[2]int{r, a.Dsts[0].Rank}] = true
		}
	}
	for r, prog := range l.Programs {
		for _, a := range prog.Actions {
			for _, w := range a.Waits {
				if !l.Nodes.Together(r, w.Rank) && !puts[[2]int{r, w.Rank}] && !puts[[2]int{w.Rank, r}] {
					return fmt.Errorf("rank %d waits for rank %d of another node, but they do not exchange bytes", r, w.Rank)
				}
			}
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

// TestStagesOverlap: a rank works on another tile in each stage, within nodes and
// across, so that all stages are at work at once.
func TestStagesOverlap(t *testing.T) {
	for _, g := range hierGenerators {
		if g.collective == plan.Barrier {
			continue // there is only one tile
		}
		for _, nodes := range []plan.Nodes{equal(2, 2), equal(2, 4), equal(4, 2), equal(3, 3), equal(8, 2), equal(4, 1), equal(1, 4)} {
			p, err := NewOver(g.name, nodes, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, depth := range []int{2, 3, 4} {
				l, err := plan.LowerOver(p, depth, nodes)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := l.MaxSkew(), CostOf(p).Alpha; got < want {
					t.Errorf("%s, nodes %v, depth %d: %d tiles apart in %d waits", g.name, nodes, depth, got, want)
				}
			}
		}
	}
}

// TestGoldenOver is TestGolden for hierarchical plans.
func TestGoldenOver(t *testing.T) {
	for _, g := range hierGenerators {
		for _, size := range []struct {
			nodes plan.Nodes
			root  int
		}{{equal(2, 2), 0}, {plan.Nodes{0, 1, 1, 0, 2}, 0}, {plan.Nodes{0, 1, 1, 0, 2}, 3}} {
			if size.root > 0 && !g.collective.Rooted() {
				continue
			}
			p, err := NewOver(g.name, size.nodes, size.root)
			if err != nil {
				t.Fatal(err)
			}
			var over strings.Builder
			for _, k := range size.nodes {
				fmt.Fprint(&over, k)
			}
			golden(t, p, goldenName(g.name+"-"+over.String(), p.Ranks, p.Root))
		}
	}
}
