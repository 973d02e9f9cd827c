package plan

import (
	"cmp"
	"slices"
)

// Waits between ranks come from two sources: a step's After on another rank,
// for the same tile (Lag 0), and the reuse of a scratch slot, for the tile
// that had it before (Lag depth). Waits that others imply are left out.
//
// What a rank knows is a vector clock. For one tile, a rank runs its steps
// in the order of (skew, index): its chain. The clock of a step says for
// each rank how many steps of that rank's chain are complete before it, for
// the same tile (same) or for the tile depth earlier (old). Knowledge is
// tracked only along paths that never go back to an earlier tile, so that it
// holds for every number of tiles, also for the first and the last tiles,
// where some waits are void.
//
// One kind of wait is never left out for what a third rank has told: the one
// for a peer that has put bytes into the waiting rank's memory. Over a
// network only that peer's own notification shows that they have arrived.

// maxClocks bounds the memory spent on finding implied waits. Beyond it only
// the largest wait for each rank is picked.
const maxClocks = 1 << 25

// A clock holds, for each rank, a number of steps of its chain.
type clock []int32

func (c clock) join(d clock) {
	for i, v := range d {
		c[i] = max(c[i], v)
	}
}

// see records that rank has completed the step at position pos (from 0).
func (c clock) see(rank int, pos int32) { c[rank] = max(c[rank], pos+1) }

// chains returns the steps of each rank in the order in which the rank runs
// them for one tile.
func (lo *lowering) chains() [][]StepID {
	cs := make([][]StepID, lo.p.Ranks)
	for id := range lo.p.Steps {
		r := lo.p.Steps[id].Rank
		cs[r] = append(cs[r], StepID(id))
	}
	for _, c := range cs {
		slices.SortStableFunc(c, func(a, b StepID) int { return cmp.Compare(lo.skew[a], lo.skew[b]) })
	}
	return cs
}

// A waiting is the state of the search for the waits of all steps.
type waiting struct {
	*lowering
	l          *Lowered
	chain      [][]StepID
	pos        []int32 // by step: its position in its rank's chain
	same, old  []int32 // by step: clocks, or nil if there would be too many
	direct     []clock // by rank: what its own waits have shown so far
	candidates []candidate
}

// A candidate is the largest wait for one rank.
type candidate struct {
	rank int
	pos  int32 // of the step to wait for; -1: none
	put  int32 // the largest of those that put into the waiter's memory; -1: none
}

func (lo *lowering) waits(l *Lowered) {
	n := len(lo.p.Steps)
	w := &waiting{lowering: lo, l: l, chain: lo.chains(), pos: make([]int32, n), direct: make([]clock, lo.p.Ranks)}
	for r, c := range w.chain {
		w.direct[r] = make(clock, lo.p.Ranks)
		for i, id := range c {
			w.pos[id] = int32(i)
		}
	}
	if n*lo.p.Ranks <= maxClocks {
		w.same, w.old = make([]int32, n*lo.p.Ranks), make([]int32, n*lo.p.Ranks)
	}
	// By skew, then by index: every step comes after all it depends on.
	order := make([]StepID, n)
	for i := range order {
		order[i] = StepID(i)
	}
	slices.SortStableFunc(order, func(a, b StepID) int { return cmp.Compare(lo.skew[a], lo.skew[b]) })
	for _, id := range order {
		w.flow(id)
	}
	users := make(map[StepID][]StepID)
	for _, r := range lo.reuse {
		users[r.writer] = append(users[r.writer], r.users...)
	}
	for _, id := range order {
		w.lag(id, users[id])
	}
	w.finish()
}

func (w *waiting) at(clocks []int32, id StepID) clock {
	if clocks == nil {
		return nil
	}
	n := w.p.Ranks
	return clocks[int(id)*n : (int(id)+1)*n]
}

// learn adds to c that id is complete for the same tile, and all it knows.
func (w *waiting) learn(c clock, id StepID) {
	if c == nil {
		return
	}
	c.join(w.at(w.same, id))
	c.see(w.p.Steps[id].Rank, w.pos[id])
}

// previous returns the step before id in its chain, or -1.
func (w *waiting) previous(id StepID) StepID {
	if i := w.pos[id]; i > 0 {
		return w.chain[w.p.Steps[id].Rank][i-1]
	}
	return -1
}

// pick groups steps of other ranks by rank into w.candidates. Two steps of
// one rank need one wait, for the later in its chain: for the same tile that
// covers the earlier.
func (w *waiting) pick(rank int, ids []StepID) {
	w.candidates = w.candidates[:0]
	for _, d := range ids {
		s := &w.p.Steps[d]
		if s.Rank == rank {
			continue
		}
		i, ok := slices.BinarySearchFunc(w.candidates, s.Rank, func(c candidate, r int) int { return cmp.Compare(c.rank, r) })
		if !ok {
			w.candidates = slices.Insert(w.candidates, i, candidate{s.Rank, -1, -1})
		}
		c := &w.candidates[i]
		c.pos = max(c.pos, w.pos[d])
		if s.IsPut() && s.Dsts[0].Rank == rank {
			c.put = max(c.put, w.pos[d])
		}
	}
}

// reduce keeps the candidates that neither base nor another candidate
// implies. direct is what the rank's own earlier waits have shown.
func (w *waiting) reduce(base, direct clock) {
	kept := w.candidates[:0]
	all := slices.Clone(w.candidates)
	for _, c := range all {
		known := base != nil && base[c.rank] > c.pos
		for _, o := range all {
			if known || w.same == nil {
				break
			}
			known = o.rank != c.rank && w.at(w.same, w.chain[o.rank][o.pos])[c.rank] > c.pos
		}
		if known {
			c.pos = -1
			if c.put >= 0 && (direct == nil || direct[c.rank] <= c.put) {
				c.pos = c.put
			}
		}
		if c.pos >= 0 {
			kept = append(kept, c)
		}
	}
	w.candidates = kept
}

func (w *waiting) wait(c candidate, lag int) Wait {
	return Wait{c.rank, w.action[w.chain[c.rank][c.pos]], lag}
}

// flow finds the waits of id for the same tile.
func (w *waiting) flow(id StepID) {
	s := &w.p.Steps[id]
	known := w.at(w.same, id)
	if prev := w.previous(id); prev >= 0 {
		w.learn(known, prev)
	}
	w.pick(s.Rank, s.After)
	direct := w.direct[s.Rank]
	w.reduce(known, direct)
	a := &w.l.Programs[s.Rank].Actions[w.action[id]]
	for _, c := range w.candidates {
		a.Waits = append(a.Waits, w.wait(c, 0))
		direct.see(c.rank, c.pos)
	}
	for _, d := range s.After {
		w.learn(known, d)
	}
}

// lag finds the waits of id for the tile that used its scratch slots before.
func (w *waiting) lag(id StepID, users []StepID) {
	s := &w.p.Steps[id]
	known := w.at(w.old, id)
	if known != nil {
		if prev := w.previous(id); prev >= 0 {
			known.join(w.at(w.old, prev))
		}
		for _, d := range s.After {
			known.join(w.at(w.old, d))
		}
		// What the rank itself had done for that tile when it comes to this
		// step: all steps whose iteration, or else index, is smaller.
		chain := w.chain[s.Rank]
		i, _ := slices.BinarySearchFunc(chain, id, func(b, id StepID) int {
			return cmp.Or(cmp.Compare(w.skew[b]-w.depth, w.skew[id]), cmp.Compare(b, id))
		})
		if i > 0 {
			w.learn(known, chain[i-1])
		}
	}
	w.pick(s.Rank, users)
	w.reduce(known, nil)
	a := &w.l.Programs[s.Rank].Actions[w.action[id]]
	for _, c := range w.candidates {
		a.Waits = append(a.Waits, w.wait(c, w.depth))
	}
	for _, u := range users {
		w.learn(known, u)
	}
}

// finish finds what each rank must wait for before it returns: the last
// access of each peer to its In and Out, for the last tile.
func (w *waiting) finish() {
	touch := make([][]StepID, w.p.Ranks)
	for id := range w.p.Steps {
		s := &w.p.Steps[id]
		for _, places := range [][]Place{s.Srcs, s.Dsts} {
			for _, q := range places {
				if q.Rank != s.Rank && q.Buf != Scratch {
					touch[q.Rank] = append(touch[q.Rank], StepID(id))
				}
			}
		}
	}
	for r := range w.l.Programs {
		var known clock
		if w.same != nil {
			known = make(clock, w.p.Ranks)
			if c := w.chain[r]; len(c) > 0 {
				w.learn(known, c[len(c)-1])
			}
		}
		w.pick(r, touch[r])
		w.reduce(known, w.direct[r])
		for _, c := range w.candidates {
			w.l.Programs[r].Finish = append(w.l.Programs[r].Finish, w.wait(c, 0))
		}
	}
}
