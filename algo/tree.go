package algo

import (
	"math/bits"

	"github.com/tutti-go/tutti/plan"
)

// treeGenerators pass data along trees and chains.
var treeGenerators = []generator{
	{"allreduce/tree", plan.AllReduce, unrooted(AllReduceTree), func(n int) Cost {
		height := bits.Len(uint(n)) - 1
		return Cost{2 * height, share(min(max(n-1, 2), 4), 1), share(min(n-1, 2), 1)}
	}},
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
// Cost: 2h·α + 4·b·β + 2·b·γ for a tree of height h = ⌊log2 n⌋: a rank with a
// parent and two children, of which there are some from 5 ranks on, puts three
// times and copies to Out. 4 ranks take 3·b·β, 2 or 3 ranks 2·b·β, and 2 ranks
// 1·b·γ. Over all ranks there are 2(n-1) puts, n-1 copies to Out, and one
// reduction for each rank that has a child, ⌊n/2⌋. A leaf needs one put and
// one copy. Puts go to scratch only, so nothing needs to be mapped or exposed.
//
// Source: the textbook binary tree, pipelined as in P. Sanders, J. Speck,
// J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan", Parallel Computing 35(12), 2009.
func AllReduceTree(ranks int) (*plan.Plan, error) {
	const name = "allreduce/tree"
	if ranks == 1 {
		return alone(name, plan.AllReduce)
	}
	const left, right, down = 0, 1, 2 // scratch chunks
	b := plan.NewBuilder(name, plan.AllReduce, ranks, 1)
	for r := ranks - 1; r >= 0; r-- {
		sum := plan.In.At(r, 0)
		if 2*r+1 < ranks {
			srcs := []plan.Place{sum, plan.Scratch.At(r, left)}
			if 2*r+2 < ranks {
				srcs = append(srcs, plan.Scratch.At(r, right))
			}
			if sum = plan.Scratch.At(r, left); r == 0 {
				sum = plan.Out.At(r, 0)
			}
			b.Reduce(r, []plan.Place{sum}, srcs...)
		}
		if r > 0 {
			side := left
			if r%2 == 0 {
				side = right
			}
			b.Copy(r, sum, plan.Scratch.At((r-1)/2, side))
		}
	}
	for r := range ranks {
		total := plan.Out.At(r, 0)
		if r > 0 {
			total = plan.Scratch.At(r, down)
		}
		// Children first: they are on the critical path, Out is not.
		for child := 2*r + 1; child <= 2*r+2 && child < ranks; child++ {
			b.Copy(r, total, plan.Scratch.At(child, down))
		}
		if r > 0 {
			b.Copy(r, total, plan.Out.At(r, 0))
		}
	}
	return b.Plan()
}
