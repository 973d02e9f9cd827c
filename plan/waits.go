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
// in the order of (skew, index): its chain. The clock of a step with lag d
// says for each rank how many steps of that rank's chain for tile t-d are
// complete before the step runs on tile t. Knowledge is tracked only along
// paths that never go back to an earlier tile, so that it holds for every
// number of tiles, also for the first and the last tiles, where some waits
// are void.
//
// One kind of wait is never left out for what a third rank has told: the one
// for a rank of another node that has put bytes into the waiting rank's memory.
// Over a network only that peer's own notification shows that they have
// arrived. A rank waits for all such puts before it returns, also for those that
// it does not use: its next call may use the memory for something else.

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
	pos        []int32   // by step: its position in its rank's chain
	clocks     [][]int32 // by lag, then by step; nil if there would be too many
	direct     []clock   // by rank: what its own waits have shown so far
	candidates []candidate
}

// A candidate is the largest wait for one rank.
type candidate struct {
	rank int
	pos  int32 // of the step to wait for; -1: none
	put  int32 // the largest of those that put into the waiter's memory from another node; -1: none
}

func (lo *lowering) waits(l *Lowered) {
	n := len(lo.p.Steps)
	w := &waiting{
		lowering: lo, l: l, chain: lo.chains(), pos: make([]int32, n),
		direct: make([]clock, lo.p.Ranks),
	}
	for r, c := range w.chain {
		w.direct[r] = make(clock, lo.p.Ranks)
		for i, id := range c {
			w.pos[id] = int32(i)
		}
	}
	if n*lo.p.Ranks*(lo.depth+1) <= maxClocks {
		for range lo.depth + 1 {
			w.clocks = append(w.clocks, make([]int32, n*lo.p.Ranks))
		}
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
	if w.clocks != nil {
		for d := 1; d <= lo.depth; d++ {
			for _, id := range order {
				w.remember(id, d)
				if d == lo.depth {
					w.reuseWaits(id, users[id])
				}
			}
		}
	} else {
		for _, id := range order {
			w.reuseWaits(id, users[id])
		}
	}
	w.finish()
}

// at returns the clock of id with lag d, or nil.
func (w *waiting) at(id StepID, d int) clock {
	if w.clocks == nil {
		return nil
	}
	n := w.p.Ranks
	return w.clocks[d][int(id)*n : (int(id)+1)*n]
}

// learn adds to c that id is complete for its tile, and all it knows about
// that tile.
func (w *waiting) learn(c clock, id StepID) {
	if c == nil {
		return
	}
	c.join(w.at(id, 0))
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
// covers the earlier. Puts into the waiter's memory from another node are told
// apart, unless somebody has already used what they brought.
func (w *waiting) pick(rank int, ids []StepID, used bool) {
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
		if !used && s.Dsts[0].Rank == rank && s.isPutAcross(w.nodes) {
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
			if known || w.clocks == nil {
				break
			}
			known = o.rank != c.rank && w.at(w.chain[o.rank][o.pos], 0)[c.rank] > c.pos
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
	known := w.at(id, 0)
	if prev := w.previous(id); prev >= 0 {
		w.learn(known, prev)
	}
	w.pick(s.Rank, s.After, false)
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

// remember fills in the clock of id with lag d > 0, all smaller lags and all
// steps before id being done.
func (w *waiting) remember(id StepID, d int) {
	known := w.at(id, d)
	if prev := w.previous(id); prev >= 0 {
		known.join(w.at(prev, d))
	}
	for _, a := range w.p.Steps[id].After {
		known.join(w.at(a, d))
	}
	// What the rank itself had done for tile t-e when it comes to this step
	// for tile t: all steps whose iteration, or else index, is smaller.
	chain := w.chain[w.p.Steps[id].Rank]
	for e := 1; e <= d; e++ {
		i, _ := slices.BinarySearchFunc(chain, id, func(b, id StepID) int {
			return cmp.Or(cmp.Compare(w.skew[b]-e, w.skew[id]), cmp.Compare(b, id))
		})
		if i == 0 {
			continue
		}
		if e == d {
			w.learn(known, chain[i-1])
		} else {
			known.join(w.at(chain[i-1], d-e))
		}
	}
}

// reuseWaits finds the waits of id for the tile that used its scratch slots
// before, in which users were the last.
func (w *waiting) reuseWaits(id StepID, users []StepID) {
	s := &w.p.Steps[id]
	known := w.at(id, w.depth)
	w.pick(s.Rank, users, true)
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
// access of each peer to its In and Out, and the last put from another node to
// its Scratch, for the last tile.
func (w *waiting) finish() {
	touch := make([][]StepID, w.p.Ranks)
	for id := range w.p.Steps {
		s := &w.p.Steps[id]
		for _, places := range [][]Place{s.Srcs, s.Dsts} {
			for _, q := range places {
				if q.Rank != s.Rank && (q.Buf != Scratch || s.isPutAcross(w.nodes)) {
					touch[q.Rank] = append(touch[q.Rank], StepID(id))
				}
			}
		}
	}
	for r := range w.l.Programs {
		var known clock
		if w.clocks != nil {
			known = make(clock, w.p.Ranks)
			if c := w.chain[r]; len(c) > 0 {
				w.learn(known, c[len(c)-1])
			}
		}
		w.pick(r, touch[r], false)
		w.reduce(known, w.direct[r])
		for _, c := range w.candidates {
			w.l.Programs[r].Finish = append(w.l.Programs[r].Finish, w.wait(c, 0))
		}
	}
}
