package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// Verify proves the programs as they are, without trusting Lower. For every
// number of tiles, and whether In and Out are the same memory or not:
//
//  1. No order of events deadlocks: the graph of program order and waits has
//     no cycle, and who is waited for notifies the waiter.
//  2. Any two accesses to the same memory, one of them a write, are ordered
//     by program order and waits. Memory is a chunk's tile of In and Out,
//     taken as one, and a slot of scratch. So nothing is read before it is
//     written, nor overwritten while a peer may still read it.
//  3. The values that this order defines satisfy the postcondition.
//  4. A rank returns only after the last access of any peer to its In and
//     Out.
//  5. Nobody reaches the memory of another node, in the sense of Nodes,
//     otherwise than by puts into scratch. What such a put brings is used only
//     after a wait, of the rank whose memory it is, for the rank that put it:
//     over a network, order learned from a third rank is not delivery.
//  6. The programs may follow any others in the same scratch, if all are proved
//     over one grouping or parts of it. In the call before, everybody of a
//     rank's node may have been at work in its scratch until he returned, and
//     all others may have put there. What a rank knows as it starts is that its own node
//     has arrived, and the nodes of those in Arrive. It touches only scratch of
//     these nodes. And no put from another node is still on its way when the
//     rank returns whose scratch it is for: it has waited for who puts.
//
// The proof is for all tile counts although it looks at Depth+1 tiles. It
// uses only those paths of happens-before that never go from a tile to an
// earlier one. Such a path between two tiles does not leave the range
// between them, so it exists in every call that has these tiles; and it can
// be shifted to any other tile. Conflicts exist within one tile, and in
// scratch between tiles that are Depth apart, from which those further apart
// follow. For (1), every wait must be for an earlier iteration, or for the
// same one, where the graph must have no cycle; so no number of iterations
// has one. The price is that Verify refuses some programs that would run,
// such as those that wait for a later iteration of a peer.
//
// The error is a [*CheckError]. Memory and time grow with the square of
// Depth and the number of ranks times the number of steps.
func (l *Lowered) Verify() error {
	if err := l.checkStructure(); err != nil {
		return err
	}
	if err := l.checkReach(); err != nil {
		return err
	}
	if err := l.checkArrivals(); err != nil {
		return err
	}
	if err := l.checkDeadlock(); err != nil {
		return err
	}
	v := newVerifier(l)
	for t := range l.Depth + 1 {
		if err := v.tile(t); err != nil {
			return err
		}
	}
	if err := v.finish(); err != nil {
		return err
	}
	return nil
}

func (l *Lowered) fault(k Kind, rank, action, tile int, format string, args ...any) *CheckError {
	e := &CheckError{Plan: l.Plan.Name, Kind: k, Rank: rank, Step: -1, Action: action, Tile: tile, Detail: fmt.Sprintf(format, args...)}
	if rank >= 0 && action >= 0 {
		e.Step = int(l.Programs[rank].Actions[action].Step)
	}
	return e
}

// maxActions keeps a position in a program within the 16 bits of a clock.
const maxActions = 1<<16 - 2

func (l *Lowered) checkStructure() error {
	p := l.Plan
	if err := p.checkHeader(); err != nil {
		return err
	}
	switch {
	case l.Depth < 1:
		return l.fault(Malformed, -1, -1, -1, "depth is %d, want at least 1", l.Depth)
	case l.Stride < 1:
		return l.fault(Malformed, -1, -1, -1, "stride is %d, want at least 1", l.Stride)
	case len(l.Programs) != p.Ranks:
		return l.fault(Malformed, -1, -1, -1, "%d programs for %d ranks", len(l.Programs), p.Ranks)
	}
	if l.Nodes != nil {
		if detail := l.Nodes.fault(p.Ranks); detail != "" {
			return l.fault(Malformed, -1, -1, -1, "%s", detail)
		}
	}
	for r := range l.Programs {
		prog := &l.Programs[r]
		switch {
		case prog.Rank != r:
			return l.fault(Malformed, r, -1, -1, "the program says rank %d", prog.Rank)
		case len(prog.Actions) > min(l.Stride, maxActions):
			return l.fault(Malformed, r, -1, -1, "%d actions, want at most %d", len(prog.Actions), min(l.Stride, maxActions))
		}
		for j := range prog.Actions {
			a := &prog.Actions[j]
			s := Step{Rank: r, Op: a.Op, Dsts: a.Dsts, Srcs: a.Srcs}
			if d := p.stepFault(&s); d != "" {
				return l.fault(Malformed, r, j, -1, "%s", d)
			}
			if a.Skew < 0 || a.Skew > prog.MaxSkew {
				return l.fault(Malformed, r, j, -1, "skew is %d, want 0 to %d", a.Skew, prog.MaxSkew)
			}
			for _, w := range a.Waits {
				if err := l.checkWait(r, j, w); err != nil {
					return err
				}
			}
		}
		for _, w := range prog.Finish {
			if err := l.checkWait(r, -1, w); err != nil {
				return err
			}
			if w.Lag != 0 {
				return l.fault(Malformed, r, -1, -1, "finish waits for %v; it is about the last tile and has no lag", w)
			}
		}
	}
	return nil
}

func (l *Lowered) checkWait(r, j int, w Wait) error {
	switch {
	case w.Rank < 0 || w.Rank >= len(l.Programs) || w.Rank == r:
		return l.fault(Malformed, r, j, -1, "waits for rank %d", w.Rank)
	case w.Action < 0 || w.Action >= len(l.Programs[w.Rank].Actions):
		return l.fault(Malformed, r, j, -1, "waits for %v, but rank %d has %d actions", w, w.Rank, len(l.Programs[w.Rank].Actions))
	case w.Lag < 0:
		return l.fault(Malformed, r, j, -1, "waits for %v: negative lag", w)
	}
	if a := &l.Programs[w.Rank].Actions[w.Action]; !a.Signal || !slices.Contains(a.Peers, r) {
		return l.fault(Unsignalled, r, j, -1, "waits for %v, which does not notify it", w)
	}
	return nil
}

// nodes returns the grouping that the programs run over.
func (l *Lowered) nodes() Nodes {
	if l.Nodes != nil {
		return l.Nodes
	}
	var r Reach
	_ = l.each(func(_ int, s *Step) error { r.add(s); return nil })
	return r.nodes(len(l.Programs))
}

// each calls f for every action of every rank, with its index in the program,
// until f returns an error, which it returns.
func (l *Lowered) each(f func(j int, s *Step) error) error {
	for r := range l.Programs {
		for j := range l.Programs[r].Actions {
			a := &l.Programs[r].Actions[j]
			if err := f(j, &Step{Rank: r, Op: a.Op, Dsts: a.Dsts, Srcs: a.Srcs}); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkReach shows that nodes reach each other only by puts into scratch.
func (l *Lowered) checkReach() error {
	nodes := l.nodes()
	return l.each(func(j int, s *Step) error {
		if q := s.stranger(nodes); q != nil && !s.isPutAcross(nodes) {
			return l.fault(OutOfReach, s.Rank, j, -1, "reaches %v, of another node, otherwise than by a put into scratch", *q)
		}
		return nil
	})
}

// checkArrivals shows that nobody can still be at work, in a call before, in
// scratch that a rank touches. As a rank starts it knows of the nodes in whose
// name somebody has told it that they have arrived, and of its own. Whoever
// could load and store there is of the node of that scratch; and what others put
// there has landed before its owner returned, which finish shows of any call.
func (l *Lowered) checkArrivals() error {
	nodes := l.nodes()
	arrived := make([]map[int]bool, len(l.Programs)) // by rank and node
	for r := range l.Programs {
		arrived[r] = map[int]bool{nodes[r]: true}
		for _, q := range l.Programs[r].Arrive {
			switch {
			case q < 0 || q >= len(l.Programs) || nodes.Together(q, r):
				return l.fault(Malformed, r, -1, -1, "waits for the arrival of rank %d, which is of no other node", q)
			case !slices.Contains(l.Programs[q].Told, r):
				return l.fault(Unsignalled, r, -1, -1, "waits for the arrival of rank %d, which does not tell it", q)
			}
			arrived[r][nodes[q]] = true
		}
	}
	return l.each(func(j int, s *Step) error {
		for _, places := range [][]Place{s.Srcs, s.Dsts} {
			for _, q := range places {
				if !arrived[s.Rank][nodes[q.Rank]] {
					return l.fault(NotArrived, s.Rank, j, -1, "touches %v, where others may be at work in the call before", q)
				}
			}
		}
		return nil
	})
}

// checkDeadlock shows that every wait is for an earlier iteration or for the
// same one, and that the latter form no cycle with program order. The
// iterations then complete one after the other.
func (l *Lowered) checkDeadlock() error {
	done := make([]int, len(l.Programs)) // actions of this iteration
	ready := func(r, j int) (Wait, bool) {
		a := &l.Programs[r].Actions[j]
		for _, w := range a.Waits {
			same := l.Programs[w.Rank].Actions[w.Action].Skew-w.Lag == a.Skew
			if same && done[w.Rank] <= w.Action {
				return w, false
			}
		}
		return Wait{}, true
	}
	for r := range l.Programs {
		for j := range l.Programs[r].Actions {
			a := &l.Programs[r].Actions[j]
			for _, w := range a.Waits {
				if ahead := l.Programs[w.Rank].Actions[w.Action].Skew - w.Lag - a.Skew; ahead > 0 {
					return l.fault(Deadlock, r, j, -1, "waits for %v, which is %d iterations later", w, ahead)
				}
			}
		}
	}
	for moved := true; moved; {
		moved = false
		for r := range done {
			for done[r] < len(l.Programs[r].Actions) {
				if _, ok := ready(r, done[r]); !ok {
					break
				}
				done[r]++
				moved = true
			}
		}
	}
	for r := range done {
		if done[r] < len(l.Programs[r].Actions) {
			w, _ := ready(r, done[r])
			return l.fault(Deadlock, r, done[r], -1, "waits for %v in a cycle", w)
		}
	}
	return nil
}

// A chain is the actions of a rank in the order in which the rank runs them
// for one tile: by skew, then by index.
func (prog *Program) chain() []int {
	c := make([]int, len(prog.Actions))
	for j := range c {
		c[j] = j
	}
	slices.SortStableFunc(c, func(a, b int) int { return cmp.Compare(prog.Actions[a].Skew, prog.Actions[b].Skew) })
	return c
}

// before reports whether the rank runs action x on tile t before action y on
// tile u.
func (prog *Program) before(x, t, y, u int) bool {
	i, j := t+prog.Actions[x].Skew, u+prog.Actions[y].Skew
	return i < j || i == j && x < y
}
