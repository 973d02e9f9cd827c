package algo

import "github.com/tutti-go/tutti/plan"

// A LevelCost is the [Cost] of a plan over nodes, counted for the two levels by
// themselves: each term is that of the busiest rank, or of the chain of
// dependencies on which it is largest, which need not be the same for two terms.
type LevelCost struct {
	// Inside counts waits for ranks of the own node, bytes moved within it, and
	// all that is combined.
	Inside Cost
	// Across counts waits for ranks of other nodes and bytes put to them. Its
	// Gamma is 0.
	Across Cost
	// Wire is what a node puts to others or is put to, whichever is more, at the
	// busiest node, as a multiple of b: its share of Across, where all ranks of a
	// node have one device.
	Wire float64
}

// CostOfOver counts the cost of a plan over nodes, on which it must run. The plan
// must pass [plan.Plan.Check].
func CostOfOver(p *plan.Plan, nodes plan.Nodes) LevelCost {
	g := group(nodes)
	inside := longest(p, func(from, to int) bool { return from != to && g.node[from] == g.node[to] })
	across := longest(p, func(from, to int) bool { return g.node[from] != g.node[to] })
	if p.Collective == plan.Barrier { // tokens have no bytes
		return LevelCost{Inside: Cost{Alpha: inside}, Across: Cost{Alpha: across}}
	}
	loads := make([]load, p.Ranks)
	for i := range p.Steps {
		s := &p.Steps[i]
		if to := s.Dsts[0].Rank; g.node[to] != g.node[s.Rank] {
			loads[s.Rank].put++
			loads[to].got++
		} else {
			loads[s.Rank].inside += traffic(s)
		}
		loads[s.Rank].combined += len(s.Srcs) - 1
	}
	return g.cost(inside, across, wholes(p), func(r int) load { return loads[r] })
}

// CostOver returns the cost of the plan that the named algorithm makes for ranks
// that are grouped into nodes; for a hierarchical algorithm without making it. For
// an unknown name the error is an [*UnknownError].
func CostOver(name string, nodes plan.Nodes, root int) (LevelCost, error) {
	flat, h, err := find(name)
	if err != nil {
		return LevelCost{}, err
	}
	if flat != nil {
		p, err := NewOver(name, nodes, root)
		if err != nil {
			return LevelCost{}, err
		}
		return CostOfOver(p, nodes), nil
	}
	if err := fault(name, h.collective, len(nodes), root); err != nil {
		return LevelCost{}, err
	}
	if len(nodes) == 1 {
		return LevelCost{Inside: costAlone(h.collective)}, nil
	}
	return h.cost(group(nodes), root), nil
}

// A load is what a rank does in a plan over nodes, in chunks.
type load struct {
	inside   int // moved within the node
	put, got int // to and from other nodes
	combined int
}

// cost returns the cost of a plan in which every rank has its load, in chunks of
// which so many make b.
func (g *grouping) cost(inside, across, chunks int, of func(r int) load) LevelCost {
	var most load
	wire := 0
	for _, ranks := range g.members {
		out, in := 0, 0
		for _, r := range ranks {
			l := of(r)
			most.inside, most.put = max(most.inside, l.inside), max(most.put, l.put)
			most.combined = max(most.combined, l.combined)
			out, in = out+l.put, in+l.got
		}
		wire = max(wire, out, in)
	}
	return LevelCost{
		Inside: Cost{inside, share(most.inside, chunks), share(most.combined, chunks)},
		Across: Cost{across, share(most.put, chunks), 0},
		Wire:   share(wire, chunks),
	}
}
