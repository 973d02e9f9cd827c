package algo

import "github.com/tutti-go/tutti/plan"

// AllReduceHierRing is allreduce/hier-ring: reduce-scatter within each node,
// a ring of nodes for each lane, allgather within each node; staged.
//
//	2 nodes of 2 ranks: 2 lanes of 2 chunks
//
//	         node 0                          node 1
//	lane 0   0 ◄─ 1's S         put ──►      2 ◄─ 3's S        Σ of a node
//	         0: Σ + S ◄──────── put ──       2: Σ + S          Σ of all
//	         0 ──────── put ──► S 2          2 ── put ──► S 0  to the other
//	         S of 0 ─► Out 0, Out 1          S of 2 ─► Out 2, Out 3
//	lane 1   1 and 3 do the same at the same time
//
//	up, step k = 0 .. K-1, chunk c of a lane, at its owner r of one node:
//	         In[c] + mates' S ─► S ── put ─►           the first node
//	         S ◄── put ──, S + In[c] + mates' S ─► S   and so on; the last one,
//	                                       and ─► Out where the chunk is at home
//	down:    S ◄── put ──, ── put ─►, S ─► S, Out, mates: S ─► Out
//
// What has come and what the node brings is summed up in one pass. A chunk is
// shown just before the pass that needs it, at any rank of the ring.
//
// Cost for each rank, K nodes of m > 1 ranks: 2α + 2(K-1)·α′ + (3(m-1)/m +
// 2(K-1)/n)·b·β + 2(K-1)/n·b·β′ + (n-1)/n·b·γ. A node puts 2(K-1)/K·b, which is
// the least there is, and each of its ranks an equal part of that. Every
// byte is shown once, read by its owner, and copied out.
//
// Order of reduction, for each chunk: the nodes in the order of the ring, from
// the one behind its home on; what has come is the left operand; and within
// a node the ranks in ascending order. The sum is made in one place and copied
// from there, so all ranks get the same bits.
//
// Source: J. L. Träff, S. Hunold, "Decomposing MPI Collectives for Exploiting
// Multi-lane Communication", IEEE CLUSTER 2020; the ring as in [AllReduceRing].
func AllReduceHierRing(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-ring", nodes, (*grouping).laneEach, ringRounds, false)
}

// AllReduceHierRingDirect is allreduce/hier-ring-direct: [AllReduceHierRing] for
// buffers that are mapped within nodes.
//
//	up       In[c] of all of the node ─► S ── put ─►
//	         S ◄── put ──, S + In[c] of all of the node ─► S ── put ─►
//	         at home ─► Out[c] of all of the node ── put ─►
//	down     S ◄── put ──, ── put ─►, S ─► Out[c] of all of the node
//
// Cost for each rank, K nodes of m > 1 ranks: 2(K-1)·α′ + 2(m-1)/m·b·β +
// 2(K-1)/n·b·β′ + (n-1)/n·b·γ: as [AllReduceDirect] within, nobody waits there.
// The order of reduction is that of [AllReduceHierRing].
//
// Source: as [AllReduceHierRing].
func AllReduceHierRingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-ring-direct", nodes, (*grouping).laneEach, ringRounds, true)
}

// AllReduceHierHalvingDoubling is allreduce/hier-halving-doubling:
// [AllReduceHierRing] with [AllReduceHalvingDoubling] in place of the ring.
//
//	K = 4              lane l at its owners, one of each node
//	0↔2 1↔3   halve    2 chunks each way, of what each node has summed up
//	0↔1 2↔3   halve    1 chunk
//	0↔1 2↔3   double   1 chunk
//	0↔2 1↔3   double   2 chunks; then to the mates
//
// Cost for each rank, K nodes of m > 1 ranks, K a power of two: as
// [AllReduceHierRing] with 2·log2 K·α′; each rank talks to log2 K others. For
// other K the waits are at most 2⌈log2 K⌉·α′, and a rank of some nodes puts and
// combines up to ⌈K/2⌉ + ⌈K/4⌉ + ... + 1 chunks of its lane in place of K-1.
//
// Order of reduction: what has come is the left operand, then the ranks of the
// node in ascending order.
//
// Source: as [AllReduceHierRing] and [AllReduceHalvingDoubling].
func AllReduceHierHalvingDoubling(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-halving-doubling", nodes, (*grouping).laneEach, halvingRounds, false)
}

// AllReduceHierHalvingDoublingDirect is allreduce/hier-halving-doubling-direct:
// [AllReduceHierHalvingDoubling] for buffers that are mapped within nodes.
//
//	K = 4              lane l at its owners, one of each node
//	0↔2 1↔3   halve    2 chunks each way, summed up from In of all of the node
//	0↔1 2↔3   halve    1 chunk
//	0↔1 2↔3   double   1 chunk, which also goes to Out of all of the node
//	0↔2 1↔3   double   2 chunks, the same
//
// Cost: as [AllReduceHierRingDirect], with the waits of
// [AllReduceHierHalvingDoubling].
//
// Source: as [AllReduceHierHalvingDoubling].
func AllReduceHierHalvingDoublingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-halving-doubling-direct", nodes, (*grouping).laneEach, halvingRounds, true)
}

// AllReduceHierTree is allreduce/hier-tree: each lane is summed up along a binary
// tree of the nodes and goes down it again; staged. The lanes have their tops in
// different nodes.
//
//	K = 3        lane 0          lane 1          lane 2
//
//	             node 0          node 1          node 2
//	             ╱    ╲          ╱    ╲          ╱    ╲
//	          node 1 node 2   node 2 node 0   node 0 node 1
//
//	up       In + mates' S ─► S ── put ─►          a leaf
//	         S + S + In + mates' S ─► S ── put ─►  an inner node, at the top ─► Out
//	down     S ◄── put ──, ── put ─► ── put ─►, S ─► S, Out, mates: S ─► Out
//
// Cost for each rank, K nodes of m > 1 ranks: 2α + 2⌊log2 K⌋·α′ + (3m-1)/m·b·β +
// 3/m·b·β′ + (m+1)/m·b·γ. With up to 4 nodes it is 2/m·b·β′, with 2 it is
// 1/m·b·β′ and b·γ. With a lane for every node or more, all nodes put about
// as much as in a ring; but some of their ranks more than others.
//
// Order of reduction: what has come, the children in their order, then the
// ranks of the node in ascending order.
//
// Source: as [AllReduceHierRing] and [AllReduceTree].
func AllReduceHierTree(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-tree", nodes, (*grouping).laneTurn, treeRounds, false)
}

// AllReduceHierTreeDirect is allreduce/hier-tree-direct: [AllReduceHierTree] for
// buffers that are mapped within nodes.
//
//	up       S + S + In of all of the node ─► S ── put ─►
//	         at the top ─► Out of all of the node ── put ─►
//	down     S ◄── put ──, ── put ─► ── put ─►, S ─► Out of all of the node
//
// Cost for each rank, K nodes of m > 1 ranks: 2⌊log2 K⌋·α′ + 2(m-1)/m·b·β, and
// the rest as [AllReduceHierTree].
//
// Source: as [AllReduceHierTree].
func AllReduceHierTreeDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-tree-direct", nodes, (*grouping).laneTurn, treeRounds, true)
}

// hierAllReduce returns the allreduce in which every lot is summed up at its
// home, and passed on from there.
func hierAllReduce(name string, nodes plan.Nodes, cut func(*grouping) []lot, among pattern, direct bool) (*plan.Plan, error) {
	g := group(nodes)
	lots := cut(g)
	return authorOver(name, plan.AllReduce, nodes, 0, len(lots), func(b *plan.Builder) {
		h := newHierarchy(b, g, len(lots), direct, plan.Out.At)
		up, down := among(len(g.members))
		h.spread(h.sumUp(up, lots), h.among(down, lots))
	})
}

// AllReduceHierDoubling is allreduce/hier-doubling: one rank of each node, its
// first, sums up what all bring, these exchange as in [AllReduceDoubling], and
// the others copy the sum. There is one lane, so that a node sends few messages:
// it is for short ones.
//
//	mates     In ─► S ─┐                                  ┌─► Out
//	first     In ──────┴─► Σ ◄── put ──► first of others ─┴─► S, Out
//
// Cost, K nodes of m > 1 ranks, K a power of two: 2α + log2 K·α′ + max(m-1,
// 2)·b·β + log2 K·b·β′ + (m-1+log2 K)·b·γ. For other K as [AllReduceDoubling].
//
// Order of reduction: the ranks of each node in ascending order; then the nodes
// in pairs, the lower one first.
//
// Source: N. T. Karonis, B. R. de Supinski, I. Foster, W. Gropp, E. Lusk, J.
// Bresnahan, "Exploiting Hierarchy in Parallel Computer Networks to Optimize
// Collective Operation Performance", IPDPS 2000.
func AllReduceHierDoubling(nodes plan.Nodes) (*plan.Plan, error) {
	return authorOver("allreduce/hier-doubling", plan.AllReduce, nodes, 0, 1, func(b *plan.Builder) {
		h := newHierarchy(b, group(nodes), 1, false, plan.Out.At)
		var sums []plan.Place
		if len(h.members) == 1 {
			sums = []plan.Place{h.sumUp(nil, []lot{{0, 0}})[0].at}
		} else {
			sums = h.double(h.sumNodes())
		}
		for _, at := range sums {
			h.pass(at.Rank, 0, at)
		}
	})
}

// sumNodes lets the owner of lane 0 in each node sum up what the node brings to
// block 0, and returns where the sums are.
func (h *hierarchy) sumNodes() []plan.Place {
	parts := make([][]plan.Place, len(h.members))
	for k := range parts {
		parts[k] = h.brings(h.owner(k, 0), 0)
	}
	sums := make([]plan.Place, len(parts))
	for k, srcs := range parts {
		r := h.owner(k, 0)
		if sums[k] = srcs[0]; len(srcs) > 1 {
			sums[k] = h.scratch(r)
			h.Reduce(r, sums[k:k+1], srcs...)
		}
	}
	return sums
}

// ReduceScatterHierRing is reduce_scatter/hier-ring: in every node a block has an
// owner, at home that is the rank that it is for. The blocks of a node's ranks go
// around a ring of nodes and end at home; staged.
//
//	3 nodes of 2 ranks, block 0, which is for rank 0 of node 0
//
//	node 1                     node 2                     node 0
//	2: In[0] + 3's S ─► S ──►  4: S + In[0] + 5's S ──►   0: S + In[0] + 1's S ─► Out
//
// Cost for each rank, with b the bytes of n blocks, K nodes of m > 1 ranks: α +
// (K-1)·α′ + 2(m-1)/m·b·β + (K-1)/n·b·β′ + (n-1)/n·b·γ. Unequal nodes put and get
// less than b each, however many ranks they have.
//
// Order of reduction: as [AllReduceHierRing].
//
// Source: as [AllReduceHierRing].
func ReduceScatterHierRing(nodes plan.Nodes) (*plan.Plan, error) {
	return hierReduceScatter("reduce_scatter/hier-ring", nodes, ringRounds, false)
}

// ReduceScatterHierRingDirect is reduce_scatter/hier-ring-direct:
// [ReduceScatterHierRing] for buffers that are mapped within nodes.
//
//	node 1                     node 2                     node 0
//	2: In[0] of 2, 3 ─► S ──►  4: S + In[0] of 4, 5 ──►   0: S + In[0] of 0, 1 ─► Out
//
// Cost for each rank, K nodes of m ranks: (K-1)·α′ + (m-1)/m·b·β + (K-1)/n·b·β′ +
// (n-1)/n·b·γ.
//
// Source: as [AllReduceHierRing].
func ReduceScatterHierRingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierReduceScatter("reduce_scatter/hier-ring-direct", nodes, ringRounds, true)
}

// ReduceScatterHierHalving is reduce_scatter/hier-halving: [ReduceScatterHierRing]
// with [ReduceScatterHalving] among the nodes.
//
//	K = 4      0 1 2 3
//	round 0    └───┘       0↔2 1↔3, the blocks of two nodes each way
//	round 1    └─┘ └─┘     0↔1 2↔3, the blocks of one
//
// Cost: as [ReduceScatterHierRing], with log2 K·α′ for a power of two, and at most
// ⌈log2 K⌉·α′ for others. In rounds, a node gets what is for whole halves: where
// nodes are unequal, the ring is more even.
//
// Source: as [AllReduceHierRing] and [ReduceScatterHalving].
func ReduceScatterHierHalving(nodes plan.Nodes) (*plan.Plan, error) {
	return hierReduceScatter("reduce_scatter/hier-halving", nodes, halvingRounds, false)
}

// ReduceScatterHierHalvingDirect is reduce_scatter/hier-halving-direct:
// [ReduceScatterHierHalving] for buffers that are mapped within nodes.
//
//	K = 4      0 1 2 3
//	round 0    └───┘       In of all of the node ─► S ── put ─►
//	round 1    └─┘ └─┘     S + In of all of the node ─► S ── put ─►
//	                       S + In of all of the node ─► Out
//
// Cost: as [ReduceScatterHierRingDirect], with the waits of
// [ReduceScatterHierHalving].
//
// Source: as [ReduceScatterHierHalving].
func ReduceScatterHierHalvingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierReduceScatter("reduce_scatter/hier-halving-direct", nodes, halvingRounds, true)
}

// hierReduceScatter returns the reduce-scatter in which every block is summed up
// at its home.
func hierReduceScatter(name string, nodes plan.Nodes, among pattern, direct bool) (*plan.Plan, error) {
	return authorOver(name, plan.ReduceScatter, nodes, 0, 1, func(b *plan.Builder) {
		h := newHierarchy(b, group(nodes), len(nodes), direct, mine)
		h.ends = func(r, c int) []plan.Place { return []plan.Place{mine(r, c)} }
		up, _ := among(len(h.members))
		h.sumUp(up, h.laneOwn())
	})
}

// ReduceHierChain is reduce/hier-chain: in each lane a chain of nodes ends at the
// owner in the root's node; staged.
//
//	node 1                   node 2                  node 0, the root's
//	2: In + 3's S ─► S ──►   4: S + In + 5's S ──►   0: S + In + 1's S ─► Out
//	3: In + 2's S ─► S ──►   5: S + In + 4's S ──►   1: S + In + 0's S ─► S ─► Out of 0
//
// Cost, K nodes of m > 1 ranks: 2α + (K-1)·α′ + 3(m-1)/m·b·β + 1/m·b·β′ + b·γ. It is
// the root that moves most within: it shows, reads, and copies the other lanes'
// sums.
//
// Order of reduction: as [AllReduceHierRing], from the node behind the root's on.
//
// Source: as [AllReduceHierRing] and [ReduceChain].
func ReduceHierChain(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierReduce("reduce/hier-chain", nodes, root, ringRounds, false)
}

// ReduceHierChainDirect is reduce/hier-chain-direct: [ReduceHierChain] for buffers
// that are mapped within nodes.
//
//	node 1                   node 2                  node 0, the root's
//	2: In of 2, 3 ─► S ──►   4: S + In of 4, 5 ──►   0: S + In of 0, 1 ─► Out of 0
//	3: In of 2, 3 ─► S ──►   5: S + In of 4, 5 ──►   1: S + In of 0, 1 ─► Out of 0
//
// Cost, K nodes of m > 1 ranks: (K-1)·α′ + b·β + 1/m·b·β′ + b·γ.
//
// Source: as [ReduceHierChain].
func ReduceHierChainDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierReduce("reduce/hier-chain-direct", nodes, root, ringRounds, true)
}

// ReduceHierTree is reduce/hier-tree: [ReduceHierChain] with a binary tree of the
// nodes for the chain.
//
//	    node 0, the root's      S + S + In + mates' S ─► Out, or S ─► Out of the root
//	     ╱         ╲
//	  node 1      node 2        S + S + In + mates' S ─► S ── put ─►
//	  ╱    ╲       ╱
//	node 3 node 4 node 5        In + mates' S ─► S ── put ─►
//
// Cost, K > 2 nodes of m > 1 ranks: 2α + ⌊log2 K⌋·α′ + 3(m-1)/m·b·β + 1/m·b·β′ +
// (m+1)/m·b·γ; a node gets up to 2b.
//
// Order of reduction: as [AllReduceHierTree].
//
// Source: as [ReduceHierChain].
func ReduceHierTree(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierReduce("reduce/hier-tree", nodes, root, treeRounds, false)
}

// ReduceHierTreeDirect is reduce/hier-tree-direct: [ReduceHierTree] for buffers
// that are mapped within nodes.
//
//	    node 0, the root's      S + S + In of all of the node ─► Out of the root
//	     ╱         ╲
//	  node 1      node 2        S + S + In of all of the node ─► S ── put ─►
//	  ╱    ╲       ╱
//	node 3 node 4 node 5        In of all of the node ─► S ── put ─►
//
// Cost, K > 2 nodes of m > 1 ranks: ⌊log2 K⌋·α′ + b·β + 1/m·b·β′ + (m+1)/m·b·γ.
//
// Source: as [ReduceHierChain].
func ReduceHierTreeDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierReduce("reduce/hier-tree-direct", nodes, root, treeRounds, true)
}

// hierReduce returns the reduce in which every lane is summed up in the root's
// node, from where the root has it.
func hierReduce(name string, nodes plan.Nodes, root int, among pattern, direct bool) (*plan.Plan, error) {
	g := group(nodes)
	return authorOver(name, plan.Reduction, nodes, root, g.lanes, func(b *plan.Builder) {
		h := newHierarchy(b, g, g.lanes, direct, plan.Out.At)
		h.ends = func(r, c int) []plan.Place {
			if direct || r == root {
				return []plan.Place{plan.Out.At(root, c)}
			}
			return []plan.Place{h.scratch(r)}
		}
		up, _ := among(len(g.members))
		for _, sum := range h.sumUp(up, g.laneAt(root)) {
			if out := plan.Out.At(root, sum.block); sum.at != out {
				b.Copy(root, sum.at, out)
			}
		}
	})
}
