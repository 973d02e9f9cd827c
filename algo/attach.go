package algo

import "github.com/tutti-go/tutti/plan"

// The attach algorithms are for buffers that no peer maps, but that the kernel
// copies between processes by address. Such a copy has one place in a peer's
// buffer and one in the executing rank's own memory, and either of the two
// ranks may make it; reductions read own memory only. See
// [plan.Reach.AttachOnly]. Such a copy is a call of the kernel for each tile, and
// a single pass over memory where staging takes two.
//
// Where one rank would have all the copies to make, the work is split by
// pieces, so that both sides have their share.

// BroadcastAttach is broadcast/attach: the root pushes one piece to each rank,
// which pulls the others meanwhile.
//
//	         chunk 0   chunk 1   chunk 2
//	root  In ┌ a0 ┐    ┌ a1 ┐    ┌ a2 ┐
//	         │ ▲  │    │ ║  │    │ ▲  │     ║ pushed by the root
//	         │ │  │    │ ▼  │    │ │  │     │ pulled by the rank itself
//	1    Out └ a0 ┘    └ a1 ┘    └ a2 ┘     (rank 2: chunk 2 pushed)
//
// With two ranks each side moves half. Chunk root is pulled by everybody.
//
// Out of place the root also copies its input to its own Out. In place that is
// the memory that its peers pull from, so the plan has it come last: the α
// below, and with many tiles a stage of its own.
//
// Cost: α + (2n-1)/n·b·β, in n² steps: the root pushes (n-1)/n·b and copies b;
// the others pull (n-1)/n·b.
//
// Source: T. Ma, G. Bosilca, A. Bouteiller, B. Goglin, J. M. Squyres, J. J.
// Dongarra, "Kernel assisted collective intra-node MPI communication among
// multi-core and many-core CPUs", ICPP 2011, for the direction of copies; the
// split is ours.
func BroadcastAttach(ranks, root int) (*plan.Plan, error) {
	return author("broadcast/attach", plan.Broadcast, ranks, root, ranks, func(b *plan.Builder) {
		others(ranks, root, func(q int) {
			b.Copy(root, plan.In.At(root, q), plan.Out.At(q, q))
			others(ranks, q, func(c int) { b.Copy(q, plan.In.At(root, c), plan.Out.At(q, c)) })
		})
		for c := range ranks {
			b.Copy(root, plan.In.At(root, c), plan.Out.At(root, c))
		}
	})
}

// ReduceAttach is reduce/attach: rank r pulls chunk r of all inputs into its
// scratch, reduces it there and pushes the result to the root.
//
//	rank 0, the root       rank 1                 rank 2
//	In1[0] ─► S0           In2[1] ─► S1           In0[2] ─► S2       pull
//	In2[0] ─► S0           In0[1] ─► S1           In1[2] ─► S2
//	Out[0] = In+S+S        S1 = S+In+S            S2 = S+S+In        reduce
//	                       S1 ─► Out0[1]          S2 ─► Out0[2]      push
//
// Only rank r touches chunk r of the root's buffers, so nobody waits.
//
// Cost: b·β + (n-1)/n·b·γ, in n+1 steps for each rank: (n-1)/n·b pulled and b/n
// pushed.
//
// Source: the kernel-assisted form of [ReduceDirect]; T. Ma et al., ICPP 2011.
func ReduceAttach(ranks, root int) (*plan.Plan, error) {
	return author("reduce/attach", plan.Reduction, ranks, root, ranks, func(b *plan.Builder) {
		for r := range ranks {
			to := plan.Scratch.At(r, 0)
			if r == root {
				to = plan.Out.At(r, r)
			}
			pullReduce(b, ranks, r, r, to)
			if r != root {
				b.Copy(r, to, plan.Out.At(root, r))
			}
		}
	})
}

// pullReduce lets rank r pull chunk c of its peers' inputs into its scratch and
// reduce it with its own.
func pullReduce(b *plan.Builder, n, r, c int, to plan.Place) {
	pulled := func(q int) plan.Place { return plan.Scratch.At(r, seat(n, r, q)) }
	others(n, r, func(q int) { b.Copy(r, plan.In.At(q, c), pulled(q)) })
	b.Reduce(r, []plan.Place{to}, contributions(n, r, plan.In.At(r, c), pulled)...)
}

// AllReduceAttach is allreduce/attach: rank r pulls chunk r of all inputs into
// its scratch, reduces it into its own Out, and pushes it from there to all
// others.
//
//	rank 0                 rank 1                 rank 2
//	In1[0] ─► S0           In2[1] ─► S1           In0[2] ─► S2       pull
//	In2[0] ─► S0           In0[1] ─► S1           In1[2] ─► S2
//	Out[0] = In+S+S        Out[1] = S+In+S        Out[2] = S+S+In    reduce
//	Out[0] ─► Out1         Out[1] ─► Out2         Out[2] ─► Out0     push
//	Out[0] ─► Out2         Out[1] ─► Out0         Out[2] ─► Out1
//
// Only rank r touches chunk r of anybody's buffers, so nobody waits.
//
// Cost for each rank: 2(n-1)/n·b·β + (n-1)/n·b·γ, in 2n-1 steps: (n-1)/n·b
// pulled and as much pushed.
//
// Source: the kernel-assisted form of [AllReduceDirect]; T. Ma et al., ICPP
// 2011.
func AllReduceAttach(ranks int) (*plan.Plan, error) {
	return author("allreduce/attach", plan.AllReduce, ranks, 0, ranks, func(b *plan.Builder) {
		for r := range ranks {
			sum := plan.Out.At(r, r)
			pullReduce(b, ranks, r, r, sum)
			others(ranks, r, func(q int) { b.Copy(r, sum, plan.Out.At(q, r)) })
		}
	})
}

// ReduceScatterAttach is reduce_scatter/attach: every rank pulls its block of
// all inputs into its scratch and reduces it.
//
//	rank 0                 rank 1                 rank 2
//	In1[0] ─► S0           In2[1] ─► S1           In0[2] ─► S2       pull
//	In2[0] ─► S0           In0[1] ─► S1           In1[2] ─► S2
//	Out = In[0]+S+S        Out = S+In[1]+S        Out = S+S+In[2]    reduce
//
// Cost for each rank: (n-1)/n·b·β + (n-1)/n·b·γ, in n steps; nobody waits.
//
// Source: the first half of [AllReduceAttach].
func ReduceScatterAttach(ranks int) (*plan.Plan, error) {
	return author("reduce_scatter/attach", plan.ReduceScatter, ranks, 0, 1, func(b *plan.Builder) {
		for r := range ranks {
			pullReduce(b, ranks, r, r, plan.Out.At(r, 0))
		}
	})
}

// GatherAttach is gather/attach: every rank pushes its block to the root, but
// for one piece, which the root pulls.
//
//	n = 3, root 0      piece 0       piece 1       piece 2
//	rank 1   In     ── pulled ──  ── pushed ──  ── pushed ──►  Out[1]
//	rank 2   In     ── pulled ──  ── pushed ──  ── pushed ──►  Out[2]
//	root     In     ───────────── copied ───────────────────►  Out[0]
//
// So all have n-1 pieces to move; with two ranks, half is pulled and half is
// pushed. Out of place the root also copies its own block.
//
// Cost: (2n-1)/n²·b·β, in n steps for each of the others and 2n-1 at the root,
// which pulls (n-1)/n²·b and copies b/n; nobody waits.
//
// Source: T. Ma et al., ICPP 2011, for the direction of copies; the split is
// ours.
func GatherAttach(ranks, root int) (*plan.Plan, error) {
	return author("gather/attach", plan.Gather, ranks, root, ranks, func(b *plan.Builder) {
		others(ranks, root, func(q int) {
			for c := range ranks {
				by := q
				if c == root {
					by = root
				}
				b.Copy(by, plan.In.At(q, c), plan.Out.At(root, q*ranks+c))
			}
		})
		for c := range ranks {
			b.Copy(root, plan.In.At(root, c), plan.Out.At(root, root*ranks+c))
		}
	})
}

// ScatterAttach is scatter/attach: every rank pulls its block from the root,
// but for one piece, which the root pushes.
//
//	n = 3, root 0      piece 0       piece 1       piece 2
//	root     In[1]  ── pushed ──  ── pulled ──  ── pulled ──►  Out   rank 1
//	         In[2]  ── pushed ──  ── pulled ──  ── pulled ──►  Out   rank 2
//	         In[0]  ───────────── copied ───────────────────►  Out   root
//
// Cost: (2n-1)/n²·b·β, in n-1 steps for each of the others and 2n-1 at the
// root, which pushes (n-1)/n²·b and copies b/n; nobody waits.
//
// Source: the mirror image of [GatherAttach].
func ScatterAttach(ranks, root int) (*plan.Plan, error) {
	return author("scatter/attach", plan.Scatter, ranks, root, ranks, func(b *plan.Builder) {
		others(ranks, root, func(q int) {
			for c := range ranks {
				by := q
				if c == root {
					by = root
				}
				b.Copy(by, plan.In.At(root, q*ranks+c), plan.Out.At(q, c))
			}
		})
		for c := range ranks {
			b.Copy(root, plan.In.At(root, root*ranks+c), plan.Out.At(root, c))
		}
	})
}

// AllGatherAttach is allgather/attach: every rank pushes its input to all
// others.
//
//	rank 0            rank 1            rank 2
//	In ─► Out1[0]     In ─► Out2[1]     In ─► Out0[2]     right neighbour first
//	In ─► Out2[0]     In ─► Out0[1]     In ─► Out1[2]
//	In ─► Out0[0]     In ─► Out1[1]     In ─► Out2[2]     nothing in place
//
// Pulling would move as much, but in place a rank's own block is what peers
// read, and it would have to wait for them.
//
// Cost for each rank: b·β, in n steps: (n-1)/n·b pushed, b/n copied; nobody
// waits.
//
// Source: T. Ma et al., ICPP 2011.
func AllGatherAttach(ranks int) (*plan.Plan, error) {
	return author("allgather/attach", plan.AllGather, ranks, 0, 1, func(b *plan.Builder) {
		for r := range ranks {
			others(ranks, r, func(q int) { b.Copy(r, plan.In.At(r, 0), plan.Out.At(q, r)) })
			b.Copy(r, plan.In.At(r, 0), plan.Out.At(r, r))
		}
	})
}

// AllToAllAttach is alltoall/attach: every rank pulls its blocks. That is also
// what [AllToAllDirect] does.
//
//	rank 0               rank 1               rank 2
//	In1[0] ─► Out[1]     In2[1] ─► Out[2]     In0[2] ─► Out[0]
//	In2[0] ─► Out[2]     In0[1] ─► Out[0]     In1[2] ─► Out[1]
//	In0[0] ─► Out[0]     In1[1] ─► Out[1]     In2[2] ─► Out[2]
//
// Cost for each rank: b·β, in n steps: (n-1)/n·b pulled, b/n copied; nobody
// waits.
//
// Source: T. Ma et al., ICPP 2011.
func AllToAllAttach(ranks int) (*plan.Plan, error) {
	return pullAllToAll("alltoall/attach", ranks)
}
