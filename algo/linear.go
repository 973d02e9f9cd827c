package algo

import "github.com/tutti-go/tutti/plan"

// starTree returns the tree in which everybody is the root's child.
func starTree(n, root int) *tree {
	return relabel(n, root, func(v int) []int {
		var children []int
		for c := 1; v == 0 && c < n; c++ {
			children = append(children, c)
		}
		return children
	})
}

// GatherLinear is gather/linear: everybody puts its block to the root, which
// copies it out.
//
//	root      In ────────────────────► Out[root]
//	root+1    In ── put ─► root's S[0] ─► Out[root+1]
//	root+2    In ── put ─► root's S[1] ─► Out[root+2]
//	...
//
// Cost: α + b·β for b bytes at the root. No block passes through a rank that
// it is not of, so blocks may differ in size, and a rank needs to know only
// its own. The root waits for n-1 ranks.
//
// Source: the textbook form, which MPICH has for blocks that differ in size
// (MPI_Gatherv, MPI_Scatterv).
func GatherLinear(ranks, root int) (*plan.Plan, error) {
	return gatherAlong("gather/linear", ranks, root, starTree(ranks, root))
}

// ScatterLinear is scatter/linear: the root puts everybody's block to its
// rank, which copies it out.
//
//	root's In[root]   ─────────────────────► Out
//	root's In[root+1] ── put ─► root+1: S[0] ─► Out
//	root's In[root+2] ── put ─► root+2: S[0] ─► Out
//	...
//
// Cost: α + b·β for b bytes at the root. As in [GatherLinear], blocks may
// differ in size.
//
// Source: as [GatherLinear].
func ScatterLinear(ranks, root int) (*plan.Plan, error) {
	return scatterAlong("scatter/linear", ranks, root, starTree(ranks, root))
}
