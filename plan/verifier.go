package plan

// A moment is one action on one tile: pos is its position in the rank's
// chain.
type moment struct {
	rank, tile int
	pos        uint16
}

// A knowledge says, for tiles 0 to the event's own and for each rank, how
// many actions of that rank's chain for that tile happen before the event:
// it is indexed by tile*ranks + rank.
type knowledge []uint16

func (k knowledge) join(o knowledge) {
	for i, v := range o {
		if v > k[i] {
			k[i] = v
		}
	}
}

// A location is memory under observation: its last write, the reads since,
// and whether that write was a put from another node.
type location struct {
	written bool
	writer  moment
	readers []moment
	put     bool
}

// A hearing is a moment in a tile at which a rank has waited for another one's
// action at position upto-1.
type hearing struct{ pos, upto uint16 }

// A verifier runs the programs tile by tile. That is one of the orders that
// the programs allow, as far as they are proved by paths that never go back
// to an earlier tile; if no pair of conflicting accesses is unordered, all
// orders give the same values.
type verifier struct {
	l     *Lowered
	ranks int
	nodes Nodes
	vals  *values
	chain [][]int
	pos   [][]uint16 // by rank and action: its position in the chain
	first []int      // by rank: number of actions of the ranks before it

	known   [][]uint16 // by tile: the knowledge of all actions, one after the other
	rolling []knowledge
	heard   []map[[2]int][]hearing // by tile, then by waiter and rank waited for: ascending
	past    [][]int                // by rank and earlier tile: chain actions already joined

	mem     *memory
	user    []location // of this tile
	scratch []location // by rank, chunk and slot
}

func newVerifier(l *Lowered) *verifier {
	n := len(l.Programs)
	v := &verifier{
		l: l, ranks: n, nodes: l.nodes(),
		vals:    newValues(n, l.Plan.Collective),
		chain:   make([][]int, n),
		pos:     make([][]uint16, n),
		first:   make([]int, n+1),
		rolling: make([]knowledge, n),
		past:    make([][]int, n),
		scratch: make([]location, n*l.Plan.Scratch*l.Depth),
	}
	for r := range n {
		v.chain[r] = l.Programs[r].chain()
		v.pos[r] = make([]uint16, len(v.chain[r]))
		for i, j := range v.chain[r] {
			v.pos[r][j] = uint16(i)
		}
		v.first[r+1] = v.first[r] + len(v.chain[r])
	}
	return v
}

// at returns the knowledge of an action on a tile.
func (v *verifier) at(rank, action, tile int) knowledge {
	size := (tile + 1) * v.ranks
	i := (v.first[rank] + action) * size
	return v.known[tile][i : i+size]
}

// tile runs all actions on tile t.
func (v *verifier) tile(t int) error {
	n := v.ranks
	v.known = append(v.known, make([]uint16, v.first[n]*(t+1)*n))
	v.heard = append(v.heard, map[[2]int][]hearing{})
	v.mem = newMemory(v.l.Plan, v.vals)
	v.user = make([]location, n*v.l.Plan.cells())
	for r := range n {
		v.rolling[r] = make(knowledge, (t+1)*n)
		v.past[r] = make([]int, t)
	}
	done := make([]int, n) // by rank: actions of its chain
	ready := func(r int) bool {
		for _, w := range v.l.Programs[r].Actions[v.chain[r][done[r]]].Waits {
			if w.Lag == 0 && done[w.Rank] <= int(v.pos[w.Rank][w.Action]) {
				return false
			}
		}
		return true
	}
	for moved := true; moved; {
		moved = false
		for r := range n {
			for done[r] < len(v.chain[r]) && ready(r) {
				if err := v.action(r, v.chain[r][done[r]], t); err != nil {
					return err
				}
				done[r]++
				moved = true
			}
		}
	}
	for r := range n {
		if done[r] < len(v.chain[r]) {
			return v.l.fault(Deadlock, r, v.chain[r][done[r]], t, "waits in a cycle")
		}
	}
	if v.l.Plan.Collective == Barrier {
		return nil
	}
	if k, r, detail := v.mem.wrong(); detail != "" {
		return v.l.fault(k, r, -1, t, "%s", detail)
	}
	return nil
}

// learn adds to k that an action on a tile is complete, and all it knows.
func (v *verifier) learn(k knowledge, rank, action, tile int) {
	k.join(v.at(rank, action, tile))
	i := tile*v.ranks + rank
	k[i] = max(k[i], v.pos[rank][action]+1)
}

// action runs one action on tile t: what it knows, what it touches, what it
// computes.
func (v *verifier) action(r, j, t int) error {
	prog := &v.l.Programs[r]
	a := &prog.Actions[j]
	k := v.rolling[r]
	// Program order, from this rank's actions on earlier tiles.
	for u := range t {
		c, from := v.chain[r], v.past[r][u]
		to := from
		for to < len(c) && prog.before(c[to], u, j, t) {
			to++
		}
		if to > from {
			v.learn(k, r, c[to-1], u)
			v.past[r][u] = to
		}
	}
	for _, w := range a.Waits {
		if t < w.Lag {
			continue
		}
		v.learn(k, w.Rank, w.Action, t-w.Lag)
		if w.Lag == 0 {
			v.hear(r, j, t, w)
		}
	}
	copy(v.at(r, j, t), k)

	me := moment{r, t, v.pos[r][j]}
	for _, q := range a.Srcs {
		if err := v.read(me, j, q, k); err != nil {
			return err
		}
	}
	s := Step{Rank: r, Op: a.Op, Dsts: a.Dsts, Srcs: a.Srcs}
	for _, q := range a.Dsts {
		if err := v.write(me, j, q, k, s.isPutAcross(v.nodes)); err != nil {
			return err
		}
	}
	if err := v.compute(a, me, j); err != nil {
		return err
	}
	v.learn(k, r, j, t)
	return nil
}

// hear records that rank r waits for another node's action in its own action j
// on tile t, or at the end of its chain.
func (v *verifier) hear(r, j, t int, w Wait) {
	if v.nodes.Together(r, w.Rank) {
		return
	}
	h := hearing{uint16(len(v.chain[r])), v.pos[w.Rank][w.Action] + 1}
	if j >= 0 {
		h.pos = v.pos[r][j]
	}
	pair := [2]int{r, w.Rank}
	if hs := v.heard[t][pair]; len(hs) == 0 || hs[len(hs)-1].upto < h.upto {
		v.heard[t][pair] = append(hs, h)
	}
}

// hears returns the position in its chain at which the rank first waits, on the
// put's tile, for the rank that put.
func (v *verifier) hears(rank int, put moment) (pos uint16, ok bool) {
	for _, h := range v.heard[put.tile][[2]int{rank, put.rank}] {
		if h.upto > put.pos {
			return h.pos, true
		}
	}
	return 0, false
}

// compute evaluates the action in both memories.
func (v *verifier) compute(a *Action, me moment, j int) error {
	var result [2]value // both before the first store: an action may write what it reads
	for i, inPlace := range []bool{false, true} {
		x, kind, detail := v.mem.result(a.Srcs, inPlace)
		if detail != "" {
			return v.l.fault(kind, me.rank, j, me.tile, "%s%s", detail, where(inPlace))
		}
		result[i] = x
	}
	for i, inPlace := range []bool{false, true} {
		for _, d := range a.Dsts {
			v.mem.store(d, inPlace, result[i])
		}
	}
	complete := a.Op == Reduce && v.l.Plan.Collective != Barrier && v.vals.complete(result[0])
	if a.Last != complete {
		return v.l.fault(WrongResult, me.rank, j, me.tile, "last is %v, but complete is %v", a.Last, complete)
	}
	return nil
}

// location returns the memory that the place means for a tile.
func (v *verifier) location(q Place, tile int) *location {
	p := v.l.Plan
	if q.Buf == Scratch {
		return &v.scratch[(q.Rank*p.Scratch+q.Chunk)*v.l.Depth+tile%v.l.Depth]
	}
	return &v.user[v.mem.at(q)]
}

// knows reports whether m happens before who has knowledge k.
func (v *verifier) knows(k knowledge, m moment) bool {
	return k[m.tile*v.ranks+m.rank] > m.pos
}

func (v *verifier) race(me moment, j int, verb string, q Place, with string, m moment) error {
	return v.l.fault(Race, me.rank, j, me.tile, "%s %v while rank %d action %d tile %d may still %s it",
		verb, q, m.rank, v.chain[m.rank][m.pos], m.tile, with)
}

func (v *verifier) read(me moment, j int, q Place, k knowledge) error {
	loc := v.location(q, me.tile)
	if loc.written && !v.knows(k, loc.writer) {
		return v.race(me, j, "reads", q, "write", loc.writer)
	}
	loc.readers = append(loc.readers, me)
	return v.delivered(me, j, q, loc, k)
}

func (v *verifier) write(me moment, j int, q Place, k knowledge, put bool) error {
	loc := v.location(q, me.tile)
	if loc.written && !v.knows(k, loc.writer) {
		return v.race(me, j, "writes", q, "write", loc.writer)
	}
	for _, m := range loc.readers {
		if m != me && !v.knows(k, m) {
			return v.race(me, j, "writes", q, "read", m)
		}
	}
	// Puts of one rank into one peer arrive in order.
	if !put || loc.writer.rank != me.rank {
		if err := v.delivered(me, j, q, loc, k); err != nil {
			return err
		}
	}
	loc.written, loc.writer, loc.readers, loc.put = true, me, loc.readers[:0], put
	return nil
}

// delivered shows of a put from another node into the location that it is
// there: the rank whose memory it is has waited for the rank that put, and is
// the one that comes here, or did so before.
func (v *verifier) delivered(me moment, j int, q Place, loc *location, k knowledge) error {
	if !loc.put {
		return nil
	}
	put := loc.writer
	pos, ok := v.hears(q.Rank, put)
	heard := moment{q.Rank, put.tile, pos}
	if !ok || heard != me && !v.knows(k, heard) {
		return v.l.fault(Undelivered, me.rank, j, me.tile, "uses %v, which rank %d put there, without a wait of rank %d for rank %d",
			q, put.rank, q.Rank, put.rank)
	}
	return nil
}

// finish shows what holds when the ranks return: all that peers do to their
// In and Out, all puts from other nodes into their Scratch, and in a barrier the
// entry of all others, has happened. It looks at the last tile alone, so that it
// holds for a single tile too.
func (v *verifier) finish() error {
	last := v.l.Depth
	known := make([]knowledge, v.ranks)
	for r := range v.ranks {
		k := v.rolling[r]
		for _, w := range v.l.Programs[r].Finish {
			v.learn(k, w.Rank, w.Action, last)
			v.hear(r, -1, last, w)
		}
		known[r] = k[last*v.ranks:]
	}
	for q := range v.ranks {
		for j := range v.l.Programs[q].Actions {
			a := &v.l.Programs[q].Actions[j]
			for _, places := range [][]Place{a.Srcs, a.Dsts} {
				for _, at := range places {
					if at.Rank != q && at.Buf != Scratch && known[at.Rank][q] <= v.pos[q][j] {
						return v.l.fault(EarlyFinish, at.Rank, -1, -1, "may return while rank %d action %d uses %v", q, j, at)
					}
				}
			}
		}
	}
	if err := v.landed(last); err != nil {
		return err
	}
	if v.l.Plan.Collective == Barrier {
		for r := range v.ranks {
			for q := range v.ranks {
				if q != r && known[r][q] == 0 {
					return v.l.fault(NotSynchronized, r, -1, -1, "may leave before rank %d has entered", q)
				}
			}
		}
	}
	return nil
}

// landed shows that each rank waits for all puts from other nodes into its
// Scratch, in the last tile or as it returns. What is complete in the last tile
// is so in those before.
func (v *verifier) landed(last int) error {
	for q := range v.ranks {
		for j := range v.l.Programs[q].Actions {
			a := &v.l.Programs[q].Actions[j]
			if s := (Step{Rank: q, Op: a.Op, Dsts: a.Dsts, Srcs: a.Srcs}); !s.isPutAcross(v.nodes) {
				continue
			}
			at := a.Dsts[0]
			if _, ok := v.hears(at.Rank, moment{q, last, v.pos[q][j]}); !ok {
				return v.l.fault(Undelivered, at.Rank, -1, -1, "returns without a wait for rank %d, whose action %d puts into %v", q, j, at)
			}
		}
	}
	return nil
}
