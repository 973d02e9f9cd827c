package plan

import (
	"fmt"
	"slices"
)

// An Action is one step in one rank's program.
type Action struct {
	Op         Op
	Dsts, Srcs []Place
	Last       bool
	Step       StepID // where it comes from

	// Skew is how many iterations the action lags behind: in iteration i it
	// works on tile i-Skew.
	Skew int
	// Waits must be satisfied before the action may start on a tile.
	Waits []Wait
	// Signal says that some rank waits for the action: publish progress
	// after it.
	Signal bool
	// Peers are the ranks that wait for it, in ascending order, for media
	// where each must be notified.
	Peers []int
}

// A Wait demands that action Action of rank Rank's program is complete for
// tile t-Lag, where t is the tile of the waiting action. For t < Lag there
// is nothing to wait for.
type Wait struct{ Rank, Action, Lag int }

// A Program is what one rank runs, for each tile.
type Program struct {
	Rank    int
	Actions []Action
	// Finish must be satisfied for the last tile before the call returns:
	// then no other rank touches the caller's In and Out any more.
	Finish []Wait
	// MaxSkew is the largest skew of the actions.
	MaxSkew int
	// Arrive are ranks of other nodes that must have arrived before the rank
	// starts its first action, and Told those that its own arrival must be
	// told, both in ascending order.
	Arrive, Told []int
}

// Lowered is a plan cut into one program for each rank. It is still data.
//
// A chunk's bytes are cut into T >= 1 tiles, the same for all ranks. A rank
// that has entered the call runs
//
//	for i := range T + l.MaxSkew() {
//		for j, a := range actions {
//			t := i - a.Skew
//			if t < 0 || t >= T { continue }
//			wait for all a.Waits; do a on tile t; if a.Signal { publish l.Value(rank, j, t) }
//		}
//	}
//	wait for all Finish; publish l.End(T)
//
// and has one progress counter that only grows. Values are relative to the
// counter's base at the start of the call: 1 says that the rank has arrived,
// so that its buffers may be touched. Because the order of actions is fixed,
// a value published for one action covers all actions before it.
//
// An action is complete, and may be published, when its destinations hold
// the value and its sources may be overwritten. For a put that means two
// things: the receiver of the bytes sees the notification after the bytes,
// and other ranks are not notified before the source is free again.
//
// Tile t of scratch chunk s is slot t mod Depth of that chunk. Scratch is
// reused from call to call without a further wait, whatever the calls are, on
// these conditions:
//
//   - a rank arrives only after it has finished its previous call, and tells
//     ranks of other nodes, those in Told, only after all ranks of its own node
//     have arrived;
//   - it starts its first action only after all ranks of its node have arrived,
//     and those in Arrive, one of each other node that it puts to.
//
// So whoever touches a rank's scratch knows that nobody is at work there any
// more: whoever can load and store there has arrived, and that rank has itself
// waited for all that was put there, before it finished. On one node that means
// that no rank starts before every rank has arrived, also those that it does
// not touch: they may still be at work in its scratch. A barrier needs no
// arrival for what it promises; but its tokens are scratch too.
//
// Arrivals at a superset of these ranks will do as well, and so will a medium
// that maps more than Nodes says. With two sets of scratch, which calls use in
// turn, a rank need not hear of a call from other nodes: it is enough that a rank
// that it puts to has told it anything in the last call or in this one, since it
// does so after its node has finished the call before the last, which was the
// last in this set.
type Lowered struct {
	Plan *Plan
	// Nodes is the grouping that the programs run over: what is put to another
	// node travels a network. If it is nil, all ranks map each other's memory,
	// or none does where the programs need nothing mapped.
	Nodes Nodes
	Depth int // slots of each scratch chunk
	// Stride is the number of values that one iteration takes: the largest
	// number of actions of a program, and at least 1.
	Stride   int
	Programs []Program
}

// MaxSkew returns the largest skew of any program.
func (l *Lowered) MaxSkew() int {
	m := 0
	for i := range l.Programs {
		m = max(m, l.Programs[i].MaxSkew)
	}
	return m
}

// Arrived is the value, relative to base, that a rank publishes when it has
// entered the call and its buffers may be touched.
const Arrived = 1

// Value returns the value, relative to base, that the rank's counter reaches
// when the action is complete for the tile.
func (l *Lowered) Value(rank, action, tile int) uint64 {
	iteration := tile + l.Programs[rank].Actions[action].Skew
	return Arrived + uint64(iteration)*uint64(l.Stride) + uint64(action) + 1
}

// End returns the value, relative to base, that every rank publishes when it
// leaves a call of the given number of tiles. The next call's base is at
// least that.
func (l *Lowered) End(tiles int) uint64 {
	return Arrived + uint64(tiles+l.MaxSkew())*uint64(l.Stride)
}

// Lower is [LowerOver] with the grouping that the plan's reach demands: for a
// plan that needs nothing mapped, every rank is a node of its own; for any
// other, all are one. The former's programs run over any grouping.
func Lower(p *Plan, depth int) (*Lowered, error) { return LowerOver(p, depth, nil) }

// LowerOver cuts a plan into programs, with depth slots for each scratch chunk,
// for ranks that are grouped into nodes; nil is as in [Lower]. The plan must run
// over the grouping, see [Plan.ReachOver]; otherwise the error is a
// [*CheckError] of the kind [OutOfReach]. The plan must pass [Plan.Check]; Lower
// itself checks only the structure.
//
// Each rank keeps its steps in the plan's order. An action that depends on
// another rank's gets a larger skew than that one, so that the two ranks
// work on different tiles at the same time; where a scratch chunk lives too
// long for depth slots to allow that, the skews stay equal. Either way every
// wait is for an earlier iteration, or for an earlier step of the same
// iteration, so the programs cannot deadlock.
func LowerOver(p *Plan, depth int, nodes Nodes) (*Lowered, error) {
	if err := p.checkStructure(); err != nil {
		return nil, err
	}
	if err := p.checkOrder(); err != nil {
		return nil, err
	}
	if depth < 1 {
		return nil, p.fault(Malformed, -1, "depth is %d, want at least 1", depth)
	}
	if nodes == nil {
		nodes = p.Reach().nodes(p.Ranks)
	} else if detail := nodes.fault(p.Ranks); detail != "" {
		return nil, p.fault(Malformed, -1, "%s", detail)
	}
	for id := range p.Steps {
		s := &p.Steps[id]
		if q := s.stranger(nodes); q != nil && !s.isPutAcross(nodes) {
			return nil, p.fault(OutOfReach, id, "reaches %v, of another node, otherwise than by a put into scratch", *q)
		}
	}
	lo := &lowering{p: p, nodes: nodes, depth: depth, action: make([]int, len(p.Steps)), reuse: reuses(p)}
	lo.skews()
	l := &Lowered{Plan: p, Nodes: nodes, Depth: depth, Stride: 1, Programs: make([]Program, p.Ranks)}
	for r := range l.Programs {
		l.Programs[r].Rank = r
	}
	for id := range p.Steps {
		s := &p.Steps[id]
		prog := &l.Programs[s.Rank]
		lo.action[id] = len(prog.Actions)
		prog.Actions = append(prog.Actions, Action{
			Op: s.Op, Dsts: s.Dsts, Srcs: s.Srcs, Last: s.Last, Step: StepID(id), Skew: lo.skew[id],
		})
		prog.MaxSkew = max(prog.MaxSkew, lo.skew[id])
		l.Stride = max(l.Stride, len(prog.Actions))
	}
	lo.waits(l)
	notify(l)
	arrivals(l)
	return l, nil
}

// A lowering is the state of Lower: what it has found out about each step.
type lowering struct {
	p      *Plan
	nodes  Nodes
	depth  int
	reuse  []reuse
	skew   []int // by step
	action []int // by step: its index in its rank's program
}

// A reuse says that the first writer of a scratch chunk must come after the
// last users of the tile that had the same slot.
type reuse struct {
	writer StepID
	users  []StepID
}

// reuses returns, for each scratch chunk, its first writer and the steps
// that touch its last value. All other steps that touch the chunk lie
// between these two by the plan's own dependencies.
func reuses(p *Plan) []reuse {
	deps := newTracker(p)
	for id := range p.Steps {
		deps.add(StepID(id), p.Steps[id].Srcs, p.Steps[id].Dsts)
	}
	var rs []reuse
	for _, c := range deps.order {
		e := deps.cells[c]
		if !c.scratch || !e.written {
			continue
		}
		users := slices.Clone(e.readers)
		if len(users) == 0 {
			users = []StepID{e.writer}
		}
		rs = append(rs, reuse{e.first, users})
	}
	return rs
}

// arrivals fills in Arrive and Told. Whichever rank of another node tells it,
// all of that node have arrived, so one is enough: of those that the rank puts
// to, the one whose turn it is, so that not all wait for the same.
func arrivals(l *Lowered) {
	for r := range l.Programs {
		to := map[int][]int{} // by node
		for j := range l.Programs[r].Actions {
			for _, q := range l.Programs[r].Actions[j].Dsts {
				k := l.Nodes[q.Rank]
				if i, ok := slices.BinarySearch(to[k], q.Rank); !ok && k != l.Nodes[r] {
					to[k] = slices.Insert(to[k], i, q.Rank)
				}
			}
		}
		for _, ranks := range to {
			q := ranks[r%len(ranks)]
			l.Programs[r].Arrive = append(l.Programs[r].Arrive, q)
			l.Programs[q].Told = append(l.Programs[q].Told, r) // ascending, as r is
		}
		slices.Sort(l.Programs[r].Arrive)
	}
}

// notify fills in Signal and Peers from the waits.
func notify(l *Lowered) {
	tell := func(rank int, w Wait) {
		a := &l.Programs[w.Rank].Actions[w.Action]
		a.Signal = true
		if i, ok := slices.BinarySearch(a.Peers, rank); !ok {
			a.Peers = slices.Insert(a.Peers, i, rank)
		}
	}
	for r := range l.Programs {
		prog := &l.Programs[r]
		for j := range prog.Actions {
			for _, w := range prog.Actions[j].Waits {
				tell(r, w)
			}
		}
		for _, w := range prog.Finish {
			tell(r, w)
		}
	}
}

// String returns the wait as "rank.action", with the lag where there is one.
func (w Wait) String() string {
	if w.Lag == 0 {
		return fmt.Sprintf("%d.%d", w.Rank, w.Action)
	}
	return fmt.Sprintf("%d.%d-%d", w.Rank, w.Action, w.Lag)
}
