package algo

import "github.com/tutti-go/tutti/plan"

// hierGenerators are the hierarchical algorithms, in the order in which [Names]
// lists them.
var hierGenerators = []overGenerator{
	{"allreduce/hier-ring", plan.AllReduce, unrootedOver(AllReduceHierRing)},
	{"allreduce/hier-ring-direct", plan.AllReduce, unrootedOver(AllReduceHierRingDirect)},
	{"allreduce/hier-halving-doubling", plan.AllReduce, unrootedOver(AllReduceHierHalvingDoubling)},
	{"allreduce/hier-halving-doubling-direct", plan.AllReduce, unrootedOver(AllReduceHierHalvingDoublingDirect)},
	{"allreduce/hier-tree", plan.AllReduce, unrootedOver(AllReduceHierTree)},
	{"allreduce/hier-tree-direct", plan.AllReduce, unrootedOver(AllReduceHierTreeDirect)},
	{"allreduce/hier-doubling", plan.AllReduce, unrootedOver(AllReduceHierDoubling)},

	{"broadcast/hier-chain", plan.Broadcast, BroadcastHierChain},
	{"broadcast/hier-chain-direct", plan.Broadcast, BroadcastHierChainDirect},
	{"broadcast/hier-tree", plan.Broadcast, BroadcastHierTree},
	{"broadcast/hier-tree-direct", plan.Broadcast, BroadcastHierTreeDirect},

	{"reduce/hier-chain", plan.Reduction, ReduceHierChain},
	{"reduce/hier-chain-direct", plan.Reduction, ReduceHierChainDirect},
	{"reduce/hier-tree", plan.Reduction, ReduceHierTree},
	{"reduce/hier-tree-direct", plan.Reduction, ReduceHierTreeDirect},

	{"gather/hier", plan.Gather, GatherHier},
	{"gather/hier-direct", plan.Gather, GatherHierDirect},

	{"allgather/hier-ring", plan.AllGather, unrootedOver(AllGatherHierRing)},
	{"allgather/hier-ring-direct", plan.AllGather, unrootedOver(AllGatherHierRingDirect)},
	{"allgather/hier-doubling", plan.AllGather, unrootedOver(AllGatherHierDoubling)},
	{"allgather/hier-doubling-direct", plan.AllGather, unrootedOver(AllGatherHierDoublingDirect)},

	{"scatter/hier", plan.Scatter, ScatterHier},
	{"scatter/hier-direct", plan.Scatter, ScatterHierDirect},

	{"reduce_scatter/hier-ring", plan.ReduceScatter, unrootedOver(ReduceScatterHierRing)},
	{"reduce_scatter/hier-ring-direct", plan.ReduceScatter, unrootedOver(ReduceScatterHierRingDirect)},
	{"reduce_scatter/hier-halving", plan.ReduceScatter, unrootedOver(ReduceScatterHierHalving)},
	{"reduce_scatter/hier-halving-direct", plan.ReduceScatter, unrootedOver(ReduceScatterHierHalvingDirect)},

	{"alltoall/hier", plan.AllToAll, unrootedOver(AllToAllHier)},
	{"alltoall/hier-direct", plan.AllToAll, unrootedOver(AllToAllHierDirect)},

	{"barrier/hier", plan.Barrier, unrootedOver(BarrierHier)},
}

// AllReduceHierRing is allreduce/hier-ring.
func AllReduceHierRing(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-ring", nodes, laneEach(nodes), ringRounds, false)
}

// AllReduceHierRingDirect is allreduce/hier-ring-direct.
func AllReduceHierRingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-ring-direct", nodes, laneEach(nodes), ringRounds, true)
}

// AllReduceHierHalvingDoubling is allreduce/hier-halving-doubling.
func AllReduceHierHalvingDoubling(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-halving-doubling", nodes, laneEach(nodes), halvingRounds, false)
}

// AllReduceHierHalvingDoublingDirect is allreduce/hier-halving-doubling-direct.
func AllReduceHierHalvingDoublingDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-halving-doubling-direct", nodes, laneEach(nodes), halvingRounds, true)
}

// AllReduceHierTree is allreduce/hier-tree.
func AllReduceHierTree(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-tree", nodes, laneTurn(nodes), treeRounds, false)
}

// AllReduceHierTreeDirect is allreduce/hier-tree-direct.
func AllReduceHierTreeDirect(nodes plan.Nodes) (*plan.Plan, error) {
	return hierAllReduce("allreduce/hier-tree-direct", nodes, laneTurn(nodes), treeRounds, true)
}

// hierAllReduce returns the allreduce in which every lot is summed up at its
// home, and passed on from there.
func hierAllReduce(name string, nodes plan.Nodes, lots []lot, among pattern, direct bool) (*plan.Plan, error) {
	return authorOver(name, plan.AllReduce, nodes, 0, len(lots), func(b *plan.Builder) {
		h := newHierarchy(b, nodes, len(lots), direct, plan.Out.At)
		up, down := among(nodes.Count())
		h.spread(h.sumUp(up, lots), h.among(down, lots))
	})
}

// AllReduceHierDoubling is allreduce/hier-doubling.
func AllReduceHierDoubling(nodes plan.Nodes) (*plan.Plan, error) {
	return authorOver("allreduce/hier-doubling", plan.AllReduce, nodes, 0, 1, func(b *plan.Builder) {
		h := newHierarchy(b, nodes, 1, false, plan.Out.At)
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
		lots := laneOwn(nodes)
		h := newHierarchy(b, nodes, len(lots), direct, mine)
		h.ends = func(r, c int, _ plan.Place) []plan.Place { return []plan.Place{mine(r, c)} }
		up, _ := among(nodes.Count())
		h.sumUp(up, lots)
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
	lots := laneAt(nodes, root)
	return authorOver(name, plan.Reduction, nodes, root, len(lots), func(b *plan.Builder) {
		h := newHierarchy(b, nodes, len(lots), direct, plan.Out.At)
		h.ends = func(r, c int, came plan.Place) []plan.Place {
			switch {
			case direct || r == root:
				came = plan.Out.At(root, c)
			case came.Buf != plan.Scratch:
				came = h.scratch(r)
			}
			return []plan.Place{came}
		}
		up, _ := among(nodes.Count())
		for _, sum := range h.sumUp(up, lots) {
			if out := plan.Out.At(root, sum.block); sum.at != out {
				b.Copy(root, sum.at, out)
			}
		}
	})
}
