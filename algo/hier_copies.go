package algo

import "github.com/tutti-go/tutti/plan"

// BroadcastHierChain is broadcast/hier-chain: the owners of the lanes in the root's
// node take their lane from what the root shows, and put it along a chain of
// nodes; in every node the others copy it from the owner; staged.
//
//	node 0, the root's          node 1                   node 2
//	0: In ─► S ── put ──────►   2: S ── put ─────────►   4: S
//	1: S of 0 ─► S ── put ──►   3: S ── put ─────────►   5: S
//	S of 0 ─► Out, all lanes    S of 2 and 3 ─► Out      S of 4 and 5 ─► Out
//
// Cost, K nodes of m > 1 ranks: 2α + (K-1)·α′ + 2b·β + 1/m·b·β′. The root shows b, and
// copies b to its Out unless the call is in place; all others copy b.
//
// Source: as [AllReduceHierRing] and [BroadcastChain].
func BroadcastHierChain(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierBroadcast("broadcast/hier-chain", nodes, root, ringRounds, false)
}

// BroadcastHierChainDirect is broadcast/hier-chain-direct: [BroadcastHierChain] for
// buffers that are mapped within nodes.
//
//	node 0, the root's                 node 1
//	0: In ── put ───────────────────►  2: S ── put ─►, S ─► Out of 2, 3
//	1: In of 0 ─► Out of 1, 0 ── put ► 3: S ── put ─►, S ─► Out of 3, 2
//	0: In ─► Out of 0, 1
//
// Cost, K nodes of m > 1 ranks: (K-1)·α′ + b·β + 1/m·b·β′.
//
// Source: as [BroadcastHierChain].
func BroadcastHierChainDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierBroadcast("broadcast/hier-chain-direct", nodes, root, ringRounds, true)
}

// BroadcastHierTree is broadcast/hier-tree: [BroadcastHierChain] with a binary tree
// of the nodes for the chain.
//
//	    node 0, the root's      as there
//	     ╱         ╲
//	  node 1      node 2        S ── put ─►, ── put ─►, then to the node
//	  ╱    ╲       ╱
//	node 3 node 4 node 5
//
// Cost, K > 2 nodes of m > 1 ranks: 2α + ⌊log2 K⌋·α′ + 2b·β + 2/m·b·β′.
//
// Source: as [BroadcastHierChain].
func BroadcastHierTree(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierBroadcast("broadcast/hier-tree", nodes, root, treeRounds, false)
}

// BroadcastHierTreeDirect is broadcast/hier-tree-direct: [BroadcastHierTree] for
// buffers that are mapped within nodes.
//
//	    node 0, the root's      In ── put ─►, ── put ─►, In ─► Out of the node
//	     ╱         ╲
//	  node 1      node 2        S ── put ─►, ── put ─►, S ─► Out of the node
//	  ╱    ╲       ╱
//	node 3 node 4 node 5
//
// Cost, K > 2 nodes of m > 1 ranks: ⌊log2 K⌋·α′ + b·β + 2/m·b·β′.
//
// Source: as [BroadcastHierChain].
func BroadcastHierTreeDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierBroadcast("broadcast/hier-tree-direct", nodes, root, treeRounds, true)
}

// hierBroadcast returns the broadcast in which the owners of the lanes in the
// root's node take their lane from the root and pass it on.
func hierBroadcast(name string, nodes plan.Nodes, root int, among pattern, direct bool) (*plan.Plan, error) {
	g := group(nodes)
	return authorOver(name, plan.Broadcast, nodes, root, g.lanes, func(b *plan.Builder) {
		h := newHierarchy(b, g, g.lanes, direct, plan.Out.At)
		shown := make([]plan.Place, g.lanes)
		for c := range shown {
			if shown[c] = plan.In.At(root, c); !h.direct && !h.alone(root) {
				shown[c] = h.show(root, shown[c])
			}
		}
		h.pass = func(r, c int, at plan.Place) {
			h.passOn(r, c, func(q int) plan.Place {
				switch {
				case q == root:
					return plan.In.At(root, c)
				case h.node[q] == h.node[root]:
					return shown[c]
				}
				return at
			})
		}
		if len(h.members) == 1 && !direct {
			for c, at := range shown {
				h.pass(root, c, at)
				b.Copy(root, plan.In.At(root, c), plan.Out.At(root, c))
			}
			return
		}
		lots := g.laneAt(root)
		held := make([]holding, len(lots))
		for c, l := range lots {
			held[c] = holding{c, h.take(h.home(l), c, shown[c])}
		}
		_, down := among(len(g.members))
		h.spread(held, h.among(down, lots))
	})
}

// take lets the owner of a lane in the root's node have what the root shows, and
// returns where it then has it: in its Out, or in its scratch if it has copied it
// to both, or where the root has it if it is the root.
func (h *hierarchy) take(r, c int, shown plan.Place) plan.Place {
	switch {
	case r != shown.Rank && h.direct:
		h.keep(r, c, shown)
		return h.out(r, c)
	case r != shown.Rank:
		at := h.scratch(r)
		h.Copy(r, shown, at, h.out(r, c))
		h.there[at] = true
		return at
	}
	return shown
}

// AllGatherHierRing is allgather/hier-ring: every rank shows its block, and puts it
// along a ring of nodes; in every node its owner puts it on, and the others copy
// it from there; staged.
//
//	3 nodes of 2 ranks, block 0
//
//	node 0                  node 1                 node 2
//	0: In ─► S ── put ──►   2: S ── put ───────►   4: S
//	S of 0 ─► Out[0], all   S of 2 ─► Out[0], all  S of 4 ─► Out[0], all
//
// Cost for each rank, with b the bytes of n blocks, K nodes of m > 1 ranks: α +
// (K-1)·α′ + (n+K)/n·b·β + (K-1)/n·b·β′. Unequal nodes put and get less than b each,
// however many ranks they have.
//
// Source: as [AllReduceHierRing].
func AllGatherHierRing(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllGather("allgather/hier-ring", nodes, ringRounds, false)
}

// AllGatherHierRingDirect is allgather/hier-ring-direct: [AllGatherHierRing] for
// buffers that are mapped within nodes.
//
//	node 0                      node 1                       node 2
//	0: In ── put ────────────►  2: S ── put ──────────────►  4: S
//	0: In ─► Out[0] of 0, 1     2: S ─► Out[0] of 2, 3       4: S ─► Out[0] of 4, 5
//
// Cost for each rank, K nodes of m > 1 ranks: (K-1)·α′ + (m-1)/m·b·β +
// (K-1)/n·b·β′.
//
// Source: as [AllGatherHierRing].
func AllGatherHierRingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllGather("allgather/hier-ring-direct", nodes, ringRounds, true)
}

// AllGatherHierDoubling is allgather/hier-doubling: [AllGatherHierRing] with
// [AllGatherDoubling] among the nodes.
//
//	K = 4      0 1 2 3
//	round 0    └─┘ └─┘     0↔1 2↔3, the blocks of one node each way
//	round 1    └───┘       0↔2 1↔3, the blocks of two
//
// Cost: as [AllGatherHierRing], with log2 K·α′ for a power of two. For others it is
// at most ⌈log2 K⌉·α′, and some nodes put more.
//
// Source: as [AllGatherHierRing] and [AllGatherDoubling].
func AllGatherHierDoubling(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllGather("allgather/hier-doubling", nodes, halvingRounds, false)
}

// AllGatherHierDoublingDirect is allgather/hier-doubling-direct:
// [AllGatherHierDoubling] for buffers that are mapped within nodes.
//
//	K = 4      0 1 2 3
//	round 0    └─┘ └─┘     In ── put ─►, In ─► Out of all of the node
//	round 1    └───┘       Out, S ── put ─►, S ─► Out of all of the node
//
// Cost: as [AllGatherHierRingDirect], with the waits of [AllGatherHierDoubling].
//
// Source: as [AllGatherHierDoubling].
func AllGatherHierDoublingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllGather("allgather/hier-doubling-direct", nodes, halvingRounds, true)
}

// hierAllGather returns the allgather in which every rank passes on what its
// node is to get from the rank's peers.
func hierAllGather(name string, nodes plan.Nodes, among pattern, direct bool) (*plan.Plan, error) {
	return authorOver(name, plan.AllGather, nodes, 0, 1, func(b *plan.Builder) {
		h := newHierarchy(b, group(nodes), len(nodes), direct, plan.Out.At)
		held := own(h.ranks)
		for r := range held {
			if !direct && !h.alone(r) {
				held[r].at = h.show(r, held[r].at)
			}
		}
		_, down := among(len(h.members))
		h.spread(held, h.among(down, h.laneOwn()))
	})
}

// GatherHier is gather/hier: [GatherLinear] from other nodes, [GatherStaged] within
// the root's.
//
//	other nodes   In ── put ─► root's S ─► Out     root
//	root's node   In ─► S ───────────────► Out     root
//	root          In ────────────────────► Out
//
// The root moves every byte, since nobody else can write its Out.
//
// Cost: α + α′ + b·β + 1/n·b·β′.
//
// Source: as [GatherLinear].
func GatherHier(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierGather("gather/hier", nodes, root, false)
}

// GatherHierDirect is gather/hier-direct: ranks of other nodes put to the owner of
// their lane in the root's node, which copies to the root's Out; those of the
// root's node copy their own there.
//
//	other nodes   In ── put ─► owner's S ─► root's Out     owner
//	root's node   In ─────────────────────► root's Out     each
//
// Cost, K nodes of m ranks: α′ + 1/m·b·β + 1/n·b·β′. All of the root's node share the
// work of copying, and of receiving.
//
// Source: as [AllReduceHierRing].
func GatherHierDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierGather("gather/hier-direct", nodes, root, true)
}

// hierGather returns the gather in which the ranks of other nodes put to the
// root, or to those who can write to its Out.
func hierGather(name string, nodes plan.Nodes, root int, direct bool) (*plan.Plan, error) {
	return authorOver(name, plan.Gather, nodes, root, 1, func(b *plan.Builder) {
		h := newHierarchy(b, group(nodes), len(nodes), direct, plan.Out.At)
		var came []holding // in scratch, of whoever copies it to the root's Out
		h.away(root, func(q, lane int) {
			to := root
			if direct {
				to = h.owner(h.node[root], lane)
			}
			came = append(came, holding{q, h.put(plan.In.At(q, 0), to)})
		})
		mates := h.gathered(root, func(q int) plan.Place { return plan.In.At(q, 0) })
		h.others(root, func(q int) {
			by := root
			if direct {
				by = q
			}
			b.Copy(by, mates[h.index[q]], plan.Out.At(root, q))
		})
		b.Copy(root, plan.In.At(root, 0), plan.Out.At(root, root))
		for _, a := range came {
			b.Copy(a.at.Rank, a.at, plan.Out.At(root, a.block))
		}
	})
}

// ScatterHier is scatter/hier: the root shows what is not in its own lane, and the
// owners of the other lanes in its node put that to other nodes.
//
//	root, lane 0     In ── put ─────────────────────► S ─► Out   other nodes
//	root, others     In ─► S ─► owner's S ── put ───► S ─► Out   other nodes
//	                       S ───────────────────────────► Out   root's node
//	root             In ────────────────────────────────► Out
//
// Lane 0 stands for the lanes that the root owns.
//
// Cost, K nodes of m > 1 ranks: α + α′ + (n-K+1)/n·b·β + (K-1)/n·b·β′: the root shows and
// copies (n-K+1)/n·b, and puts as much as each of its mates.
//
// Source: as [AllReduceHierRing].
func ScatterHier(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierScatter("scatter/hier", nodes, root, false)
}

// ScatterHierDirect is scatter/hier-direct: [ScatterHier] for buffers that are
// mapped within nodes.
//
//	root             In ── put ────────────────────► S ─► Out   other nodes
//	root's mates     root's In ─► S ── put ────────► S ─► Out   other nodes
//	                 root's In ─────────────────────────► Out
//
// Cost, K nodes of m > 1 ranks: α′ + 1/m·b·β + (K-1)/n·b·β′.
//
// Source: as [ScatterHier].
func ScatterHierDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierScatter("scatter/hier-direct", nodes, root, true)
}

// hierScatter returns the scatter in which the root's node puts to the others.
func hierScatter(name string, nodes plan.Nodes, root int, direct bool) (*plan.Plan, error) {
	return authorOver(name, plan.Scatter, nodes, root, 1, func(b *plan.Builder) {
		h := newHierarchy(b, group(nodes), len(nodes), direct, plan.Out.At)
		// within returns block q where rank by, of the root's node, can copy it.
		within := func(q, by int) plan.Place {
			if at := plan.In.At(root, q); direct || by == root {
				return at
			}
			return h.show(root, plan.In.At(root, q))
		}
		var came, near []holding
		h.away(root, func(q, lane int) {
			by := h.owner(h.node[root], lane)
			at := within(q, by)
			if by != root {
				mine := h.scratch(by)
				b.Copy(by, at, mine)
				at = mine
			}
			came = append(came, holding{q, h.put(at, q)})
		})
		h.others(root, func(q int) { near = append(near, holding{q, within(q, q)}) })
		for _, a := range append(near, came...) {
			b.Copy(a.block, a.at, plan.Out.At(a.block, 0))
		}
		b.Copy(root, plan.In.At(root, root), plan.Out.At(root, 0))
	})
}

// away calls f for every rank of other nodes than the root's, with its lane:
// first the first of each node, from the next node on, then the second ones.
func (g *grouping) away(root int, f func(q, lane int)) {
	for lane := range g.lanes {
		others(len(g.members), g.node[root], func(k int) {
			if ranks := g.members[k]; lane < len(ranks) {
				f(ranks[lane], lane)
			}
		})
	}
}

// AllToAllHier is alltoall/hier: every rank puts straight to all of other nodes,
// and shows the blocks for its own node there, as in [AllToAllStaged].
//
//	to other nodes    In[q] ── put ─► S of q ─► Out     q
//	to its own node   In[q] ─► S ─────────────► Out     q
//	                  In[r] ──────────────────► Out[r]
//
// Each starts with the next node, and there with the rank that is in the place
// that it has in its own. Blocks pass no third rank: each is a put of its own
// anyway, so that passing it on would save no messages.
//
// Cost for each rank, with b the bytes of n blocks, K nodes of m > 1 ranks: α + α′ +
// (n+m-1)/n·b·β + (n-m)/n·b·β′. The waits are on different paths.
//
// Source: as [AllToAllPairwise].
func AllToAllHier(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllToAll("alltoall/hier", nodes, false)
}

// AllToAllHierDirect is alltoall/hier-direct: [AllToAllHier] for buffers that are
// mapped within nodes.
//
//	to other nodes    In[q] ── put ─► S of q ─► Out     q
//	to its own node   In[q] ──────────────────► Out     q
//
// Cost for each rank, K nodes of m ranks: α′ + b·β + (n-m)/n·b·β′.
//
// Source: as [AllToAllHier].
func AllToAllHierDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllToAll("alltoall/hier-direct", nodes, true)
}

// hierAllToAll returns the alltoall of puts to other nodes and reads in the own.
func hierAllToAll(name string, nodes plan.Nodes, direct bool) (*plan.Plan, error) {
	return authorOver(name, plan.AllToAll, nodes, 0, 1, func(b *plan.Builder) {
		h := newHierarchy(b, group(nodes), len(nodes), direct, plan.Out.At)
		came := make([][]holding, h.ranks)
		for r := range h.ranks {
			others(len(h.members), h.node[r], func(k int) {
				ranks := h.members[k]
				for i := range ranks {
					q := ranks[(h.index[r]+i)%len(ranks)]
					came[q] = append(came[q], holding{r, h.put(plan.In.At(r, q), q)})
				}
			})
		}
		near := make([][]holding, h.ranks)
		for r := range h.ranks {
			h.others(r, func(q int) {
				at := plan.In.At(r, q)
				if !direct {
					at = h.show(r, at)
				}
				near[q] = append(near[q], holding{r, at})
			})
		}
		for r := range h.ranks {
			for _, a := range near[r] {
				b.Copy(r, a.at, plan.Out.At(r, a.block))
			}
			b.Copy(r, plan.In.At(r, r), plan.Out.At(r, r))
			for _, a := range came[r] {
				b.Copy(r, a.at, plan.Out.At(r, a.block))
			}
		}
	})
}

// BarrierHier is barrier/hier: one rank of each node, its first, hears from all of
// its node; these tell each other as in [BarrierDissemination]; and the others
// look at what their first one has heard.
//
//	mates     S ──┐                                     ┌─►
//	first     ────┴─► ── put ─► firsts of other nodes ──┴─►
//
// Cost, K nodes of which one has several ranks: 2α + ⌈log2 K⌉·α′.
//
// Source: as [BarrierDissemination].
func BarrierHier(nodes plan.Nodes) (*plan.Plan, error) {
	return authorOver("barrier/hier", plan.Barrier, nodes, 0, 1, func(b *plan.Builder) {
		h := newHierarchy(b, group(nodes), 1, false, plan.Out.At)
		n := len(h.members)
		known := h.sumNodes()
		for dist := 1; dist < n; dist *= 2 {
			heard := make([]plan.Place, n)
			for k, at := range known {
				to := (k + dist) % n
				heard[to] = h.put(at, h.owner(to, 0))
			}
			for k, at := range known {
				b.Reduce(at.Rank, heard[k:k+1], at, heard[k])
			}
			known = heard
		}
		for _, at := range known {
			h.pass(at.Rank, 0, h.keep(at.Rank, 0, at))
		}
	})
}
