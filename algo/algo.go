package algo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-go/tutti/plan"
)

// A generator is one entry of the registry.
type generator struct {
	name       string
	collective plan.Collective
	new        func(ranks, root int) (*plan.Plan, error)
	cost       func(ranks int) Cost // of the plan for 2 or more ranks
}

// generators are the flat algorithms, in the order in which [Names] lists them.
// Each family has its list where its algorithms are.
var generators = slices.Concat(mappedGenerators, treeGenerators, exchangeGenerators)

// An overGenerator is a hierarchical algorithm: its plans are over nodes.
type overGenerator struct {
	name       string
	collective plan.Collective
	new        func(nodes plan.Nodes, root int) (*plan.Plan, error)
	cost       func(g *grouping, root int) LevelCost // of the plan for 2 or more ranks
}

// unrootedOver is an overGenerator's function that needs no root.
func unrootedOver(f func(nodes plan.Nodes) (*plan.Plan, error)) func(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return func(nodes plan.Nodes, _ int) (*plan.Plan, error) { return f(nodes) }
}

// unrooted is a generator's function that needs no root.
func unrooted(f func(ranks int) (*plan.Plan, error)) func(ranks, root int) (*plan.Plan, error) {
	return func(ranks, _ int) (*plan.Plan, error) { return f(ranks) }
}

// Names returns the names of the algorithms for a collective, flat ones first.
func Names(c plan.Collective) []string {
	var names []string
	for _, g := range generators {
		if g.collective == c {
			names = append(names, g.name)
		}
	}
	for _, g := range hierGenerators {
		if g.collective == c {
			names = append(names, g.name)
		}
	}
	return names
}

// New returns the plan of the named algorithm for the given number of ranks; of
// a hierarchical one, for ranks of one node. The root counts for collectives
// that have one and is 0 for the others. For an unknown name the error is an
// [*UnknownError].
func New(name string, ranks, root int) (*plan.Plan, error) {
	return NewOver(name, plan.OneNode(ranks), root)
}

// NewOver returns the plan of the named algorithm for ranks that are grouped
// into nodes; a flat algorithm's is the same for any grouping. The plan of a
// hierarchical algorithm runs over the grouping, in the sense of
// [plan.Plan.ReachOver]. The root and the error are as for [New].
func NewOver(name string, nodes plan.Nodes, root int) (*plan.Plan, error) {
	g, h, err := find(name)
	switch {
	case err != nil:
		return nil, err
	case g != nil:
		if err := fault(g.name, g.collective, len(nodes), root); err != nil {
			return nil, err
		}
		return g.new(len(nodes), root)
	}
	if err := fault(h.name, h.collective, len(nodes), root); err != nil {
		return nil, err
	}
	return h.new(nodes, root)
}

// find returns the algorithm of a name, which is flat or not.
func find(name string) (*generator, *overGenerator, error) {
	for i := range generators {
		if generators[i].name == name {
			return &generators[i], nil, nil
		}
	}
	for i := range hierGenerators {
		if hierGenerators[i].name == name {
			return nil, &hierGenerators[i], nil
		}
	}
	var known []string
	for _, c := range plan.Collectives() {
		known = append(known, Names(c)...)
	}
	return nil, nil, &UnknownError{Name: name, Known: known}
}

// fault returns what is wrong with the number of ranks or the root: an empty
// plan has the same limits, and says what is wrong.
func fault(name string, c plan.Collective, ranks, root int) error {
	return plan.NewRooted(name, c, ranks, root, 1).Err()
}

// An UnknownError reports a name that no algorithm has.
type UnknownError struct {
	Name  string
	Known []string
}

// Error lists the names there are.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("algo: no algorithm %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// alone returns the plan of a collective among one rank: a copy.
func alone(name string, c plan.Collective) (*plan.Plan, error) {
	b := plan.NewBuilder(name, c, 1, 1)
	b.Copy(0, plan.In.At(0, 0), plan.Out.At(0, 0))
	return b.Plan()
}

// author returns the plan that the function writes, for 2 or more ranks; for
// one rank, a copy. Every block has the given number of chunks.
func author(name string, c plan.Collective, ranks, root, chunks int, write func(b *plan.Builder)) (*plan.Plan, error) {
	if ranks == 1 {
		return alone(name, c)
	}
	b := plan.NewRooted(name, c, ranks, root, chunks)
	write(b)
	return b.Plan()
}

// authorOver is author for a plan over nodes, whatever their numbers.
func authorOver(name string, c plan.Collective, nodes plan.Nodes, root, chunks int, write func(b *plan.Builder)) (*plan.Plan, error) {
	if len(nodes) == 1 {
		return author(name, c, 1, root, chunks, write)
	}
	b := plan.NewOver(name, c, plan.NodesOf(nodes), root, chunks)
	if b.Err() == nil {
		write(b)
	}
	return b.Plan()
}

// others calls f for every rank but r, the right neighbour first: whoever all
// ranks deal with in turn, they deal with different peers at any moment.
func others(n, r int, f func(q int)) {
	for k := 1; k < n; k++ {
		f((r + k) % n)
	}
}

// seat returns the number of peer q among the n-1 scratch chunks that rank r
// has for its peers: the right neighbour's is 0.
func seat(n, r, q int) int { return (q - r - 1 + n) % n }

// each returns f(0), f(1), ..., f(n-1): one place of each rank, in the rank
// order that makes every rank's reduction round alike.
func each(n int, f func(rank int) plan.Place) []plan.Place {
	places := make([]plan.Place, max(n, 0))
	for r := range places {
		places[r] = f(r)
	}
	return places
}
