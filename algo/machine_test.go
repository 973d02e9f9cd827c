package algo

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tutti-go/tutti/plan"
)

// A machine runs lowered programs with real numbers, one small step of one
// rank at a time, in an order that a seed decides. It knows nothing of
// happens-before and shares no code with the verifier: it does what the
// programs say, honours exactly their waits, and looks at the results.
//
// Ranks of one node share memory: every store is seen at once, and a rank's one
// counter is seen by all. What a rank writes to one of another node, and what it
// publishes there, travels in one queue for each ordered pair of ranks, and a
// rank only learns of the actions that name it in Peers.
//
// It runs one call, or several in turn in the same scratch. For the latter
// ranks arrive as [plan.Lowered] says; for the former they just start. With two
// sets of scratch, which calls use in turn, a rank needs to have heard in the
// last call, or this one, of those that it puts to.
type machine struct {
	nodes plan.Nodes
	calls []*called
	turn  bool // several calls in turn
	two   bool // sets of scratch
	hasty bool // ranks tell of their arrival before the rest of their node has come
	rng   *rand.Rand

	scratch [2][][]number // by set and rank; chunk*depth + slot
	counter []uint64      // by rank: seen by its node
	told    [][]uint64    // by rank and rank of another node
	seen    [][]uint64    // by waiter and rank of another node
	queue   [][][]message
	ranks   []runner
	fold    bool // the order of reduction must be that of the ranks
	fault   error
}

// A called is one call of all ranks.
type called struct {
	l       *plan.Lowered
	tiles   int
	base    uint64
	in, out [][]number // by rank; chunk*tiles + tile; in place they share memory
	started int
	want    [][]number     // by rank; chunk*tiles + tile of out: see expect
	bits    map[int]number // of an allreduce, by index: what the first to finish had
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
	entering  phase = iota
	gathering       // of the own node
	meeting         // those of other nodes
	waiting
	reading
	writing
	leaving
	gone
)

type runner struct {
	call              int
	phase             phase
	iteration, action int
	operand           int
	acc               number
}

// newMachine returns a machine for calls in turn, each with its number of tiles,
// by ranks grouped into nodes.
func newMachine(ls []*plan.Lowered, tiles []int, inPlace bool, nodes plan.Nodes, rng *rand.Rand) *machine {
	n := len(nodes)
	m := &machine{nodes: nodes, turn: len(ls) > 1, rng: rng}
	m.counter = make([]uint64, n)
	m.ranks = make([]runner, n)
	garbage := func(size int) []number {
		b := make([]number, size)
		for i := range b {
			b[i] = number{rng.Uint64(), rng.Uint64()}
		}
		return b
	}
	base, scratch := uint64(0), 0
	for i, l := range ls {
		p := l.Plan
		c := &called{l: l, tiles: tiles[i], base: base, bits: map[int]number{}}
		base += l.End(c.tiles)
		scratch = max(scratch, p.Scratch*l.Depth)
		block := p.Chunks * c.tiles
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
			c.in, c.out = append(c.in, in), append(c.out, out)
		}
		for r := range n {
			c.want = append(c.want, make([]number, len(c.out[r])))
			for i := range c.want[r] {
				c.want[r][i] = c.expect(r, i/block, i%block)
			}
		}
		m.calls = append(m.calls, c)
	}
	for range n {
		for i := range m.scratch {
			m.scratch[i] = append(m.scratch[i], garbage(scratch))
		}
		m.told = append(m.told, make([]uint64, n))
		m.seen = append(m.seen, make([]uint64, n))
		m.queue = append(m.queue, make([][]message, n))
	}
	return m
}

// call returns the call that a rank is in.
func (m *machine) call(r int) *called { return m.calls[m.ranks[r].call] }

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
func (c *called) expect(r, b, offset int) number {
	root, block := c.l.Plan.Root, c.l.Plan.Chunks*c.tiles
	switch c.l.Plan.Collective {
	case plan.AllReduce, plan.Reduction:
		return c.total(offset)
	case plan.ReduceScatter:
		return c.total(r*block + offset)
	case plan.Broadcast:
		return c.in[root][offset]
	case plan.Gather, plan.AllGather:
		return c.in[b][offset]
	case plan.Scatter:
		return c.in[root][r*block+offset]
	case plan.AllToAll:
		return c.in[b][r*block+offset]
	}
	return number{}
}

// total reduces what all ranks bring at an index of their inputs.
func (c *called) total(i int) number {
	acc := c.in[0][i]
	for _, in := range c.in[1:] {
		acc = acc.with(in[i])
	}
	if len(c.in) > 1 {
		acc.sum *= lastFactor
	}
	return acc
}

func (a number) with(b number) number {
	return number{a.sum + b.sum, a.hash*0xd1342543de82ef95 ^ (b.hash + 1)}
}

// at returns where a place is in the call that rank r is in.
func (m *machine) at(r int, q plan.Place, tile int) *number {
	c := m.call(r)
	switch q.Buf {
	case plan.In:
		return &c.in[q.Rank][q.Chunk*c.tiles+tile]
	case plan.Out:
		return &c.out[q.Rank][q.Chunk*c.tiles+tile]
	}
	set := 0
	if m.two {
		set = m.ranks[r].call % 2
	}
	return &m.scratch[set][q.Rank][q.Chunk*c.l.Depth+tile%c.l.Depth]
}

// run returns what went wrong, or nil.
func (m *machine) run() error {
	n := len(m.ranks)
	actors := n
	if m.nodes.Count() > 1 {
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
				return fmt.Errorf("rank %d is stuck in call %d, phase %d, iteration %d, action %d", r, w.call, w.phase, w.iteration, w.action)
			}
		}
		return m.untouched()
	}
}

// untouched shows that nobody has written to a buffer after its owner left.
func (m *machine) untouched() error {
	for _, c := range m.calls {
		for r := range m.ranks {
			for _, buf := range [][]number{c.in[r], c.out[r]} {
				for _, v := range buf {
					if v != gonemark(r) {
						return fmt.Errorf("a buffer of rank %d was written after the call", r)
					}
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
		return m.deliver((actor-n)/n, (actor-n)%n)
	}
	r, w := actor, &m.ranks[actor]
	switch w.phase {
	case gone:
		return false
	case entering, gathering, meeting:
		return m.enter(r, w)
	case leaving:
		if c := m.call(r); !m.satisfied(r, c.l.Programs[r].Finish, c.tiles-1) {
			return false
		}
		m.leave(r)
		if w.phase = gone; w.call+1 < len(m.calls) {
			*w = runner{call: w.call + 1}
		}
		return true
	}
	a := &m.call(r).l.Programs[r].Actions[w.action]
	t := w.iteration - a.Skew
	switch w.phase {
	case waiting:
		if !m.satisfied(r, a.Waits, t) {
			return false
		}
		w.phase, w.operand = reading, 0
	case reading:
		v := *m.at(r, a.Srcs[w.operand], t)
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
				m.publish(r, a.Peers, m.call(r).l.Value(r, w.action, t))
			}
			w.phase = waiting
			m.advance(w, r, w.action+1)
			break
		}
		if q := a.Dsts[w.operand]; m.nodes.Together(q.Rank, r) {
			*m.at(r, q, t) = w.acc
		} else {
			m.queue[r][q.Rank] = append(m.queue[r][q.Rank], message{store: true, at: m.at(r, q, t), value: w.acc})
		}
		w.operand++
	}
	return true
}

// deliver takes the next message of a queue, if there is one.
func (m *machine) deliver(from, to int) bool {
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

// enter takes a rank a step towards its first action.
func (m *machine) enter(r int, w *runner) bool {
	c := m.call(r)
	prog, arrived := &c.l.Programs[r], c.base+plan.Arrived
	tell, hear, enough := prog.Told, prog.Arrive, arrived
	if m.two {
		tell, hear = m.strangers(r)
		if enough = 0; w.call > 0 {
			enough = m.calls[w.call-1].base + plan.Arrived
		}
		tell = slices.DeleteFunc(tell, func(q int) bool { return m.told[r][q] >= enough })
	}
	switch w.phase {
	case entering:
		c.started++
		m.counter[r] = max(m.counter[r], arrived)
		if m.hasty {
			m.publish(r, tell, plan.Arrived)
		}
		if w.phase = gathering; !m.turn {
			w.phase = waiting
			m.advance(w, r, 0)
		}
	case gathering:
		for q := range m.ranks {
			if m.nodes.Together(q, r) && m.counter[q] < arrived {
				return false
			}
		}
		if !m.hasty {
			m.publish(r, tell, plan.Arrived)
		}
		w.phase = meeting
	case meeting:
		for _, q := range hear {
			if !m.nodes.Together(q, r) && m.seen[r][q] < enough {
				return false
			}
		}
		w.phase = waiting
		m.advance(w, r, 0)
	}
	return true
}

// advance moves to the next action that has a tile, from the given one on.
func (m *machine) advance(w *runner, r, action int) {
	c := m.call(r)
	actions := c.l.Programs[r].Actions
	for ; w.iteration < c.tiles+c.l.MaxSkew(); w.iteration, action = w.iteration+1, 0 {
		for ; action < len(actions); action++ {
			if t := w.iteration - actions[action].Skew; t >= 0 && t < c.tiles {
				w.action = action
				return
			}
		}
	}
	w.phase = leaving
}

func (m *machine) satisfied(r int, waits []plan.Wait, t int) bool {
	c := m.call(r)
	for _, w := range waits {
		if t < w.Lag {
			continue
		}
		have := m.counter[w.Rank]
		if !m.nodes.Together(w.Rank, r) {
			have = m.seen[r][w.Rank]
		}
		if have < c.base+c.l.Value(w.Rank, w.Action, t-w.Lag) {
			return false
		}
	}
	return true
}

// publish raises a rank's counter to a value of its call, for its node and for
// those of other nodes that are named.
func (m *machine) publish(r int, peers []int, value uint64) {
	value += m.call(r).base
	m.counter[r] = max(m.counter[r], value)
	for _, q := range peers {
		if !m.nodes.Together(q, r) {
			m.queue[r][q] = append(m.queue[r][q], message{count: value})
			m.told[r][q] = max(m.told[r][q], value)
		}
	}
}

// strangers returns the ranks of other nodes that put to a rank in its call, and
// those that it puts to.
func (m *machine) strangers(r int) (from, to []int) {
	n := len(m.ranks)
	froms, tos := make([]bool, n), make([]bool, n)
	for q, prog := range m.call(r).l.Programs {
		for _, a := range prog.Actions {
			for _, d := range a.Dsts {
				froms[q] = froms[q] || d.Rank == r
				tos[d.Rank] = tos[d.Rank] || q == r
			}
		}
	}
	for q := range n {
		if froms[q] && !m.nodes.Together(q, r) {
			from = append(from, q)
		}
		if tos[q] && !m.nodes.Together(q, r) {
			to = append(to, q)
		}
	}
	return from, to
}

// leave looks at the result as the caller would, at once, and then uses the
// buffers for something else.
func (m *machine) leave(r int) {
	c := m.call(r)
	if c.l.Plan.Collective == plan.Barrier {
		if c.started < len(m.ranks) && m.fault == nil {
			m.fault = fmt.Errorf("rank %d left the barrier with %d of %d entered", r, c.started, len(m.ranks))
		}
	} else {
		for i, v := range c.out[r] {
			if err := c.wrong(r, i, v, m.fold); err != nil && m.fault == nil {
				m.fault = err
			}
		}
	}
	m.publish(r, nil, c.l.End(c.tiles))
	for _, buf := range [][]number{c.in[r], c.out[r]} {
		for i := range buf {
			buf[i] = gonemark(r)
		}
	}
}

// wrong returns what is wrong with a result. The hash of a reduction is only
// held against that of the other ranks, unless fold says more.
func (c *called) wrong(r, i int, v number, fold bool) error {
	want := c.want[r][i]
	if v.sum != want.sum {
		return fmt.Errorf("rank %d has a wrong result in chunk %d tile %d", r, i/c.tiles, i%c.tiles)
	}
	switch c.l.Plan.Collective {
	case plan.AllReduce, plan.Reduction, plan.ReduceScatter:
		if fold {
			break
		}
		if c.l.Plan.Collective != plan.AllReduce {
			return nil // nobody else has this one
		}
		if _, ok := c.bits[i]; !ok {
			c.bits[i] = v
		}
		want = c.bits[i]
	}
	if v.hash != want.hash {
		return fmt.Errorf("rank %d has another order of reduction in chunk %d tile %d", r, i/c.tiles, i%c.tiles)
	}
	return nil
}

// tryToBreak runs the programs in many schedules and returns the first
// failure. It covers one tile and many, in place and not, one call and several,
// and where programs run over nodes, shared memory too.
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
		nodes := l.Nodes
		if rng.IntN(2) == 0 {
			nodes = plan.OneNode(len(nodes))
		}
		ls, ts := []*plan.Lowered{l}, []int{t}
		for range rng.IntN(3) {
			ls, ts = append(ls, l), append(ts, t)
		}
		m := newMachine(ls, ts, rng.IntN(2) == 0, nodes, rng)
		m.fold = fold
		if err := m.run(); err != nil {
			return fmt.Errorf("schedule %d, %d tiles: %w", i, t, err)
		}
	}
	return nil
}
