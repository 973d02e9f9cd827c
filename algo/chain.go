package algo

import "github.com/tutti-go/tutti/plan"

// chainTree returns the tree in which every vertex but the last has one
// child, the next.
func chainTree(n, root int) *tree {
	return relabel(n, root, func(v int) []int {
		if v+1 < n {
			return []int{v + 1}
		}
		return nil
	})
}

// BroadcastChain is broadcast/chain: from the root on, every rank puts to its
// right neighbour what its left one has put.
//
//	root ── put ─► root+1 ── put ─► root+2 ── put ─► ... ─► root-1
//	  In ─► Out      S[0] ─► Out      S[0] ─► Out           S[0] ─► Out
//
// Cost: (n-1)·α + 2b·β. Everybody puts once and copies once, which is the
// least there can be. One tile takes n-1 hops; over many tiles all ranks work
// at once, on n different tiles, so this is for long messages.
//
// Source: the linear pipeline, as compared with trees in P. Sanders, J. Speck,
// J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan", Parallel Computing 35(12), 2009.
func BroadcastChain(ranks, root int) (*plan.Plan, error) {
	return broadcastAlong("broadcast/chain", ranks, root, chainTree(ranks, root))
}

// ReduceChain is reduce/chain: the way back of [BroadcastChain]. Every rank
// adds its own to what its right neighbour has put.
//
//	root ◄── put ── root+1 ◄── put ── root+2 ◄── put ── ... ◄── root-1
//	In + S[0]       In + S[0]         In + S[0]                 In
//	 ─► Out          ─► S[0]           ─► S[0]
//
// Cost: (n-1)·α + b·β + b·γ, the least there can be but for the hops, which
// overlap over many tiles.
//
// Source: as [BroadcastChain].
func ReduceChain(ranks, root int) (*plan.Plan, error) {
	return reduceAlong("reduce/chain", ranks, root, chainTree(ranks, root))
}
