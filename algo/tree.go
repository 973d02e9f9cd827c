package algo

import (
	"cmp"
	"math/bits"

	"github.com/tutti-go/tutti/plan"
)

// treeGenerators pass data along trees and chains.
var treeGenerators = []generator{
	{"allreduce/tree", plan.AllReduce, unrooted(AllReduceTree), func(n int) Cost {
		return Cost{2 * floorLog2(n), share(min(max(n-1, 2), 4), 1), share(min(n-1, 2), 1)}
	}},
	{"allreduce/doubletree", plan.AllReduce, unrooted(AllReduceDoubleTree), func(n int) Cost {
		few := map[int]int{2: 3, 3: 4} // too few for a node with a parent and two children
		return Cost{2 * floorLog2(n), share(cmp.Or(few[n], 6), 2), share(min(n-1, 2), 2)}
	}},
	{"broadcast/binomial", plan.Broadcast, BroadcastBinomial, func(n int) Cost {
		return Cost{floorLog2(n), share(ceilLog2(n)+1, 1), 0}
	}},
	{"broadcast/tree", plan.Broadcast, BroadcastTree, func(n int) Cost {
		return Cost{floorLog2(n), share(min(n, 3), 1), 0}
	}},
	{"broadcast/doubletree", plan.Broadcast, BroadcastDoubleTree, func(n int) Cost {
		return Cost{floorLog2(n-1) + 1, 2, 0}
	}},
	{"broadcast/chain", plan.Broadcast, BroadcastChain, func(n int) Cost { return Cost{n - 1, 2, 0} }},
	{"reduce/binomial", plan.Reduction, ReduceBinomial, func(n int) Cost {
		return Cost{floorLog2(n), 1, share(ceilLog2(n), 1)}
	}},
	{"reduce/tree", plan.Reduction, ReduceTree, func(n int) Cost {
		return Cost{floorLog2(n), 1, share(min(n-1, 2), 1)}
	}},
	{"reduce/doubletree", plan.Reduction, ReduceDoubleTree, func(n int) Cost {
		return Cost{floorLog2(n-1) + 1, 1, 1}
	}},
	{"reduce/chain", plan.Reduction, ReduceChain, func(n int) Cost { return Cost{n - 1, 1, 1} }},
	{"gather/linear", plan.Gather, GatherLinear, func(int) Cost { return Cost{1, 1, 0} }},
	{"gather/binomial", plan.Gather, GatherBinomial, func(n int) Cost { return Cost{floorLog2(n), 1, 0} }},
	{"scatter/linear", plan.Scatter, ScatterLinear, func(int) Cost { return Cost{1, 1, 0} }},
	{"scatter/binomial", plan.Scatter, ScatterBinomial, func(n int) Cost { return Cost{floorLog2(n), 1, 0} }},
}

// floorLog2 returns ⌊log2 n⌋.
func floorLog2(n int) int { return bits.Len(uint(n)) - 1 }

// ceilLog2 returns ⌈log2 n⌉.
func ceilLog2(n int) int { return bits.Len(uint(n - 1)) }

// allButOne returns n-1: the length of a chain of n.
func allButOne(n int) int { return n - 1 }

// binaryTree returns the complete binary tree of n ranks, in which vertex v
// has the children 2v+1 and 2v+2.
func binaryTree(n, root int) *tree {
	return relabel(n, root, func(v int) []int {
		var children []int
		for c := 2*v + 1; c <= 2*v+2 && c < n; c++ {
			children = append(children, c)
		}
		return children
	})
}

// AllReduceTree is allreduce/tree: a binary tree sums up to the root, rank 0, and the
// sum goes down again. With tiles in flight, all levels work at once in both
// directions.
//
//	      0              rank r: parent (r-1)/2, children 2r+1, 2r+2
//	    ╱   ╲
//	  1       2          up:   In + S[0] + S[1] ─► S[0] ── put ─► parent's
//	 ╱ ╲     ╱                                     S[0] (left) or S[1]
//	3   4   5            down: S[2] ◄── put ── parent
//	                           S[2] ─► Out, ── put ─► children's S[2]
//
// A rank with fewer children uses fewer chunks of scratch, a leaf only S[0].
//
// Cost: 2h·α + 4b·β + 2b·γ for a tree of height h = ⌊log2 n⌋: an inner rank
// puts its sum to its parent and the total to two children, and copies it to
// Out. 4 ranks take 3b·β, 2 or 3 ranks 2b·β, and 2 ranks b·γ. Over all ranks
// there are 2(n-1) puts, n-1 copies to Out, and one reduction for each rank
// that has a child, ⌊n/2⌋. A leaf needs one put and one copy. Puts go to
// scratch only, so nothing needs to be mapped or exposed.
//
// Source: the textbook binary tree, pipelined as in P. Sanders, J. Speck,
// J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan", Parallel Computing 35(12), 2009.
func AllReduceTree(ranks int) (*plan.Plan, error) {
	return allReduceAlong("allreduce/tree", ranks, binaryTree(ranks, 0))
}

// BroadcastTree is broadcast/tree: down the binary tree of [AllReduceTree],
// here with any rank on top.
//
//	     root
//	   ╱      ╲         S[0] ◄── put ── parent
//	root+1   root+2     S[0] ─► Out, ── put ─► children's S[0]
//	 ╱ ╲       ╱
//	+3  +4    +5
//
// Cost: ⌊log2 n⌋·α + 3b·β. Whoever has two children puts everything twice and
// copies it to Out once; 2 ranks take 2b·β.
//
// Source: as [AllReduceTree].
func BroadcastTree(ranks, root int) (*plan.Plan, error) {
	return broadcastAlong("broadcast/tree", ranks, root, binaryTree(ranks, root))
}

// ReduceTree is reduce/tree: up the binary tree of [AllReduceTree], here with
// any rank on top.
//
//	     root
//	   ╱      ╲         In + S[0] + S[1] ─► S[0] ── put ─► parent's
//	root+1   root+2                         S[0] (left) or S[1]
//	 ╱ ╲       ╱
//	+3  +4    +5
//
// Cost: ⌊log2 n⌋·α + b·β + 2b·γ. Everybody puts once; with two children there
// is twice as much to combine, in one pass. 2 ranks take b·γ.
//
// Source: as [AllReduceTree].
func ReduceTree(ranks, root int) (*plan.Plan, error) {
	return reduceAlong("reduce/tree", ranks, root, binaryTree(ranks, root))
}
