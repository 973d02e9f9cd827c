package algo

import "github.com/tutti-go/tutti/plan"

// hierGenerators are the hierarchical algorithms, in the order in which [Names]
// lists them.
var hierGenerators = []overGenerator{
	{"allreduce/hier-ring", plan.AllReduce, unrootedOver(AllReduceHierRing), hierAllReduceCost((*grouping).laneEach, ringRounds, allButOne, false)},
	{"allreduce/hier-ring-direct", plan.AllReduce, unrootedOver(AllReduceHierRingDirect), hierAllReduceCost((*grouping).laneEach, ringRounds, allButOne, true)},
	{"allreduce/hier-halving-doubling", plan.AllReduce, unrootedOver(AllReduceHierHalvingDoubling), hierAllReduceCost((*grouping).laneEach, halvingRounds, hops, false)},
	{"allreduce/hier-halving-doubling-direct", plan.AllReduce, unrootedOver(AllReduceHierHalvingDoublingDirect), hierAllReduceCost((*grouping).laneEach, halvingRounds, hops, true)},
	{"allreduce/hier-tree", plan.AllReduce, unrootedOver(AllReduceHierTree), hierAllReduceCost((*grouping).laneTurn, treeRounds, floorLog2, false)},
	{"allreduce/hier-tree-direct", plan.AllReduce, unrootedOver(AllReduceHierTreeDirect), hierAllReduceCost((*grouping).laneTurn, treeRounds, floorLog2, true)},
	{"allreduce/hier-doubling", plan.AllReduce, unrootedOver(AllReduceHierDoubling), hierDoublingCost},

	{"broadcast/hier-chain", plan.Broadcast, BroadcastHierChain, hierBroadcastCost(ringRounds, allButOne, false)},
	{"broadcast/hier-chain-direct", plan.Broadcast, BroadcastHierChainDirect, hierBroadcastCost(ringRounds, allButOne, true)},
	{"broadcast/hier-tree", plan.Broadcast, BroadcastHierTree, hierBroadcastCost(treeRounds, floorLog2, false)},
	{"broadcast/hier-tree-direct", plan.Broadcast, BroadcastHierTreeDirect, hierBroadcastCost(treeRounds, floorLog2, true)},

	{"reduce/hier-chain", plan.Reduction, ReduceHierChain, hierReduceCost(ringRounds, allButOne, false)},
	{"reduce/hier-chain-direct", plan.Reduction, ReduceHierChainDirect, hierReduceCost(ringRounds, allButOne, true)},
	{"reduce/hier-tree", plan.Reduction, ReduceHierTree, hierReduceCost(treeRounds, floorLog2, false)},
	{"reduce/hier-tree-direct", plan.Reduction, ReduceHierTreeDirect, hierReduceCost(treeRounds, floorLog2, true)},

	{"gather/hier", plan.Gather, GatherHier, hierGatherCost(false)},
	{"gather/hier-direct", plan.Gather, GatherHierDirect, hierGatherCost(true)},

	{"allgather/hier-ring", plan.AllGather, unrootedOver(AllGatherHierRing), hierAllGatherCost(ringRounds, allButOne, false)},
	{"allgather/hier-ring-direct", plan.AllGather, unrootedOver(AllGatherHierRingDirect), hierAllGatherCost(ringRounds, allButOne, true)},
	{"allgather/hier-doubling", plan.AllGather, unrootedOver(AllGatherHierDoubling), hierAllGatherCost(halvingRounds, hops, false)},
	{"allgather/hier-doubling-direct", plan.AllGather, unrootedOver(AllGatherHierDoublingDirect), hierAllGatherCost(halvingRounds, hops, true)},

	{"scatter/hier", plan.Scatter, ScatterHier, hierScatterCost(false)},
	{"scatter/hier-direct", plan.Scatter, ScatterHierDirect, hierScatterCost(true)},

	{"reduce_scatter/hier-ring", plan.ReduceScatter, unrootedOver(ReduceScatterHierRing), hierReduceScatterCost(ringRounds, allButOne, false)},
	{"reduce_scatter/hier-ring-direct", plan.ReduceScatter, unrootedOver(ReduceScatterHierRingDirect), hierReduceScatterCost(ringRounds, allButOne, true)},
	{"reduce_scatter/hier-halving", plan.ReduceScatter, unrootedOver(ReduceScatterHierHalving), hierReduceScatterCost(halvingRounds, hops, false)},
	{"reduce_scatter/hier-halving-direct", plan.ReduceScatter, unrootedOver(ReduceScatterHierHalvingDirect), hierReduceScatterCost(halvingRounds, hops, true)},

	{"alltoall/hier", plan.AllToAll, unrootedOver(AllToAllHier), hierAllToAllCost(false)},
	{"alltoall/hier-direct", plan.AllToAll, unrootedOver(AllToAllHierDirect), hierAllToAllCost(true)},

	{"barrier/hier", plan.Barrier, unrootedOver(BarrierHier), hierBarrierCost},
}

// AllReduceHierRing is allreduce/hier-ring.
func AllReduceHierRing(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-ring", nodes, (*grouping).laneEach, ringRounds, false)
}

// AllReduceHierRingDirect is allreduce/hier-ring-direct.
func AllReduceHierRingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-ring-direct", nodes, (*grouping).laneEach, ringRounds, true)
}

// AllReduceHierHalvingDoubling is allreduce/hier-halving-doubling.
func AllReduceHierHalvingDoubling(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-halving-doubling", nodes, (*grouping).laneEach, halvingRounds, false)
}

// AllReduceHierHalvingDoublingDirect is allreduce/hier-halving-doubling-direct.
func AllReduceHierHalvingDoublingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-halving-doubling-direct", nodes, (*grouping).laneEach, halvingRounds, true)
}

// AllReduceHierTree is allreduce/hier-tree.
func AllReduceHierTree(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-tree", nodes, (*grouping).laneTurn, treeRounds, false)
}

// AllReduceHierTreeDirect is allreduce/hier-tree-direct.
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

// AllReduceHierDoubling is allreduce/hier-doubling.
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

// ReduceScatterHierRing is reduce_scatter/hier-ring.
func ReduceScatterHierRing(nodes plan.Nodes) (*plan.Plan, error) {
	return hierReduceScatter("reduce_scatter/hier-ring", nodes, ringRounds, false)
}

// ReduceScatterHierRingDirect is reduce_scatter/hier-ring-direct.
func ReduceScatterHierRingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierReduceScatter("reduce_scatter/hier-ring-direct", nodes, ringRounds, true)
}

// ReduceScatterHierHalving is reduce_scatter/hier-halving.
func ReduceScatterHierHalving(nodes plan.Nodes) (*plan.Plan, error) {
	return hierReduceScatter("reduce_scatter/hier-halving", nodes, halvingRounds, false)
}

// ReduceScatterHierHalvingDirect is reduce_scatter/hier-halving-direct.
func ReduceScatterHierHalvingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierReduceScatter("reduce_scatter/hier-halving-direct", nodes, halvingRounds, true)
}

func hierReduceScatter(name string, nodes plan.Nodes, among pattern, direct bool) (*plan.Plan, error) {
	return authorOver(name, plan.ReduceScatter, nodes, 0, 1, func(b *plan.Builder) {
		h := newHierarchy(b, group(nodes), len(nodes), direct, mine)
		h.ends = func(r, c int, _ plan.Place) []plan.Place { return []plan.Place{mine(r, c)} }
		up, _ := among(len(h.members))
		h.sumUp(up, h.laneOwn())
	})
}

// ReduceHierChain is reduce/hier-chain.
func ReduceHierChain(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierReduce("reduce/hier-chain", nodes, root, ringRounds, false)
}

// ReduceHierChainDirect is reduce/hier-chain-direct.
func ReduceHierChainDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierReduce("reduce/hier-chain-direct", nodes, root, ringRounds, true)
}

// ReduceHierTree is reduce/hier-tree.
func ReduceHierTree(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierReduce("reduce/hier-tree", nodes, root, treeRounds, false)
}

// ReduceHierTreeDirect is reduce/hier-tree-direct.
func ReduceHierTreeDirect(nodes plan.Nodes, root int) (*plan.Plan, error) {
	return hierReduce("reduce/hier-tree-direct", nodes, root, treeRounds, true)
}

// hierReduce returns the reduce in which every lane is summed up in the root's
// node, from where the root has it.
func hierReduce(name string, nodes plan.Nodes, root int, among pattern, direct bool) (*plan.Plan, error) {
	g := group(nodes)
	return authorOver(name, plan.Reduction, nodes, root, g.lanes, func(b *plan.Builder) {
		h := newHierarchy(b, g, g.lanes, direct, plan.Out.At)
		h.ends = func(r, c int, came plan.Place) []plan.Place {
			switch {
			case direct || r == root:
				came = plan.Out.At(root, c)
			case came.Buf != plan.Scratch:
				came = h.scratch(r)
			}
			return []plan.Place{came}
		}
		up, _ := among(len(g.members))
		for _, sum := range h.sumUp(up, g.laneAt(root)) {
			if out := plan.Out.At(root, sum.block); sum.at != out {
				b.Copy(root, sum.at, out)
			}
		}
	})
}
