package algo

import "github.com/tutti-go/tutti/plan"

// BroadcastHierChain is broadcast/hier-chain.
func BroadcastHierChain(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierBroadcast("broadcast/hier-chain", nodes, root, ringRounds, false)
}

// BroadcastHierChainDirect is broadcast/hier-chain-direct.
func BroadcastHierChainDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierBroadcast("broadcast/hier-chain-direct", nodes, root, ringRounds, true)
}

// BroadcastHierTree is broadcast/hier-tree.
func BroadcastHierTree(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierBroadcast("broadcast/hier-tree", nodes, root, treeRounds, false)
}

// BroadcastHierTreeDirect is broadcast/hier-tree-direct.
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
		h.there[holding{c, at}] = true
		return at
	}
	h.from[holding{c, shown}] = plan.In.At(r, c)
	return shown
}

// AllGatherHierRing is allgather/hier-ring.
func AllGatherHierRing(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllGather("allgather/hier-ring", nodes, ringRounds, false)
}

// AllGatherHierRingDirect is allgather/hier-ring-direct.
func AllGatherHierRingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllGather("allgather/hier-ring-direct", nodes, ringRounds, true)
}

// AllGatherHierDoubling is allgather/hier-doubling.
func AllGatherHierDoubling(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllGather("allgather/hier-doubling", nodes, halvingRounds, false)
}

// AllGatherHierDoublingDirect is allgather/hier-doubling-direct.
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
				h.from[held[r]] = plan.In.At(r, 0)
			}
		}
		_, down := among(len(h.members))
		h.spread(held, h.among(down, h.laneOwn()))
	})
}

// GatherHier is gather/hier.
func GatherHier(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierGather("gather/hier", nodes, root, false)
}

// GatherHierDirect is gather/hier-direct.
func GatherHierDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierGather("gather/hier-direct", nodes, root, true)
}

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

// ScatterHier is scatter/hier.
func ScatterHier(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierScatter("scatter/hier", nodes, root, false)
}

// ScatterHierDirect is scatter/hier-direct.
func ScatterHierDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierScatter("scatter/hier-direct", nodes, root, true)
}

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

// AllToAllHier is alltoall/hier.
func AllToAllHier(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllToAll("alltoall/hier", nodes, false)
}

// AllToAllHierDirect is alltoall/hier-direct.
func AllToAllHierDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllToAll("alltoall/hier-direct", nodes, true)
}

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

// BarrierHier is barrier/hier.
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
				to := []plan.Place{heard[k]}
				if 2*dist >= n {
					to = append(to, plan.Out.At(at.Rank, 0))
				}
				b.Reduce(at.Rank, to, at, heard[k])
			}
			known = heard
		}
		for _, at := range known {
			h.pass(at.Rank, 0, at)
		}
	})
}
