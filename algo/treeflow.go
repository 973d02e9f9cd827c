package algo

import (
	"cmp"
	"slices"

	"github.com/tutti-go/tutti/plan"
)

// A tree says along which edges data goes. What goes along them is the same
// for every shape: sums up to the root, a value down from it, or blocks.
//
//	up       Out of the root ◄── In + S[0] + S[1] + ... ◄── put ── children
//	down     In of the root ── put ─► S ─► Out, ── put ─► children
//	collect  Out of the root ◄── S[block] ◄── put ── children: their blocks
//	deal     In of the root ── put ─► S[block]: one's own ─► Out, the others
//	         ── put ─► the children that they are for, or that are on the way
//
// All peer accesses are puts to scratch. A chunk of scratch lives from the put
// to what the receiver does with it in the next stage and no longer, so that
// two slots are enough for all levels to work at once, each on a tile of its
// own: the largest skew is the tree's height, going both ways twice that.
type tree struct {
	order    []int   // the ranks, each before its children, every subtree in one piece
	at       []int   // by rank: its index in order
	size     []int   // by rank: how many ranks its subtree has, itself included
	parent   []int   // by rank; of the root, -1
	children [][]int // by rank
}

// grow returns the tree of n ranks in which everybody has these children.
func grow(n, root int, children func(rank int) []int) *tree {
	t := &tree{at: make([]int, n), size: make([]int, n), parent: make([]int, n), children: make([][]int, n)}
	var visit func(r, parent int)
	visit = func(r, parent int) {
		t.parent[r], t.at[r] = parent, len(t.order)
		t.order = append(t.order, r)
		t.children[r] = children(r)
		for _, c := range t.children[r] {
			visit(c, r)
		}
		t.size[r] = len(t.order) - t.at[r]
	}
	visit(root, -1)
	return t
}

// relabel returns the tree whose root is any rank, from a shape in which it is
// vertex 0: rank root+v takes the place of vertex v.
func relabel(n, root int, children func(vertex int) []int) *tree {
	return grow(n, root, func(r int) []int {
		ranks := slices.Clone(children((r - root + n) % n))
		for i, v := range ranks {
			ranks[i] = (v + root) % n
		}
		return ranks
	})
}

// below returns the ranks of r's subtree, r first.
func (t *tree) below(r int) []int { return t.order[t.at[r] : t.at[r]+t.size[r]] }

// largestFirst returns the children of r in the order in which to send to
// them: a larger subtree has more to do with what it gets.
func (t *tree) largestFirst(r int) []int {
	cs := slices.Clone(t.children[r])
	slices.SortStableFunc(cs, func(a, b int) int { return cmp.Compare(t.size[b], t.size[a]) })
	return cs
}

// A pad counts the chunks of scratch in use, by rank.
type pad []int

// take returns the rank's next chunk of scratch.
func (p pad) take(rank int) plan.Place {
	p[rank]++
	return plan.Scratch.At(rank, p[rank]-1)
}

// up reduces a chunk of all ranks' In into the root's Out. A rank combines its
// own and what all its children have put in one pass, in this order.
func (t *tree) up(b *plan.Builder, chunk int, scratch pad) {
	slot := make([]plan.Place, len(t.order)) // by child
	for _, r := range t.order {
		for _, c := range t.children[r] {
			slot[c] = scratch.take(r)
		}
	}
	for _, r := range slices.Backward(t.order) {
		sum, out := plan.In.At(r, chunk), plan.Out.At(r, chunk)
		if cs := t.children[r]; len(cs) > 0 {
			srcs := []plan.Place{sum}
			for _, c := range cs {
				srcs = append(srcs, slot[c])
			}
			if sum = slot[cs[0]]; t.parent[r] < 0 {
				sum = out
			}
			b.Reduce(r, []plan.Place{sum}, srcs...)
		}
		switch {
		case t.parent[r] >= 0:
			b.Copy(r, sum, slot[r])
		case sum != out:
			b.Copy(r, sum, out)
		}
	}
}

// down passes a value that the root has to everybody, and returns by rank
// where it then is.
func (t *tree) down(b *plan.Builder, value plan.Place, scratch pad) []plan.Place {
	has := make([]plan.Place, len(t.order))
	for _, r := range t.order {
		if has[r] = value; t.parent[r] >= 0 {
			has[r] = scratch.take(r)
		}
	}
	for _, r := range t.order {
		for _, c := range t.largestFirst(r) {
			b.Copy(r, has[r], has[c])
		}
	}
	return has
}

// allDown passes one value down each tree, and copies it to a chunk of Out
// where it is not there yet. Puts come first, also those on another tree: they
// are on the critical path, Out is not.
func allDown(b *plan.Builder, trees []*tree, value func(t *tree, chunk int) plan.Place, scratch pad) {
	has := make([][]plan.Place, len(trees))
	for c, t := range trees {
		has[c] = t.down(b, value(t, c), scratch)
	}
	for c, t := range trees {
		for _, r := range t.order {
			if out := plan.Out.At(r, c); has[c][r] != out {
				b.Copy(r, has[c][r], out)
			}
		}
	}
}

// collect copies the In of every rank to its block of the root's Out. A rank
// has scratch for every block that comes through it.
func (t *tree) collect(b *plan.Builder) {
	// at returns where rank r has block u.
	at := func(r, u int) plan.Place {
		if u == r {
			return plan.In.At(r, 0)
		}
		return plan.Scratch.At(r, t.at[u]-t.at[r]-1)
	}
	for _, r := range slices.Backward(t.order) {
		for _, u := range t.below(r) {
			to := plan.Out.At(r, u)
			if p := t.parent[r]; p >= 0 {
				to = at(p, u)
			}
			b.Copy(r, at(r, u), to)
		}
	}
}

// deal copies every block of the root's In to the Out of its rank. A rank has
// scratch for every block that comes through it.
func (t *tree) deal(b *plan.Builder) {
	// at returns where rank r has block u.
	at := func(r, u int) plan.Place {
		if t.parent[r] < 0 {
			return plan.In.At(r, u)
		}
		return plan.Scratch.At(r, t.at[u]-t.at[r])
	}
	for _, r := range t.order {
		for _, c := range t.largestFirst(r) {
			// The blocks with the longest way to go first, the child's own last.
			for _, u := range slices.Backward(t.below(c)) {
				b.Copy(r, at(r, u), at(c, u))
			}
		}
		b.Copy(r, at(r, r), plan.Out.At(r, 0))
	}
}

// broadcastAlong returns the broadcast that sends one chunk down each tree.
func broadcastAlong(name string, ranks, root int, trees ...*tree) (*plan.Plan, error) {
	b := plan.NewRooted(name, plan.Broadcast, ranks, root, len(trees))
	allDown(b, trees, func(_ *tree, c int) plan.Place { return plan.In.At(root, c) }, make(pad, ranks))
	return b.Plan()
}

// reduceAlong returns the reduce that sums one chunk up each tree.
func reduceAlong(name string, ranks, root int, trees ...*tree) (*plan.Plan, error) {
	b := plan.NewRooted(name, plan.Reduction, ranks, root, len(trees))
	scratch := make(pad, ranks)
	for c, t := range trees {
		t.up(b, c, scratch)
	}
	return b.Plan()
}

// allReduceAlong returns the allreduce that sums one chunk up each tree and
// sends the sum down again. The trees may have different roots.
func allReduceAlong(name string, ranks int, trees ...*tree) (*plan.Plan, error) {
	b := plan.NewBuilder(name, plan.AllReduce, ranks, len(trees))
	scratch := make(pad, ranks)
	for c, t := range trees {
		t.up(b, c, scratch)
	}
	allDown(b, trees, func(t *tree, c int) plan.Place { return plan.Out.At(t.order[0], c) }, scratch)
	return b.Plan()
}

// gatherAlong returns the gather that sends the blocks up the tree.
func gatherAlong(name string, ranks, root int, t *tree) (*plan.Plan, error) {
	b := plan.NewRooted(name, plan.Gather, ranks, root, 1)
	t.collect(b)
	return b.Plan()
}

// scatterAlong returns the scatter that sends the blocks down the tree.
func scatterAlong(name string, ranks, root int, t *tree) (*plan.Plan, error) {
	b := plan.NewRooted(name, plan.Scatter, ranks, root, 1)
	t.deal(b)
	return b.Plan()
}
