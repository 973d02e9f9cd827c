package algo

import "github.com/tutti-go/tutti/plan"

// BarrierDirect is barrier/direct: every rank shows a token and looks for
// everybody's.
//
//	rank 0     rank 1     rank 2
//	  S          S          S       show (copy of the token In)
//	  │╲________╱│╲________╱│
//	  │╱‾‾‾‾‾‾‾‾╲│╱‾‾‾‾‾‾‾‾╲│       see all (reduce: no bytes, only waits)
//
// Cost: α, in 2 steps for each rank. Needs mapped scratch, that is, counters
// that all ranks can see.
//
// Source: the all-to-all form of the central counter barrier; see J. M.
// Mellor-Crummey, M. L. Scott, "Algorithms for scalable synchronization on
// shared-memory multiprocessors", ACM TOCS 9(1), 1991.
func BarrierDirect(ranks int) (*plan.Plan, error) {
	b := plan.NewBuilder("barrier/direct", plan.Barrier, ranks, 1)
	if ranks == 1 {
		return b.Plan()
	}
	for r := range ranks {
		b.Copy(r, plan.In.At(r, 0), plan.Scratch.At(r, 0))
	}
	for r := range ranks {
		b.Reduce(r, []plan.Place{plan.Out.At(r, 0)}, each(ranks, func(q int) plan.Place { return plan.Scratch.At(q, 0) })...)
	}
	return b.Plan()
}

// BarrierDissemination is barrier/dissemination: in round k every rank tells
// the one 2^k to its right whom it has heard from, and hears the same from
// the one 2^k to its left before the next round. After round k a rank has
// heard, directly or not, from the 2^(k+1) - 1 ranks to its left.
//
//	n = 5     round 0   round 1   round 2
//	rank 0    ─► 1      ─► 2      ─► 4
//	rank 1    ─► 2      ─► 3      ─► 0
//	rank 2    ─► 3      ─► 4      ─► 1
//	rank 3    ─► 4      ─► 0      ─► 2
//	rank 4    ─► 0      ─► 1      ─► 3
//
// Cost: ⌈log2 n⌉·α, in 2⌈log2 n⌉ steps for each rank: a put, and a reduce
// that joins the token heard to those known. Any number of ranks; nothing
// needs to be mapped.
//
// Source: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier
// synchronization", Int. J. Parallel Programming 17(1), 1988.
func BarrierDissemination(ranks int) (*plan.Plan, error) {
	b := plan.NewBuilder("barrier/dissemination", plan.Barrier, ranks, 1)
	known := each(ranks, func(r int) plan.Place { return plan.In.At(r, 0) })
	for round, dist := 0, 1; dist < ranks; round, dist = round+1, 2*dist {
		for r := range ranks {
			b.Copy(r, known[r], plan.Scratch.At((r+dist)%ranks, round))
		}
		for r := range ranks {
			heard := plan.Scratch.At(r, round)
			to := heard
			if 2*dist >= ranks {
				to = plan.Out.At(r, 0)
			}
			b.Reduce(r, []plan.Place{to}, known[r], heard)
			known[r] = to
		}
	}
	return b.Plan()
}
