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

// BroadcastOneShot is broadcast/oneshot: the root shows its input, everybody
// reads it. The plan is that of [BroadcastStaged].
//
//	root     In ─► S ─┬─► Out   rank 1
//	                  └─► Out   rank 2
//	root     In ────────► Out
//
// Cost: α + 2·b·β, in n+1 steps: the root copies b into scratch and b to its
// own Out; the others read b.
//
// Source: the one-writer form of [AllReduceOneShot].
func BroadcastOneShot(ranks, root int) (*plan.Plan, error) {
	return showBroadcast("broadcast/oneshot", ranks, root)
}

// ReduceOneShot is reduce/oneshot: everybody but the root shows its input, and
// the root reduces them all with its own.
//
//	rank 1   In ─► S1 ─┐
//	rank 2   In ─► S2 ─┤
//	root     In ───────┴─► Out = In + S1 + S2, in rank order
//
// Cost: α + (n-1)·b·β + (n-1)·b·γ, in n steps: the root reads (n-1)·b, the
// others copy b.
//
// Source: the one-reader form of [AllReduceOneShot].
func ReduceOneShot(ranks, root int) (*plan.Plan, error) {
	return author("reduce/oneshot", plan.Reduction, ranks, root, 1, func(b *plan.Builder) {
		others(ranks, root, func(q int) { b.Copy(q, plan.In.At(q, 0), plan.Scratch.At(q, 0)) })
		b.Reduce(root, []plan.Place{plan.Out.At(root, 0)},
			contributions(ranks, root, plan.In.At(root, 0), func(q int) plan.Place { return plan.Scratch.At(q, 0) })...)
	})
}

// GatherOneShot is gather/oneshot: everybody but the root shows its input, the
// root reads them. The plan is that of [GatherStaged].
//
//	rank 1   In ─► S1 ─┐
//	rank 2   In ─► S2 ─┴─► Out[1], Out[2]   root
//	root     In ─────────► Out[0]
//
// Cost: α + b·β, in 2n-1 steps: the root moves b, the others copy b/n.
//
// Source: the one-reader form of [AllGatherOneShot].
func GatherOneShot(ranks, root int) (*plan.Plan, error) {
	return showGather("gather/oneshot", ranks, root)
}

// AllGatherOneShot is allgather/oneshot: every rank shows its input and reads
// everybody's. The plan is that of [AllGatherStaged].
//
//	rank 0        rank 1        rank 2
//	In ─► S       In ─► S       In ─► S        show (copy)
//	      │╲____________│____________╱│
//	      │╱‾‾‾‾‾‾‾‾‾‾‾‾│‾‾‾‾‾‾‾‾‾‾‾‾╲│        everybody reads everybody
//	Out           Out           Out
//
// Cost for each rank: α + (n+1)/n·b·β, in n+1 steps: b/n into scratch, and b
// to Out.
//
// Source: as [AllReduceOneShot].
func AllGatherOneShot(ranks int) (*plan.Plan, error) {
	return showAllGather("allgather/oneshot", ranks)
}

// ScatterOneShot is scatter/oneshot: the root shows the blocks of the others,
// everybody reads its own.
//
//	root     In[1..2] ─► S[1..2]
//	                     S[1] ─► Out   rank 1
//	                     S[2] ─► Out   rank 2
//	root     In[0] ────────────► Out
//
// Cost: α + b·β, in 2n-1 steps: the root copies (n-1)/n·b into scratch and b/n
// to its own Out, the others read b/n.
//
// Source: the one-writer form of [AllToAllOneShot].
func ScatterOneShot(ranks, root int) (*plan.Plan, error) {
	return showScatter("scatter/oneshot", ranks, root)
}

// ReduceScatterOneShot is reduce_scatter/oneshot: every rank shows what the
// others are to reduce, and reduces its own block of everybody's.
//
//	rank 0                 rank 1                 rank 2
//	In[1..2] ─► S0         In[0,2] ─► S1          In[0..1] ─► S2
//	Out = In[0]+S1[0]      Out = S0[1]+In[1]      Out = S0[2]+S1[2]
//	           +S2[0]                 +S2[1]                 +In[2]
//
// Cost for each rank: α + 2(n-1)/n·b·β + (n-1)/n·b·γ, in n steps: (n-1)/n·b
// into scratch, and as much read from peers.
//
// Source: as [AllReduceOneShot].
func ReduceScatterOneShot(ranks int) (*plan.Plan, error) {
	return showReduceScatter("reduce_scatter/oneshot", ranks)
}

// AllToAllOneShot is alltoall/oneshot: every rank shows the blocks of the
// others, and reads its own of everybody's.
//
//	rank 0                     rank 1                     rank 2
//	In[1..2] ─► S0             In[0,2] ─► S1              In[0..1] ─► S2
//	S1[0]→Out[1] S2[0]→Out[2]  S2[1]→Out[2] S0[1]→Out[0]  S0[2]→Out[0] S1[2]→Out[1]
//	In[0]→Out[0]               In[1]→Out[1]               In[2]→Out[2]
//
// Cost for each rank: α + (2n-1)/n·b·β, in 2n-1 steps: (n-1)/n·b into scratch,
// and b to Out.
//
// Source: as [AllReduceOneShot].
func AllToAllOneShot(ranks int) (*plan.Plan, error) {
	return showAllToAll("alltoall/oneshot", ranks)
}
