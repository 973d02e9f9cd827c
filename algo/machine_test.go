package algo

import (
	"fmt"
	"math/rand/v2"

	"github.com/tutti-go/tutti/plan"
)

// A machine runs lowered programs with real numbers, one small step of one
// rank at a time, in an order that a seed decides. It knows nothing of
// happens-before and shares no code with the verifier: it does what the
// programs say, honours exactly their waits, and looks at the results.
//
// It has two kinds of memory. Shared: every store is seen at once, and a
// rank's one counter is seen by all. Wire: what a rank writes to a peer and
// what it publishes travel in one queue for each ordered pair of ranks, and
// a rank only learns of the actions that name it in Peers.
type machine struct {
	l       *plan.Lowered
	tiles   int
	inPlace bool
	wire    bool
	rng     *rand.Rand

	in, out [][]number // by rank; chunk*tiles + tile; in place they share memory
	scratch [][]number // by rank; chunk*depth + slot
	counter []uint64   // shared: by rank
	seen    [][]uint64 // wire: by waiter and rank
	queue   [][][]message
	ranks   []runner
	started int

	want  [][]number     // by rank; chunk*tiles + tile of out: see expect
	bits  map[int]number // of an allreduce, by index: what the first to finish had
	fold  bool           // the order of reduction must be that of the ranks
	fault error
}

// A number is what a chunk's tile holds: a sum, which does not care about
// the order of reduction, and a hash of the expression, which does.
type number struct{ sum, hash uint64 }

type message struct {
	store bool
	at    *number
	value number
	count uint64
}

// lastFactor is what the step marked Last multiplies by, in place of the
// division of an average.
const lastFactor = 0x9e3779b97f4a7c15

type phase int

const (
	entering phase = iota
	waiting
	reading
	writing
	leaving
	gone
)

type runner struct {
	phase             phase
	iteration, action int
	operand           int
	acc               number
}

func newMachine(l *plan.Lowered, tiles int, inPlace, wire bool, rng *rand.Rand) *machine {
	n, p := l.Plan.Ranks, l.Plan
	m := &machine{l: l, tiles: tiles, inPlace: inPlace, wire: wire, rng: rng, bits: map[int]number{}}
	m.counter = make([]uint64, n)
	m.ranks = make([]runner, n)
	garbage := func(size int) []number {
		b := make([]number, size)
		for i := range b {
			b[i] = number{rng.Uint64(), rng.Uint64()}
		}
		return b
	}
	block := p.Chunks * tiles
	for r := range n {
		l := layoutOf(p.Collective, r, p.Root, n)
		in, out := garbage(l.in*block), garbage(l.out*block)
		if inPlace && l.shared {
			if l.in >= l.out {
				out = in[l.at*block:][:l.out*block]
			} else {
				in = out[l.at*block:][:l.in*block]
			}
		}
		m.in, m.out = append(m.in, in), append(m.out, out)
		m.scratch = append(m.scratch, garbage(p.Scratch*m.l.Depth))
		m.seen = append(m.seen, make([]uint64, n))
		m.queue = append(m.queue, make([][]message, n))
	}
	for r := range n {
		m.want = append(m.want, make([]number, len(m.out[r])))
		for i := range m.want[r] {
			m.want[r][i] = m.expect(r, i/block, i%block)
		}
	}
	return m
}

// A layout says how many blocks a rank brings, whether its two buffers share
// memory in place, and at which block of the larger one the smaller one lies.
type layout struct {
	in, out int
	shared  bool
	at      int
}

// layoutOf says in the machine's own words what the collectives are.
func layoutOf(c plan.Collective, r, root, n int) layout {
	isRoot := r == root
	ifRoot := func(k int) int {
		if isRoot {
			return k
		}
		return 0
	}
	switch c {
	case plan.AllReduce, plan.Barrier:
		return layout{1, 1, true, 0}
	case plan.Broadcast:
		return layout{ifRoot(1), 1, isRoot, 0}
	case plan.Reduction:
		return layout{1, ifRoot(1), isRoot, 0}
	case plan.Gather:
		return layout{1, ifRoot(n), isRoot, root}
	case plan.AllGather:
		return layout{1, n, true, r}
	case plan.Scatter:
		return layout{ifRoot(n), 1, isRoot, root}
	case plan.ReduceScatter:
		return layout{n, 1, true, r}
	case plan.AllToAll:
		return layout{n, n, false, 0}
	}
	panic(c)
}

// expect returns what a rank wants in its out, at an offset in a block: the
// very number that another brings, or the sum of numbers and the hash of their
// reduction in rank order.
func (m *machine) expect(r, b, offset int) number {
	root, block := m.l.Plan.Root, m.l.Plan.Chunks*m.tiles
	switch m.l.Plan.Collective {
	case plan.AllReduce, plan.Reduction:
		return m.total(offset)
	case plan.ReduceScatter:
		return m.total(r*block + offset)
	case plan.Broadcast:
		return m.in[root][offset]
	case plan.Gather, plan.AllGather:
		return m.in[b][offset]
	case plan.Scatter:
		return m.in[root][r*block+offset]
	case plan.AllToAll:
		return m.in[b][r*block+offset]
	}
	return number{}
}

// total reduces what all ranks bring at an index of their inputs.
func (m *machine) total(i int) number {
	acc := m.in[0][i]
	for _, in := range m.in[1:] {
		acc = acc.with(in[i])
	}
	if len(m.in) > 1 {
		acc.sum *= lastFactor
	}
	return acc
}

func (a number) with(b number) number {
	return number{a.sum + b.sum, a.hash*0xd1342543de82ef95 ^ (b.hash + 1)}
}

func (m *machine) at(q plan.Place, tile int) *number {
	switch q.Buf {
	case plan.In:
		return &m.in[q.Rank][q.Chunk*m.tiles+tile]
	case plan.Out:
		return &m.out[q.Rank][q.Chunk*m.tiles+tile]
	}
	return &m.scratch[q.Rank][q.Chunk*m.l.Depth+tile%m.l.Depth]
}

// run returns what went wrong, or nil.
func (m *machine) run() error {
	n := len(m.ranks)
	actors := n
	if m.wire {
		actors += n * n
	}
	order := m.rng.Perm(actors)
	// Some schedules change their mind at every step, some rarely, some
	// starve one actor for good.
	change := []int{1, 8, 64, 1 << 20}[m.rng.IntN(4)]
	for {
		if m.rng.IntN(change) == 0 {
			if change == 1 || m.rng.IntN(2) == 0 {
				m.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			} else { // the first becomes the last
				order = append(order[1:], order[0])
			}
		}
		moved := false
		for _, a := range order {
			if moved = m.step(a); moved {
				break
			}
		}
		if m.fault != nil {
			return m.fault
		}
		if moved {
			continue
		}
		for r := range m.ranks {
			if w := &m.ranks[r]; w.phase != gone {
				return fmt.Errorf("rank %d is stuck in iteration %d, action %d", r, w.iteration, w.action)
			}
		}
		return m.untouched()
	}
}

// untouched shows that nobody has written to a buffer after its owner left.
func (m *machine) untouched() error {
	for r := range m.ranks {
		for _, buf := range [][]number{m.in[r], m.out[r]} {
			for _, v := range buf {
				if v != gonemark(r) {
					return fmt.Errorf("a buffer of rank %d was written after the call", r)
				}
			}
		}
	}
	return nil
}

// gonemark is what a rank that has left fills its buffers with.
func gonemark(r int) number { return number{^uint64(r), uint64(r)} }

// step lets one actor, a rank or a queue, do one thing. It reports whether
// there was anything to do.
func (m *machine) step(actor int) bool {
	n := len(m.ranks)
	if actor >= n {
		from, to := (actor-n)/n, (actor-n)%n
		q := m.queue[from][to]
		if len(q) == 0 {
			return false
		}
		m.queue[from][to] = q[1:]
		if q[0].store {
			*q[0].at = q[0].value
		} else {
			m.seen[to][from] = max(m.seen[to][from], q[0].count)
		}
		return true
	}
	r, w := actor, &m.ranks[actor]
	if w.phase == gone {
		return false
	}
	if w.phase == entering {
		m.started++
		w.phase = waiting
		m.advance(w, r, 0)
		return true
	}
	if w.phase == leaving {
		if !m.satisfied(r, m.l.Programs[r].Finish, m.tiles-1) {
			return false
		}
		m.leave(r)
		w.phase = gone
		return true
	}
	a := &m.l.Programs[r].Actions[w.action]
	t := w.iteration - a.Skew
	switch w.phase {
	case waiting:
		if !m.satisfied(r, a.Waits, t) {
			return false
		}
		w.phase, w.operand = reading, 0
	case reading:
		v := *m.at(a.Srcs[w.operand], t)
		if w.operand == 0 {
			w.acc = v
		} else {
			w.acc = w.acc.with(v)
		}
		if w.operand++; w.operand == len(a.Srcs) {
			if a.Last {
				w.acc.sum *= lastFactor
			}
			w.phase, w.operand = writing, 0
		}
	case writing:
		if w.operand == len(a.Dsts) {
			if a.Signal {
				m.publish(r, a.Peers, m.l.Value(r, w.action, t))
			}
			w.phase = waiting
			m.advance(w, r, w.action+1)
			break
		}
		q := a.Dsts[w.operand]
		if m.wire && q.Rank != r {
			m.queue[r][q.Rank] = append(m.queue[r][q.Rank], message{store: true, at: m.at(q, t), value: w.acc})
		} else {
			*m.at(q, t) = w.acc
		}
		w.operand++
	}
	return true
}

// advance moves to the next action that has a tile, from the given one on.
func (m *machine) advance(w *runner, r, action int) {
	actions := m.l.Programs[r].Actions
	for ; w.iteration < m.tiles+m.l.MaxSkew(); w.iteration, action = w.iteration+1, 0 {
		for ; action < len(actions); action++ {
			if t := w.iteration - actions[action].Skew; t >= 0 && t < m.tiles {
				w.action = action
				return
			}
		}
	}
	w.phase = leaving
}

func (m *machine) satisfied(r int, waits []plan.Wait, t int) bool {
	for _, w := range waits {
		if t < w.Lag {
			continue
		}
		have := m.counter[w.Rank]
		if m.wire {
			have = m.seen[r][w.Rank]
		}
		if have < m.l.Value(w.Rank, w.Action, t-w.Lag) {
			return false
		}
	}
	return true
}

func (m *machine) publish(r int, peers []int, value uint64) {
	if !m.wire {
		m.counter[r] = max(m.counter[r], value)
		return
	}
	for _, q := range peers {
		m.queue[r][q] = append(m.queue[r][q], message{count: value})
	}
}

// leave looks at the result as the caller would, at once, and then uses the
// buffers for something else.
func (m *machine) leave(r int) {
	if m.l.Plan.Collective == plan.Barrier {
		if m.started < len(m.ranks) && m.fault == nil {
			m.fault = fmt.Errorf("rank %d left the barrier with %d of %d entered", r, m.started, len(m.ranks))
		}
	} else {
		for i, v := range m.out[r] {
			if err := m.wrong(r, i, v); err != nil && m.fault == nil {
				m.fault = err
			}
		}
	}
	m.publish(r, nil, m.l.End(m.tiles))
	for _, buf := range [][]number{m.in[r], m.out[r]} {
		for i := range buf {
			buf[i] = gonemark(r)
		}
	}
}

// wrong returns what is wrong with a result. The hash of a reduction is only
// held against that of the other ranks, unless fold says more.
func (m *machine) wrong(r, i int, v number) error {
	want := m.want[r][i]
	if v.sum != want.sum {
		return fmt.Errorf("rank %d has a wrong result in chunk %d tile %d", r, i/m.tiles, i%m.tiles)
	}
	switch m.l.Plan.Collective {
	case plan.AllReduce, plan.Reduction, plan.ReduceScatter:
		if m.fold {
			break
		}
		if m.l.Plan.Collective != plan.AllReduce {
			return nil // nobody else has this one
		}
		if _, ok := m.bits[i]; !ok {
			m.bits[i] = v
		}
		want = m.bits[i]
	}
	if v.hash != want.hash {
		return fmt.Errorf("rank %d has another order of reduction in chunk %d tile %d", r, i/m.tiles, i%m.tiles)
	}
	return nil
}

// tryToBreak runs the programs in many schedules and returns the first
// failure. It covers one tile and many, in place and not, and where the plan
// needs no mapped memory, also the wire.
func tryToBreak(l *plan.Lowered, schedules int, seed uint64) error {
	return breakIt(l, schedules, seed, false)
}

// breakIt is tryToBreak, with fold for programs that must reduce in the order
// of the ranks.
func breakIt(l *plan.Lowered, schedules int, seed uint64, fold bool) error {
	tiles := []int{1, 2, l.Depth + 1, l.Depth + l.MaxSkew() + 2}
	if l.Plan.Collective == plan.Barrier {
		tiles = tiles[:1]
	}
	for i := range schedules {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		t := tiles[len(tiles)-1-i%len(tiles)]
		wire := l.Plan.Reach().PutOnly() && rng.IntN(2) == 0
		m := newMachine(l, t, rng.IntN(2) == 0, wire, rng)
		m.fold = fold
		if err := m.run(); err != nil {
			return fmt.Errorf("schedule %d, %d tiles: %w", i, t, err)
		}
	}
	return nil
}
