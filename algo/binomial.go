package algo

import "github.com/tutti-go/tutti/plan"

// binomialTree returns the binomial tree of n ranks: vertex v has a child
// v + 2^k for every 2^k below its own lowest bit, and the root for every 2^k.
// The subtree of v + 2^k has the 2^k vertices from there on, as far as they
// exist.
//
//	0 ─┬─ 1
//	   ├─ 2 ─── 3
//	   ├─ 4 ─┬─ 5
//	   │     └─ 6 ─── 7
//	   └─ 8 ─┬─ 9
//	         └─ 10
//
// Its height is ⌊log2 n⌋, the most bits that a vertex below n has; the root
// has ⌈log2 n⌉ children, and nobody has more.
func binomialTree(n, root int) *tree {
	return relabel(n, root, func(v int) []int {
		var children []int
		for bit := 1; v&bit == 0 && v+bit < n; bit *= 2 {
			children = append(children, v+bit)
		}
		return children
	})
}

// BroadcastBinomial is broadcast/binomial: who has the value passes it on,
// first to the rank that has most others to pass it to.
//
//	n = 8, root 0
//	0 ────────────► 4 ──────► 6 ───► 7
//	 ╲────────► 2    ╲──► 5
//	  ╲───► 1    ╲──► 3                each: S[0] ◄── put, S[0] ─► Out
//
// Cost: ⌊log2 n⌋·α + (⌈log2 n⌉+1)·b·β. The root puts everything to ⌈log2 n⌉
// others and copies it to Out. This is for short messages, where what counts
// is that after each put twice as many ranks have the value.
//
// Source: the binomial tree of R. Thakur, R. Rabenseifner, W. Gropp,
// "Optimization of Collective Communication Operations in MPICH", Int. J.
// High Performance Computing Applications 19(1), 2005.
func BroadcastBinomial(ranks, root int) (*plan.Plan, error) {
	return broadcastAlong("broadcast/binomial", ranks, root, binomialTree(ranks, root))
}

// ReduceBinomial is reduce/binomial: the way back of [BroadcastBinomial]. A
// rank combines its own and all its children's sums in one pass, where the
// textbook has a round for each child: it is the largest child's sum that comes
// last, so there is little to do before, and one pass loads and stores less.
//
//	n = 8, root 0
//	0 ◄──────────── 4 ◄────── 6 ◄─── 7
//	 ╲◄──────── 2    ╲◄── 5                In + S[0] + S[1] + ... ─► S[0]
//	  ╲◄─── 1    ╲◄── 3                    S[0] ── put ─► parent's S[k]
//
// Cost: ⌊log2 n⌋·α + b·β + ⌈log2 n⌉·b·γ. Everybody puts once, and the root
// combines what ⌈log2 n⌉ others have put. Contributions are combined in the
// order of the ranks, from the root on.
//
// Source: as [BroadcastBinomial].
func ReduceBinomial(ranks, root int) (*plan.Plan, error) {
	return reduceAlong("reduce/binomial", ranks, root, binomialTree(ranks, root))
}

// GatherBinomial is gather/binomial: every rank passes the blocks of its
// subtree on to its parent, each as soon as it is there.
//
//	n = 8, root 0
//	0 ◄──4 5 6 7── 4 ◄──6 7── 6 ◄──7── 7
//	 ╲◄──2 3── 2    ╲◄──5── 5              In, then S[0], S[1], ...
//	  ╲◄──1── 1  ╲◄──3── 3                 ── put ─► parent's S
//
// Cost: ⌊log2 n⌋·α + b·β for b bytes at the root, which copies every block
// out of scratch. The root hears from ⌈log2 n⌉ ranks only; but a block takes as
// many puts as there are bits in the distance of its rank from the root, where
// [GatherLinear] has one.
//
// Source: as [BroadcastBinomial].
func GatherBinomial(ranks, root int) (*plan.Plan, error) {
	return gatherAlong("gather/binomial", ranks, root, binomialTree(ranks, root))
}

// ScatterBinomial is scatter/binomial: the way back of [GatherBinomial]. The
// root puts to each child the blocks of its whole subtree, those with the
// longest way to go first.
//
//	n = 8, root 0
//	0 ──7 6 5 4──► 4 ──7 6──► 6 ──7──► 7
//	 ╲──3 2──► 2    ╲──5──► 5              S[0] ─► Out,
//	  ╲──1──► 1  ╲──3──► 3                 S[1], S[2], ... ── put ─► children's S
//
// Cost: ⌊log2 n⌋·α + b·β for b bytes at the root, which puts every block but
// its own, and copies that.
//
// Source: as [BroadcastBinomial].
func ScatterBinomial(ranks, root int) (*plan.Plan, error) {
	return scatterAlong("scatter/binomial", ranks, root, binomialTree(ranks, root))
}
