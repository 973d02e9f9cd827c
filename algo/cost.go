package algo

import "github.com/tutti-go/tutti/plan"

// A Cost is what a plan costs in the α-β-γ model: for a call of b bytes the
// time Alpha·α + Beta·b·β + Gamma·b·γ, where b is the size that benchmarks
// give: the buffer of one block, or where one side has a block for every rank,
// that whole buffer.
//
// It is counted for one tile and for the busiest rank of each term. What every
// call does besides is not in it: that all ranks arrive before, and that a
// rank waits in the end for peers that use its buffers.
type Cost struct {
	// Alpha is the number of waits for another rank on the longest chain of
	// dependencies: the edges in it between steps of different ranks.
	Alpha int
	// Beta is what a rank moves to or from peers' memory, or copies within
	// its own, as a multiple of b. Each place at a peer counts, read or
	// written; in a copy that touches no peer each destination counts.
	Beta float64
	// Gamma is what a rank combines, as a multiple of b: the sources of each
	// reduce beyond the first.
	Gamma float64
}

// CostOf counts the cost of a plan. The plan must pass [plan.Plan.Check].
func CostOf(p *plan.Plan) Cost {
	var cost Cost
	if p.Collective == plan.Barrier {
		cost.Alpha = waits(p) // tokens have no bytes
		return cost
	}
	moved, combined := make([]int, p.Ranks), make([]int, p.Ranks) // by rank, in chunks
	for i := range p.Steps {
		s := &p.Steps[i]
		moved[s.Rank] += traffic(s)
		combined[s.Rank] += len(s.Srcs) - 1
	}
	for r := range p.Ranks {
		cost.Beta = max(cost.Beta, share(moved[r], wholes(p)))
		cost.Gamma = max(cost.Gamma, share(combined[r], wholes(p)))
	}
	cost.Alpha = waits(p)
	return cost
}

// wholes returns how many chunks the b of a [Cost] has.
func wholes(p *plan.Plan) int {
	blocks := 1
	for _, b := range []plan.Buf{plan.In, plan.Out} {
		blocks = max(blocks, p.Collective.Blocks(b, p.Root, p.Root, p.Ranks))
	}
	return blocks * p.Chunks
}

// waits returns the most edges between ranks on a path through the plan. The
// order in which a rank runs its steps adds nothing: a step that waits longer
// runs later.
func waits(p *plan.Plan) int {
	return longest(p, func(from, to int) bool { return from != to })
}

// longest returns the most edges on a path through the plan that are between
// ranks of which counts says so.
func longest(p *plan.Plan, counts func(from, to int) bool) int {
	most, at := 0, make([]int, len(p.Steps))
	for i := range p.Steps {
		for _, a := range p.Steps[i].After {
			n := at[a]
			if counts(p.Steps[a].Rank, p.Steps[i].Rank) {
				n++
			}
			at[i] = max(at[i], n)
		}
		most = max(most, at[i])
	}
	return most
}

// traffic returns how many chunks a step moves, in the sense of [Cost].
func traffic(s *plan.Step) int {
	remote := 0
	for _, places := range [][]plan.Place{s.Srcs, s.Dsts} {
		for _, q := range places {
			if q.Rank != s.Rank {
				remote++
			}
		}
	}
	if remote == 0 && s.Op == plan.Copy {
		return len(s.Dsts)
	}
	return remote
}

// share returns part/whole.
func share(part, whole int) float64 { return float64(part) / float64(whole) }

// CostFor returns the cost of the plan that the named algorithm makes for the
// given number of ranks, without making it; that of a hierarchical algorithm
// for ranks of one node. Where the cost depends on the root, it is that of root
// 0. For an unknown name the error is an [*UnknownError].
func CostFor(name string, ranks int) (Cost, error) {
	g, _, err := find(name)
	if err != nil {
		return Cost{}, err
	}
	if g == nil {
		c, err := CostOver(name, plan.OneNode(ranks), 0)
		return c.Inside, err
	}
	if err := fault(name, g.collective, ranks, 0); err != nil {
		return Cost{}, err
	}
	if ranks > 1 {
		return g.cost(ranks), nil
	}
	return costAlone(g.collective), nil
}

// costAlone returns the cost of a collective among one rank: a copy from In to
// Out, unless there are no bytes.
func costAlone(c plan.Collective) Cost {
	if c == plan.Barrier {
		return Cost{}
	}
	return Cost{Beta: 1}
}
