package algo

import "github.com/tutti-go/tutti/plan"

// BroadcastScatterAllGather is broadcast/scatter-allgather: the root puts to
// each of the others another share of its data (scatter), and these go around
// a ring of the others, as in [AllGatherRing], until all have everything.
//
//	root ─┬──────┬──────┐      n = 4, three chunks
//	      ▼ 0    ▼ 1    ▼ 2
//	      a ───► b ───► c      a 0 ─► b, b 1 ─► c, c 2 ─► a
//	      ▲_____________│      then what came: c 1 ─► a, a 2 ─► b, b 0 ─► c
//
// Cost: (n-1)·α + 2·b·β: the root puts every byte once, and copies it to its
// Out; the others put (n-2)/(n-1)·b and copy b. So no rank sends or receives
// more than b, where an inner rank of a binary tree sends 2b, and all links are
// busy from the first tile on, where a chain needs many tiles for that. For
// large messages; nothing needs to be mapped or exposed.
//
// The scatter goes straight to each rank and not down a tree: the root sends
// the same bytes either way, and the tree's inner ranks none. The root has no
// part in the ring, since it has nothing to learn.
//
// Source: M. Barnett, L. Shuler, R. van de Geijn, S. Gupta, D. Payne, J.
// Watts, "Interprocessor Collective Communication Library (InterCom)", SHPCC
// 1994; leaving the root out of the ring is ours.
func BroadcastScatterAllGather(ranks, root int) (*plan.Plan, error) {
	const name = "broadcast/scatter-allgather"
	if ranks == 1 {
		return alone(name, plan.Broadcast)
	}
	n := ranks - 1
	x := newExchange(plan.NewRooted(name, plan.Broadcast, ranks, root, n), ranks, n, plan.Out.At)
	other := func(i int) int { return (root + 1 + i) % ranks }
	shares := make([]holding, n)
	for i := range shares {
		shares[i] = holding{i, x.put(plan.In.At(root, i), other(i))}
	}
	for i := range n {
		x.Copy(root, plan.In.At(root, i), plan.Out.At(root, i))
	}
	rounds := around(n, 0)
	for _, round := range rounds {
		for i, m := range round {
			round[i] = move{other(m.from), other(m.to), m.block}
		}
	}
	x.spread(shares, rounds)
	return x.Plan()
}
