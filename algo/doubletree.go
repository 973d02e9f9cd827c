package algo

import "github.com/tutti-go/tutti/plan"

// An inOrder is a binary tree of the positions 1..m in which all odd ones are
// leaves. Position i has on either side what lies closer to it than to any
// position with more trailing zeros; where the right side is cut off by m, the
// next smaller subtree takes its place.
//
//	m = 10                   8
//	               ╱                   ╲
//	          4                             10
//	      ╱        ╲                      ╱
//	   2              6                 9
//	 ╱   ╲         ╱     ╲
//	1     3       5       7
//
// Its height is ⌊log2 m⌋.
type inOrder int

// top returns the position of the root.
func (m inOrder) top() int {
	i := 1
	for 2*i <= int(m) {
		i *= 2
	}
	return i
}

// children returns the children of position i, the left one first.
func (m inOrder) children(i int) []int {
	half := i & -i / 2
	if half == 0 {
		return nil
	}
	cs := []int{i - half}
	for ; half > 0; half /= 2 {
		if i+half <= int(m) {
			return append(cs, i+half)
		}
	}
	return cs
}

// A placing says who is at which position of a tree: at and of are inverse.
type placing struct{ at, of func(int) int }

// complementary returns two ways of placing the vertices 1..m in an [inOrder]
// so that no vertex is at an even position, that is, an inner one, in both.
// The first is plain; the second is its mirror image where m is even, and
// shifted by one where m is odd.
func complementary(m int) [2]placing {
	plain := placing{func(v int) int { return v }, func(i int) int { return i }}
	mirror := func(i int) int { return m + 1 - i }
	second := placing{mirror, mirror}
	if m%2 == 1 {
		second = placing{
			func(v int) int { return v%m + 1 },
			func(i int) int { return (i+m-2)%m + 1 },
		}
	}
	return [2]placing{plain, second}
}

// doubleTree returns two trees of all ranks in which no rank is an inner node
// twice.
func doubleTree(n int) []*tree {
	if n == 1 {
		return []*tree{chainTree(1, 0)}
	}
	shape := inOrder(n)
	var trees []*tree
	for _, p := range complementary(n) {
		trees = append(trees, grow(n, p.of(shape.top())-1, func(r int) []int {
			cs := shape.children(p.at(r + 1))
			for i, c := range cs {
				cs[i] = p.of(c) - 1
			}
			return cs
		}))
	}
	return trees
}

// rootedDoubleTree returns two trees of all ranks but the root in which no
// rank is an inner node twice, and the root on top of both.
func rootedDoubleTree(n, root int) []*tree {
	if n <= 2 {
		return []*tree{chainTree(n, root)} // two would be alike
	}
	shape := inOrder(n - 1)
	var trees []*tree
	for _, p := range complementary(n - 1) {
		trees = append(trees, relabel(n, root, func(v int) []int {
			if v == 0 {
				return []int{p.of(shape.top())}
			}
			cs := shape.children(p.at(v))
			for i, c := range cs {
				cs[i] = p.of(c)
			}
			return cs
		}))
	}
	return trees
}

// BroadcastDoubleTree is broadcast/doubletree: half of the message goes down
// one binary tree and half down another, in which the leaves of the first are
// the inner ranks. A binary tree alone has its leaves only receive, and its
// inner ranks put everything twice; here everybody puts as much as it gets.
//
//	n = 9, root 0
//
//	first half        0                second half       0
//	                  │                                  │
//	                  8                                  1
//	              ╱                                         ╲
//	          4                                                5
//	       ╱     ╲                                          ╱     ╲
//	     2         6                                      3         7
//	    ╱ ╲       ╱ ╲                                    ╱ ╲       ╱ ╲
//	   1   3     5   7                                  2   4     6   8
//
// Cost: (⌊log2(n-1)⌋+1)·α + 2b·β. Everybody puts at most b, and copies b to
// Out: as few bytes as [BroadcastChain], in a logarithm of the hops. Between
// two ranks it is the chain.
//
// The paper colours the edges so that nobody sends or receives on both trees
// in one round; there are no rounds here, and each tree has scratch of its
// own, so nothing is to be coloured.
//
// Source: P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", Parallel Computing 35(12), 2009.
func BroadcastDoubleTree(ranks, root int) (*plan.Plan, error) {
	return broadcastAlong("broadcast/doubletree", ranks, root, rootedDoubleTree(ranks, root)...)
}

// ReduceDoubleTree is reduce/doubletree: half of the message goes up each of
// the trees of [BroadcastDoubleTree].
//
//	rank r in one tree:        In + S[0] + S[1] ─► S[0] ── put ─► parent's S
//	          in the other:    In ── put ─► parent's S
//	root      first half:      In + S[0] ─► Out
//	          second half:     In + S[1] ─► Out
//
// Cost: (⌊log2(n-1)⌋+1)·α + b·β + b·γ. Everybody puts b, and combines half of
// it with that of two children; the root combines both halves once.
//
// Source: as [BroadcastDoubleTree].
func ReduceDoubleTree(ranks, root int) (*plan.Plan, error) {
	return reduceAlong("reduce/doubletree", ranks, root, rootedDoubleTree(ranks, root)...)
}

// AllReduceDoubleTree is allreduce/doubletree: half of the message goes up one
// of two binary trees and down again, half the other. There is no root to put
// on top of both: all ranks are in both trees, and the trees have different
// roots.
//
//	n = 8
//
//	first half        7                second half       0
//	              ╱                                         ╲
//	          3                                                4
//	       ╱     ╲                                          ╱     ╲
//	     1         5                                      2         6
//	    ╱ ╲       ╱ ╲                                    ╱ ╲       ╱ ╲
//	   0   2     4   6                                  1   3     5   7
//
// Cost: 2⌊log2 n⌋·α + 3b·β + b·γ. Everybody puts at most b up, b down, and
// copies b to Out, where [AllReduceTree] has its inner ranks put b and 2b and
// combine twice as much. 3 ranks take 2b·β, 2 ranks 1.5b·β and 0.5b·γ. The
// bytes that a rank puts are n/(n-1) times those of [AllReduceRing], in a
// logarithm of the hops.
//
// Source: as [BroadcastDoubleTree].
func AllReduceDoubleTree(ranks int) (*plan.Plan, error) {
	return allReduceAlong("allreduce/doubletree", ranks, doubleTree(ranks)...)
}
