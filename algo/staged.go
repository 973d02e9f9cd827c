package algo

import "github.com/tutti-go/tutti/plan"

// AllReduceStaged is allreduce/staged: the direct algorithm for buffers that peers
// cannot map. What peers must read passes through mapped scratch, a tile at
// a time, so that it stays in the cache.
//
//	rank 0                    rank 1                    rank 2
//	In[1]→S[1] In[2]→S[2]     In[0]→S[0] In[2]→S[2]     In[0]→S[0] In[1]→S[1]
//	Σ0 = In+S1[0]+S2[0]       Σ1 = S0[1]+In+S2[1]       Σ2 = S0[2]+S1[2]+In
//	 →Out[0], S1[0], S2[0]     →Out[1], S0[1], S2[1]     →Out[2], S0[2], S1[2]
//	S[1]→Out[1] S[2]→Out[2]   S[0]→Out[0] S[2]→Out[2]   S[0]→Out[0] S[1]→Out[1]
//
// The result goes back to where the inputs came from (Sq is the scratch of
// rank q). The reducing core has just read those lines, and the rank that
// takes the result out has them at hand when it fills them for the next tile.
// So, with two ranks, a line goes to the reducer and back, where a result in
// the reducer's own scratch moves a second set of lines to and fro. More ranks
// pay for it with n-1 stores of each result instead of one, and no line is
// fetched by more than one of them. A chunk of scratch lives through all three
// stages: at a depth below 3 they do not overlap.
//
// Cost for each rank: 2α + 4(n-1)/n·b·β + (n-1)/n·b·γ, in 2n-1 steps:
// (n-1)/n·b copied to its own scratch, the same read from peers and written
// back to them, and the same copied out of its own scratch.
//
// Source: the copy-in copy-out form of [AllReduceDirect], as in R. L. Graham,
// G. Shipman, EuroPVM/MPI 2008; writing back where the inputs were is ours.
func AllReduceStaged(ranks int) (*plan.Plan, error) {
	const name = "allreduce/staged"
	if ranks == 1 {
		return alone(name, plan.AllReduce)
	}
	b := plan.NewBuilder(name, plan.AllReduce, ranks, ranks)
	for r := range ranks {
		others(ranks, r, func(c int) { b.Copy(r, plan.In.At(r, c), plan.Scratch.At(r, c)) })
	}
	for r := range ranks {
		b.Reduce(r,
			each(ranks, func(q int) plan.Place {
				if q == r {
					return plan.Out.At(r, r)
				}
				return plan.Scratch.At(q, r)
			}),
			each(ranks, func(q int) plan.Place {
				if q == r {
					return plan.In.At(r, r)
				}
				return plan.Scratch.At(q, r)
			})...)
	}
	for r := range ranks {
		others(ranks, r, func(c int) { b.Copy(r, plan.Scratch.At(r, c), plan.Out.At(r, c)) })
	}
	return b.Plan()
}

// BroadcastStaged is broadcast/staged: the root copies its input into scratch,
// and everybody copies it out, a tile later.
//
//	root   In ─► S ─┬─► Out   rank 1, a tile later
//	                └─► Out   rank 2
//	root   In ────────► Out   nothing in place
//
// Two ranks are both at work all the time, each on its own copy. A line goes to
// each reader once, and the root need not fetch it to write it again, as it
// would have to if the scratch were the reader's.
//
// Cost: α + 2·b·β, in n+1 steps: the root copies b into scratch and, unless the
// call is in place, b to its own Out; the others copy b out, all at once.
//
// Source: the shared-memory broadcast of R. L. Graham, G. Shipman, EuroPVM/MPI
// 2008, with one writer.
func BroadcastStaged(ranks, root int) (*plan.Plan, error) {
	return showBroadcast("broadcast/staged", ranks, root)
}

// showBroadcast is broadcast/staged and broadcast/oneshot: with one block, to
// show a tile and to show all is the same plan.
func showBroadcast(name string, ranks, root int) (*plan.Plan, error) {
	return author(name, plan.Broadcast, ranks, root, 1, func(b *plan.Builder) {
		b.Copy(root, plan.In.At(root, 0), plan.Scratch.At(root, 0))
		others(ranks, root, func(q int) { b.Copy(q, plan.Scratch.At(root, 0), plan.Out.At(q, 0)) })
		b.Copy(root, plan.In.At(root, 0), plan.Out.At(root, 0))
	})
}

// ReduceStaged is reduce/staged: rank r reduces chunk r of all inputs, which
// the others have copied into scratch, and its result goes to the root where
// the root's input came from.
//
//	rank 0, the root          rank 1                    rank 2
//	In[1]→S0[1] In[2]→S0[2]   In[0]→S1[0] In[2]→S1[2]   In[0]→S2[0] In[1]→S2[1]
//	Σ0 = In+S1[0]+S2[0]       Σ1 = S0[1]+In+S2[1]       Σ2 = S0[2]+S1[2]+In
//	 →Out[0]                   →S0[1]                    →S0[2]
//	S0[1]→Out[1] S0[2]→Out[2]
//
// The way back is that of [AllReduceStaged], for the same reason. There are
// three stages, which all overlap only from a depth of 3 on.
//
// Cost: 2α + 3(n-1)/n·b·β + (n-1)/n·b·γ. That is the root: (n-1)/n·b into
// scratch, as much read from peers, and as much out of scratch. The others
// write only b/n back. n²+n-1 steps.
//
// Source: as [AllReduceStaged], without its last copies at the other ranks.
func ReduceStaged(ranks, root int) (*plan.Plan, error) {
	return author("reduce/staged", plan.Reduction, ranks, root, ranks, func(b *plan.Builder) {
		shown := func(q, c int) plan.Place { return plan.Scratch.At(q, seat(ranks, q, c)) }
		for r := range ranks {
			others(ranks, r, func(c int) { b.Copy(r, plan.In.At(r, c), shown(r, c)) })
		}
		for r := range ranks {
			to := plan.Out.At(root, r)
			if r != root {
				to = shown(root, r)
			}
			b.Reduce(r, []plan.Place{to}, contributions(ranks, r, plan.In.At(r, r), func(q int) plan.Place { return shown(q, r) })...)
		}
		others(ranks, root, func(c int) { b.Copy(root, shown(root, c), plan.Out.At(root, c)) })
	})
}

// contributions returns, in rank order, rank r's own contribution and those of
// its peers.
func contributions(n, r int, own plan.Place, peer func(q int) plan.Place) []plan.Place {
	return each(n, func(q int) plan.Place {
		if q == r {
			return own
		}
		return peer(q)
	})
}

// GatherStaged is gather/staged: everybody copies its input into its scratch,
// the root copies them out.
//
//	rank 1   In ─► S1 ─┐
//	rank 2   In ─► S2 ─┴─► Out[1], Out[2]   root, a tile later
//	root     In ─────────► Out[0]           nothing in place
//
// The root moves every byte, since nobody else can write its Out; that is what
// bounds it. The peers have their tiles ready.
//
// Cost: α + b·β, in 2n-1 steps: the root moves b, the others copy b/n.
//
// Source: the copy-in copy-out gather of R. L. Graham, G. Shipman, EuroPVM/MPI
// 2008.
func GatherStaged(ranks, root int) (*plan.Plan, error) {
	return showGather("gather/staged", ranks, root)
}

// showGather is gather/staged and gather/oneshot.
func showGather(name string, ranks, root int) (*plan.Plan, error) {
	return author(name, plan.Gather, ranks, root, 1, func(b *plan.Builder) {
		others(ranks, root, func(q int) { b.Copy(q, plan.In.At(q, 0), plan.Scratch.At(q, 0)) })
		others(ranks, root, func(q int) { b.Copy(root, plan.Scratch.At(q, 0), plan.Out.At(root, q)) })
		b.Copy(root, plan.In.At(root, 0), plan.Out.At(root, root))
	})
}

// ScatterStaged is scatter/staged: the root copies the blocks of the others
// into its scratch, everybody copies its own out.
//
//	root     In[1] ─► S[0] ──► Out   rank 1, a tile later
//	         In[2] ─► S[1] ──► Out   rank 2
//	         In[0] ──────────► Out   root; nothing in place
//
// The scratch is the root's and not the reader's, so that the root writes lines
// that it need not fetch.
//
// Cost: α + b·β, in 2n-1 steps: the root copies b, the others read b/n.
//
// Source: the mirror image of [GatherStaged].
func ScatterStaged(ranks, root int) (*plan.Plan, error) {
	return showScatter("scatter/staged", ranks, root)
}

// showScatter is scatter/staged and scatter/oneshot.
func showScatter(name string, ranks, root int) (*plan.Plan, error) {
	return author(name, plan.Scatter, ranks, root, 1, func(b *plan.Builder) {
		shown := func(q int) plan.Place { return plan.Scratch.At(root, seat(ranks, root, q)) }
		others(ranks, root, func(q int) { b.Copy(root, plan.In.At(root, q), shown(q)) })
		others(ranks, root, func(q int) { b.Copy(q, shown(q), plan.Out.At(q, 0)) })
		b.Copy(root, plan.In.At(root, root), plan.Out.At(root, 0))
	})
}

// AllGatherStaged is allgather/staged: everybody copies its input into its
// scratch, and everybody copies all of them out.
//
//	rank 0       rank 1       rank 2
//	In ─► S      In ─► S      In ─► S        show
//	S1 ─► Out    S2 ─► Out    S0 ─► Out      a tile later, right neighbour first
//	S2 ─► Out    S0 ─► Out    S1 ─► Out
//	In ─► Out    In ─► Out    In ─► Out      nothing in place
//
// Cost for each rank: α + (n+1)/n·b·β, in n+1 steps: b/n into scratch, and b
// to Out, of which (n-1)/n·b is read from peers.
//
// Source: the copy-in copy-out allgather of R. L. Graham, G. Shipman,
// EuroPVM/MPI 2008.
func AllGatherStaged(ranks int) (*plan.Plan, error) {
	return showAllGather("allgather/staged", ranks)
}

// showAllGather is allgather/staged and allgather/oneshot.
func showAllGather(name string, ranks int) (*plan.Plan, error) {
	return author(name, plan.AllGather, ranks, 0, 1, func(b *plan.Builder) {
		for r := range ranks {
			b.Copy(r, plan.In.At(r, 0), plan.Scratch.At(r, 0))
		}
		for r := range ranks {
			others(ranks, r, func(q int) { b.Copy(r, plan.Scratch.At(q, 0), plan.Out.At(r, q)) })
			b.Copy(r, plan.In.At(r, 0), plan.Out.At(r, r))
		}
	})
}

// ReduceScatterStaged is reduce_scatter/staged: everybody copies what the
// others are to reduce into its scratch, and reduces its own block.
//
//	rank 0                    rank 1                    rank 2
//	In[1]→S0[1] In[2]→S0[2]   In[2]→S1[2] In[0]→S1[0]   In[0]→S2[0] In[1]→S2[1]
//	Out = In[0]+S1[0]+S2[0]   Out = S0[1]+In[1]+S2[1]   Out = S0[2]+S1[2]+In[2]
//
// Each line is written by its owner and read by one peer.
//
// Cost for each rank: α + 2(n-1)/n·b·β + (n-1)/n·b·γ, in n steps: (n-1)/n·b
// into scratch, and as much read from peers.
//
// Source: the first two stages of [AllReduceStaged].
func ReduceScatterStaged(ranks int) (*plan.Plan, error) {
	return showReduceScatter("reduce_scatter/staged", ranks)
}

// showReduceScatter is reduce_scatter/staged and reduce_scatter/oneshot.
func showReduceScatter(name string, ranks int) (*plan.Plan, error) {
	return author(name, plan.ReduceScatter, ranks, 0, 1, func(b *plan.Builder) {
		shown := func(q, block int) plan.Place { return plan.Scratch.At(q, seat(ranks, q, block)) }
		for r := range ranks {
			others(ranks, r, func(q int) { b.Copy(r, plan.In.At(r, q), shown(r, q)) })
		}
		for r := range ranks {
			b.Reduce(r, []plan.Place{plan.Out.At(r, 0)},
				contributions(ranks, r, plan.In.At(r, r), func(q int) plan.Place { return shown(q, r) })...)
		}
	})
}

// AllToAllStaged is alltoall/staged: everybody copies the blocks of the others
// into its scratch, and takes its own out of theirs.
//
//	rank 0                     rank 1                     rank 2
//	In[1]→S0[1] In[2]→S0[2]    In[2]→S1[2] In[0]→S1[0]    In[0]→S2[0] In[1]→S2[1]
//	S1[0]→Out[1] S2[0]→Out[2]  S2[1]→Out[2] S0[1]→Out[0]  S0[2]→Out[0] S1[2]→Out[1]
//	In[0]→Out[0]               In[1]→Out[1]               In[2]→Out[2]
//
// Cost for each rank: α + (2n-1)/n·b·β, in 2n-1 steps: (n-1)/n·b into scratch,
// as much read from peers, and b/n from In to Out.
//
// Source: the copy-in copy-out form of [AllToAllDirect].
func AllToAllStaged(ranks int) (*plan.Plan, error) {
	return showAllToAll("alltoall/staged", ranks)
}

// showAllToAll is alltoall/staged and alltoall/oneshot.
func showAllToAll(name string, ranks int) (*plan.Plan, error) {
	return author(name, plan.AllToAll, ranks, 0, 1, func(b *plan.Builder) {
		shown := func(q, block int) plan.Place { return plan.Scratch.At(q, seat(ranks, q, block)) }
		for r := range ranks {
			others(ranks, r, func(q int) { b.Copy(r, plan.In.At(r, q), shown(r, q)) })
		}
		for r := range ranks {
			others(ranks, r, func(q int) { b.Copy(r, shown(q, r), plan.Out.At(r, q)) })
			b.Copy(r, plan.In.At(r, r), plan.Out.At(r, r))
		}
	})
}
