package algo

import (
	"slices"

	"github.com/tutti-go/tutti/plan"
)

// A hierarchy authors a plan over a grouping of the ranks into nodes. Within a
// node ranks map each other's memory; across they put, each from its own memory
// into a peer's scratch.
//
// Data is cut into lanes, as many as the largest node has ranks. In every node
// each lane has an owner, who does for the node what in a flat algorithm a rank
// does for itself: it sums up what its node brings, exchanges with the owners of
// its lane in other nodes, and what it gets is for the whole node. So all ranks
// are at work at once, within and across, and no lane waits for another:
//
//	            node 0          node 1          node 2
//	lane 0      rank 0 ──────── rank 3 ──────── rank 8
//	lane 1      rank 1 ──────── rank 4 ──────── rank 8     rank 8 is alone in
//	lane 2      rank 2 ──────── rank 5 ──────── rank 8     its node and owns
//	lane 3      rank 0 ──────── rank 6 ──────── rank 8     all lanes there
//	lane 4      rank 1 ──────── rank 7 ──────── rank 8
//
// There are two ways within a node. If only scratch is mapped, what others are
// to read is shown: copied into scratch, a tile at a time (staged). If the
// callers' buffers are mapped too, the owner reads them and writes to them, and
// the others have nothing to do (direct).
//
//	staged    In ─► S ─┐ Σ ── put ─►    S ─► S ─┬─► Out
//	          In ─► S ─┘                        └─► Out
//	direct    In ─┐ Σ ── put ─►         S ─┬─► Out
//	          In ─┘                        └─► Out
//
// What came by a put only the owner uses: it puts it on, and copies it to its own
// Out and to other scratch, where the rest of the node reads it. So the sender
// hears from one rank when the place is free again, and every chunk of scratch
// lives for two stages.
type hierarchy struct {
	*exchange
	*grouping
	direct bool
	// Scratch where the ranks of a node find a block that its owner need not copy
	// there: what has been shown, and from where; and what is also in its Out.
	shown map[plan.Place]plan.Place
	there map[plan.Place]bool
}

// A grouping is a [plan.Nodes] with what can be derived from it.
type grouping struct {
	members [][]int    // by node
	node    plan.Nodes // by rank
	index   []int      // by rank: which of its node it is
	lanes   int        // as many as the largest node has ranks
}

// group returns the grouping of ranks, whatever the numbers of their nodes.
func group(nodes plan.Nodes) *grouping {
	nodes = plan.NodesOf(nodes)
	g := &grouping{members: nodes.Members(), node: nodes, index: make([]int, len(nodes))}
	for _, ranks := range g.members {
		for i, r := range ranks {
			g.index[r] = i
		}
		g.lanes = max(g.lanes, len(ranks))
	}
	return g
}

// A lot is a block of data among nodes: in which lane it travels, and in which
// node it is at home, that is, where its sum is complete or where it comes from.
type lot struct{ lane, home int }

// newHierarchy returns the author of a plan of so many blocks in In or Out, each
// a chunk.
func newHierarchy(b *plan.Builder, g *grouping, blocks int, direct bool, out func(rank, block int) plan.Place) *hierarchy {
	h := &hierarchy{
		exchange: newExchange(b, len(g.node), blocks, out), grouping: g, direct: direct,
		shown: map[plan.Place]plan.Place{}, there: map[plan.Place]bool{},
	}
	h.brings, h.ends, h.keep, h.pass = h.bringAll, h.endAll, h.keepAll, h.passAll
	return h
}

// owner returns the rank that has a lane in a node.
func (g *grouping) owner(node, lane int) int {
	ranks := g.members[node]
	return ranks[lane%len(ranks)]
}

// others calls f for the other ranks of r's node, the next one first.
func (g *grouping) others(r int, f func(q int)) {
	ranks := g.members[g.node[r]]
	others(len(ranks), g.index[r], func(i int) { f(ranks[i]) })
}

// among returns the rounds that do among the owners of each lane what the given
// ones do among the nodes, with the lots that are at home in the node that a
// move's block stands for.
func (h *hierarchy) among(rounds [][]move, lots []lot) [][]move {
	at := make([][]int, len(h.members)) // by home
	for c, l := range lots {
		at[l.home] = append(at[l.home], c)
	}
	all := make([][]move, len(rounds))
	for i, round := range rounds {
		for _, m := range round {
			for _, c := range at[m.block] {
				all[i] = append(all[i], move{h.owner(m.from, lots[c].lane), h.owner(m.to, lots[c].lane), c})
			}
		}
		all[i] = inTurn(h.ranks, all[i])
	}
	return all
}

// bringAll returns what a node has for a block that one of its ranks sums up: of
// all its ranks, in their order.
func (h *hierarchy) bringAll(r, c int) []plan.Place {
	return h.gathered(r, func(q int) plan.Place { return plan.In.At(q, c) })
}

// gathered returns what the ranks of r's node have, in their order, within r's
// reach.
func (h *hierarchy) gathered(r int, has func(q int) plan.Place) []plan.Place {
	ranks := h.members[h.node[r]]
	places := make([]plan.Place, len(ranks))
	places[h.index[r]] = has(r)
	h.others(r, func(q int) {
		at := has(q)
		if !h.direct {
			at = h.show(q, at)
		}
		places[h.index[q]] = at
	})
	return places
}

// show lets a rank copy what it has to scratch of its own, for its node to read.
func (h *hierarchy) show(r int, at plan.Place) plan.Place {
	to := h.scratch(r)
	h.Copy(r, at, to)
	h.shown[to] = at
	return to
}

// endAll returns where the sum of a block goes that all ranks of the node get:
// to their Out; or to the owner's, and to scratch, from where the others copy it.
func (h *hierarchy) endAll(r, c int) []plan.Place {
	to := h.outs(r, c)
	if !h.direct && !h.alone(r) {
		to = slices.Insert(to, 0, h.scratch(r))
		h.there[to[0]] = true
	}
	return to
}

// outs returns where a rank writes a block that all of its node get: to its Out,
// or to that of all.
func (h *hierarchy) outs(r, c int) []plan.Place {
	to := []plan.Place{h.out(r, c)}
	if h.direct {
		h.others(r, func(q int) { to = append(to, h.out(q, c)) })
	}
	return to
}

// keepAll copies a block that a rank has at a place to its Out, or to that of all
// ranks of its node. It returns where the others find it: not where a put has
// brought it, since then whoever puts there next would have to hear from each of
// them that the place is free.
func (h *hierarchy) keepAll(r, c int, at plan.Place) plan.Place {
	if h.there[at] {
		return at
	}
	from, to := at, h.outs(r, c)
	if in, ok := h.shown[at]; ok {
		from = in
	} else if !h.direct && !h.alone(r) {
		at = h.scratch(r)
		to = slices.Insert(to, 0, at)
	}
	h.Copy(r, from, to...)
	return at
}

// passAll lets the others of a rank's node copy a block that it has at a place,
// unless it has written it to their Out.
func (h *hierarchy) passAll(r, c int, at plan.Place) {
	h.passOn(r, c, func(int) plan.Place { return at })
}

// passOn is passAll where each copies the block from a place of its own choice.
func (h *hierarchy) passOn(r, c int, at func(q int) plan.Place) {
	if !h.direct {
		h.others(r, func(q int) { h.Copy(q, at(q), h.out(q, c)) })
	}
}

// alone reports whether a rank is the only one of its node.
func (g *grouping) alone(r int) bool { return len(g.members[g.node[r]]) == 1 }

// home returns the owner of a lot at home.
func (g *grouping) home(l lot) int { return g.owner(l.home, l.lane) }

// sumUp sums up every lot at its owner at home, along the given rounds among
// nodes, and returns where the sums are.
func (h *hierarchy) sumUp(rounds [][]move, lots []lot) []holding {
	if len(h.members) > 1 {
		return h.combine(h.among(rounds, lots))
	}
	parts := make([][]plan.Place, len(lots))
	for c, l := range lots {
		parts[c] = h.brings(h.home(l), c)
	}
	sums := make([]holding, len(lots))
	for c, l := range lots {
		to := h.ends(h.home(l), c)
		h.Reduce(h.home(l), to, parts[c]...)
		sums[c] = holding{c, to[0]}
	}
	return sums
}

// A pattern returns the rounds in which nodes exchange blocks, each of which is
// at home in the node of its number: those that sum it up there, and those that
// pass it on from there to all.
type pattern func(nodes int) (up, down [][]move)

// ringRounds goes around a ring. A single block goes along a chain that ends, or
// begins, at its home.
func ringRounds(nodes int) (up, down [][]move) { return around(nodes, -1), around(nodes, 0) }

// halvingRounds halves, and doubles back.
func halvingRounds(nodes int) (up, down [][]move) {
	rounds := halving(nodes)
	return rounds, backwards(rounds)
}

// treeRounds has a binary tree for each block, with its home on top.
func treeRounds(nodes int) (up, down [][]move) {
	for home := range nodes {
		t := binaryTree(nodes, home)
		height := make([]int, nodes)
		for _, k := range slices.Backward(t.order) {
			for _, c := range t.children[k] {
				height[k] = max(height[k], height[c]+1)
			}
			for len(up) < height[k] {
				up = append(up, nil)
			}
			for _, c := range t.children[k] {
				up[height[k]-1] = append(up[height[k]-1], move{c, k, home})
			}
		}
	}
	return up, backwards(up)
}

// laneEach returns a lot for every lane and home.
func (g *grouping) laneEach() []lot {
	var lots []lot
	for lane := range g.lanes {
		for home := range g.members {
			lots = append(lots, lot{lane, home})
		}
	}
	return lots
}

// laneTurn returns a lot for every lane, at home in one node after the other.
func (g *grouping) laneTurn() []lot {
	lots := make([]lot, g.lanes)
	for lane := range lots {
		lots[lane] = lot{lane, lane % len(g.members)}
	}
	return lots
}

// laneAt returns a lot for every lane, at home in the node of a rank.
func (g *grouping) laneAt(rank int) []lot {
	lots := make([]lot, g.lanes)
	for lane := range lots {
		lots[lane] = lot{lane, g.node[rank]}
	}
	return lots
}

// laneOwn returns a lot for every rank, at home with it.
func (g *grouping) laneOwn() []lot {
	lots := make([]lot, len(g.node))
	for r := range lots {
		lots[r] = lot{g.index[r], g.node[r]}
	}
	return lots
}
