package algo

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// treePuts is the reach of everything that goes along a tree.
var treePuts = always(plan.Reach{PeerPut: true})

// treeBroadcast is the promise of a broadcast along a tree of the given height:
// everybody but the root gets one put, and everybody copies once.
func treeBroadcast(chunks, height func(n int) int) promise {
	return promise{reach: treePuts, counts: func(n int) counts {
		c := chunks(n)
		return counts{steps: c * (2*n - 1), moves: c * (n - 1), puts: c * (n - 1), copies: c * n, skew: height(n)}
	}}
}

// treeReduce is the promise of a reduce along a tree of the given height:
// everybody but the root puts once, and the inner ranks reduce.
func treeReduce(chunks, inner, height func(n int) int) promise {
	return promise{reach: treePuts, counts: func(n int) counts {
		c := chunks(n)
		return counts{steps: c*(n-1) + inner(n), moves: c * (n - 1), puts: c * (n - 1), skew: height(n)}
	}}
}

// treeBlocks is the promise of a gather or scatter along a tree of the given
// height, in which all blocks together take so many puts.
func treeBlocks(sent, height func(n int) int) promise {
	return promise{reach: treePuts, counts: func(n int) counts {
		return counts{steps: sent(n) + n, moves: sent(n), puts: sent(n), copies: n, skew: height(n)}
	}}
}

func oneChunk(int) int      { return 1 }
func bothHalves(n int) int  { return min(n-1, 2) }
func halfOfAll(n int) int   { return n / 2 }
func topped(n int) int      { return log2(n-1) + 1 }
func innerOfBoth(n int) int { return bothHalves(n) + 2*((n-1)/2) }
func bitsBelow(n int) (b int) {
	for v := range n {
		b += bits.OnesCount(uint(v))
	}
	return b
}

var treePromises = map[string]promise{
	"allreduce/tree": {
		counts: func(n int) counts {
			return counts{steps: 3*(n-1) + n/2, moves: 2 * (n - 1), puts: 2 * (n - 1), copies: n - 1, skew: 2 * log2(n)}
		},
		reach: treePuts,
	},
	"allreduce/doubletree": {
		counts: func(n int) counts {
			return counts{steps: 6*(n-1) + 2*(n/2), moves: 4 * (n - 1), puts: 4 * (n - 1), copies: 2 * (n - 1), skew: 2 * log2(n)}
		},
		reach: treePuts,
	},
	"broadcast/binomial":   treeBroadcast(oneChunk, log2),
	"broadcast/tree":       treeBroadcast(oneChunk, log2),
	"broadcast/doubletree": treeBroadcast(bothHalves, topped),
	"broadcast/chain":      treeBroadcast(oneChunk, allButOne),
	"reduce/binomial":      treeReduce(oneChunk, halfOfAll, log2),
	"reduce/tree":          treeReduce(oneChunk, halfOfAll, log2),
	"reduce/doubletree":    treeReduce(bothHalves, innerOfBoth, topped),
	"reduce/chain":         treeReduce(oneChunk, allButOne, allButOne),
	"gather/linear":        treeBlocks(allButOne, oneChunk),
	"gather/binomial":      treeBlocks(bitsBelow, log2),
	"scatter/linear":       treeBlocks(allButOne, oneChunk),
	"scatter/binomial":     treeBlocks(bitsBelow, log2),
}

// height returns the number of edges between the root and the lowest rank.
func (t *tree) height() int {
	h, most := make([]int, len(t.order)), 0
	for _, r := range t.order {
		if p := t.parent[r]; p >= 0 {
			h[r] = h[p] + 1
			most = max(most, h[r])
		}
	}
	return most
}

// TestTrees: every shape has every rank once, and the height that it says.
func TestTrees(t *testing.T) {
	for _, shape := range []struct {
		name   string
		grow   func(n, root int) *tree
		height func(n int) int
		degree func(n int) int // the most children
	}{
		{"binary", binaryTree, log2, func(int) int { return 2 }},
		{"binomial", binomialTree, log2, ceilLog2},
		{"chain", chainTree, allButOne, oneChunk},
		{"star", starTree, func(n int) int { return min(n-1, 1) }, allButOne},
	} {
		for n := 1; n <= 2*maxRanks+1; n++ {
			for root := range n {
				tree := shape.grow(n, root)
				if order := slices.Sorted(slices.Values(tree.order)); tree.order[0] != root || !slices.Equal(order, upTo(n)) {
					t.Fatalf("%s, %d ranks, root %d: order %v", shape.name, n, root, tree.order)
				}
				if h := tree.height(); h != shape.height(n) {
					t.Errorf("%s, %d ranks, root %d: height %d, want %d", shape.name, n, root, h, shape.height(n))
				}
				for r, cs := range tree.children {
					if len(cs) > shape.degree(n) {
						t.Errorf("%s, %d ranks, root %d: rank %d has the children %v", shape.name, n, root, r, cs)
					}
					if below := tree.below(r); below[0] != r || len(below) != tree.size[r] {
						t.Errorf("%s, %d ranks, root %d: rank %d has %v below", shape.name, n, root, r, below)
					}
				}
			}
		}
	}
}

// TestDoubleTrees: no rank but the root on top is an inner node twice or has
// more than two children.
func TestDoubleTrees(t *testing.T) {
	check := func(trees []*tree, n, top, height int) {
		t.Helper()
		for _, tree := range trees {
			if order := slices.Sorted(slices.Values(tree.order)); !slices.Equal(order, upTo(n)) {
				t.Fatalf("%d ranks, root %d: order %v", n, top, tree.order)
			}
			if h := tree.height(); h != height {
				t.Errorf("%d ranks, root %d: height %d, want %d", n, top, h, height)
			}
		}
		for r := range n {
			children := len(trees[0].children[r]) + len(trees[len(trees)-1].children[r])
			inner := min(1, len(trees[0].children[r])) + min(1, len(trees[len(trees)-1].children[r]))
			if r != top && (inner > 1 || children > 2) {
				t.Errorf("%d ranks, root %d: rank %d has %d children in %d trees", n, top, r, children, inner)
			}
		}
	}
	for n := 3; n <= 2*maxRanks+1; n++ {
		check(doubleTree(n), n, -1, log2(n))
		for root := range n {
			trees := rootedDoubleTree(n, root)
			if trees[0].order[0] != root || trees[1].order[0] != root {
				t.Errorf("%d ranks: root %d is not on top", n, root)
			}
			check(trees, n, root, topped(n))
		}
	}
}

// upTo returns 0, 1, ..., n-1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
