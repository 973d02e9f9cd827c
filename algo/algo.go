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

// generators is in the order in which [Names] lists them. Each family has its
// list where its algorithms are.
var generators = slices.Concat(mappedGenerators, treeGenerators, exchangeGenerators)

// unrooted is a generator's function that needs no root.
func unrooted(f func(ranks int) (*plan.Plan, error)) func(ranks, root int) (*plan.Plan, error) {
	return func(ranks, _ int) (*plan.Plan, error) { return f(ranks) }
}

// Names returns the names of the algorithms for a collective.
func Names(c plan.Collective) []string {
	var names []string
	for _, g := range generators {
		if g.collective == c {
			names = append(names, g.name)
		}
	}
	return names
}

// New returns the plan of the named algorithm for the given number of ranks.
// The root counts for collectives that have one and is 0 for the others. For
// an unknown name the error is an [*UnknownError].
func New(name string, ranks, root int) (*plan.Plan, error) {
	g, err := find(name)
	if err != nil {
		return nil, err
	}
	if err := g.fault(ranks, root); err != nil {
		return nil, err
	}
	return g.new(ranks, root)
}

func find(name string) (*generator, error) {
	var known []string
	for i := range generators {
		if generators[i].name == name {
			return &generators[i], nil
		}
		known = append(known, generators[i].name)
	}
	return nil, &UnknownError{Name: name, Known: known}
}

// fault returns what is wrong with the number of ranks or the root: an empty
// plan has the same limits, and says what is wrong.
func (g *generator) fault(ranks, root int) error {
	return plan.NewRooted(g.name, g.collective, ranks, root, 1).Err()
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

// each returns f(0), f(1), ..., f(n-1): one place of each rank, in the rank
// order that makes every rank's reduction round alike.
func each(n int, f func(rank int) plan.Place) []plan.Place {
	places := make([]plan.Place, max(n, 0))
	for r := range places {
		places[r] = f(r)
	}
	return places
}
