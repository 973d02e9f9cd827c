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
