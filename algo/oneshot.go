package algo

import "github.com/tutti-go/tutti/plan"

// AllReduceOneShot is allreduce/oneshot: every rank shows its whole input and reduces
// everybody's. It does n times the work of other algorithms and waits once,
// which is best for short messages.
//
//	rank 0        rank 1        rank 2
//	In ─► S       In ─► S       In ─► S        show (copy)
//	      │╲____________│____________╱│
//	      │╱‾‾‾‾‾‾‾‾‾‾‾‾│‾‾‾‾‾‾‾‾‾‾‾‾╲│        everybody reads everybody
//	Σ = In+S+S    Σ = S+In+S    Σ = S+S+In     reduce in rank order
//	Out           Out           Out
//
// Cost for each rank: α + n·b·β + (n-1)·b·γ, in 2 steps: b bytes copied to
// its own scratch and (n-1)·b read from peers. Needs mapped scratch; the
// callers' buffers stay private.
//
// Source: the all-to-all exchange of E. Chan, M. Heimlich, A. Purkayastha,
// R. van de Geijn, "Collective communication: theory, practice, and
// experience", Concurrency and Computation 19(13), 2007, with reading in
// place of sending.
func AllReduceOneShot(ranks int) (*plan.Plan, error) {
	const name = "allreduce/oneshot"
	if ranks == 1 {
		return alone(name, plan.AllReduce)
	}
	b := plan.NewBuilder(name, plan.AllReduce, ranks, 1)
	for r := range ranks {
		b.Copy(r, plan.In.At(r, 0), plan.Scratch.At(r, 0))
	}
	for r := range ranks {
		b.Reduce(r, []plan.Place{plan.Out.At(r, 0)}, each(ranks, func(q int) plan.Place {
			if q == r {
				return plan.In.At(r, 0) // the same bytes as its scratch, and nearer
			}
			return plan.Scratch.At(q, 0)
		})...)
	}
	return b.Plan()
}
