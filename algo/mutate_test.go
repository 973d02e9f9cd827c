package algo

import (
	"fmt"
	"slices"

	"github.com/tutti-go/tutti/plan"
)

// A mutant is lowered programs with one thing changed.
type mutant struct {
	kind string
	what string
	l    *plan.Lowered
}

func cloneLowered(l *plan.Lowered) *plan.Lowered {
	c := *l
	c.Programs = slices.Clone(l.Programs)
	for r := range c.Programs {
		prog := &c.Programs[r]
		prog.Finish = slices.Clone(prog.Finish)
		prog.Arrive, prog.Told = slices.Clone(prog.Arrive), slices.Clone(prog.Told)
		prog.Actions = slices.Clone(prog.Actions)
		for j := range prog.Actions {
			a := &prog.Actions[j]
			a.Dsts, a.Srcs = slices.Clone(a.Dsts), slices.Clone(a.Srcs)
			a.Waits, a.Peers = slices.Clone(a.Waits), slices.Clone(a.Peers)
		}
	}
	return &c
}

// renumber rewrites all waits for rank r by f; f returns -1 to drop one.
func renumber(l *plan.Lowered, r int, f func(action int) int) {
	rewrite := func(ws []plan.Wait) []plan.Wait {
		kept := ws[:0]
		for _, w := range ws {
			if w.Rank == r {
				if w.Action = f(w.Action); w.Action < 0 {
					continue
				}
			}
			kept = append(kept, w)
		}
		return kept
	}
	for q := range l.Programs {
		prog := &l.Programs[q]
		prog.Finish = rewrite(prog.Finish)
		for j := range prog.Actions {
			prog.Actions[j].Waits = rewrite(prog.Actions[j].Waits)
		}
	}
}

// mutants returns every program that one change to l gives.
func mutants(l *plan.Lowered) []mutant {
	var ms []mutant
	add := func(kind string, r, j int, change func(m *plan.Lowered)) {
		m := cloneLowered(l)
		change(m)
		for i := range m.Programs {
			prog := &m.Programs[i]
			prog.MaxSkew = 0
			for _, a := range prog.Actions {
				prog.MaxSkew = max(prog.MaxSkew, a.Skew)
			}
		}
		ms = append(ms, mutant{kind, fmt.Sprintf("%s, rank %d action %d", kind, r, j), m})
	}
	if l.Depth > 1 {
		add("reduce depth", -1, -1, func(m *plan.Lowered) { m.Depth-- })
	}
	for r := range l.Programs {
		prog := &l.Programs[r]
		for i := range prog.Finish {
			add("drop finish", r, i, func(m *plan.Lowered) {
				f := &m.Programs[r].Finish
				*f = slices.Delete(*f, i, i+1)
			})
		}
		for i := range prog.Arrive {
			add("drop arrival", r, i, func(m *plan.Lowered) {
				a := &m.Programs[r].Arrive
				*a = slices.Delete(*a, i, i+1)
			})
		}
		for i := range prog.Told {
			add("drop told", r, i, func(m *plan.Lowered) {
				t := &m.Programs[r].Told
				*t = slices.Delete(*t, i, i+1)
			})
		}
		for j := range prog.Actions {
			mutantsOfAction(l, r, j, func(kind string, change func(m *plan.Lowered, a *plan.Action)) {
				add(kind, r, j, func(m *plan.Lowered) { change(m, &m.Programs[r].Actions[j]) })
			})
		}
	}
	return ms
}

// chunksAt returns how many chunks the buffer of a place has.
func chunksAt(p *plan.Plan, q plan.Place) int {
	l := layoutOf(p.Collective, q.Rank, p.Root, p.Ranks)
	switch q.Buf {
	case plan.In:
		return l.in * p.Chunks
	case plan.Out:
		return l.out * p.Chunks
	}
	return p.Scratch
}

func mutantsOfAction(l *plan.Lowered, r, j int, add func(kind string, change func(m *plan.Lowered, a *plan.Action))) {
	prog := &l.Programs[r]
	a := &prog.Actions[j]
	add("drop action", func(m *plan.Lowered, _ *plan.Action) {
		p := &m.Programs[r]
		p.Actions = slices.Delete(p.Actions, j, j+1)
		renumber(m, r, func(k int) int {
			switch {
			case k == j:
				return -1
			case k > j:
				return k - 1
			}
			return k
		})
	})
	if j+1 < len(prog.Actions) {
		swap := func(m *plan.Lowered) {
			as := m.Programs[r].Actions
			as[j], as[j+1] = as[j+1], as[j]
		}
		add("swap actions", func(m *plan.Lowered, _ *plan.Action) {
			swap(m)
			renumber(m, r, func(k int) int {
				switch k {
				case j:
					return j + 1
				case j + 1:
					return j
				}
				return k
			})
		})
		add("swap actions, not their waiters", func(m *plan.Lowered, _ *plan.Action) {
			as := m.Programs[r].Actions
			swap(m)
			as[j].Signal, as[j+1].Signal = as[j+1].Signal, as[j].Signal
			as[j].Peers, as[j+1].Peers = as[j+1].Peers, as[j].Peers
		})
	}
	if a.Op == plan.Reduce {
		for i := range a.Srcs {
			add("double source", func(_ *plan.Lowered, a *plan.Action) { a.Srcs = append(a.Srcs, a.Srcs[i]) })
			add("drop source", func(_ *plan.Lowered, a *plan.Action) {
				if a.Srcs = slices.Delete(a.Srcs, i, i+1); len(a.Srcs) == 1 {
					a.Op = plan.Copy
				}
			})
			if i > 0 {
				add("swap sources", func(_ *plan.Lowered, a *plan.Action) { a.Srcs[i-1], a.Srcs[i] = a.Srcs[i], a.Srcs[i-1] })
			}
		}
		add("flip last", func(_ *plan.Lowered, a *plan.Action) { a.Last = !a.Last })
	}
	if len(a.Dsts) > 1 {
		for i := range a.Dsts {
			add("drop destination", func(_ *plan.Lowered, a *plan.Action) { a.Dsts = slices.Delete(a.Dsts, i, i+1) })
		}
	}
	for i, q := range a.Srcs {
		if n := chunksAt(l.Plan, q); n > 1 {
			add("change source chunk", func(_ *plan.Lowered, a *plan.Action) { a.Srcs[i].Chunk = (q.Chunk + 1) % n })
		}
	}
	for i, q := range a.Dsts {
		if n := chunksAt(l.Plan, q); n > 1 {
			add("change destination chunk", func(_ *plan.Lowered, a *plan.Action) { a.Dsts[i].Chunk = (q.Chunk + 1) % n })
		}
	}
	for i, w := range a.Waits {
		add("drop wait", func(_ *plan.Lowered, a *plan.Action) { a.Waits = slices.Delete(a.Waits, i, i+1) })
		add("lengthen lag", func(_ *plan.Lowered, a *plan.Action) { a.Waits[i].Lag++ })
		if w.Lag > 0 {
			add("shorten lag", func(_ *plan.Lowered, a *plan.Action) { a.Waits[i].Lag-- })
		}
		if w.Action > 0 {
			// With the notification, so that only the order is at stake.
			add("wait for the action before", func(m *plan.Lowered, a *plan.Action) {
				a.Waits[i].Action--
				notifyToo(m, r, a.Waits[i])
			})
		}
	}
	for i := range a.Peers {
		add("drop peer", func(_ *plan.Lowered, a *plan.Action) { a.Peers = slices.Delete(a.Peers, i, i+1) })
	}
	if a.Signal {
		add("drop signal", func(_ *plan.Lowered, a *plan.Action) { a.Signal = false })
	}
	add("raise skew", func(_ *plan.Lowered, a *plan.Action) { a.Skew++ })
	if a.Skew > 0 {
		add("lower skew", func(_ *plan.Lowered, a *plan.Action) { a.Skew-- })
	}
}

func notifyToo(l *plan.Lowered, r int, w plan.Wait) {
	a := &l.Programs[w.Rank].Actions[w.Action]
	a.Signal = true
	if i, ok := slices.BinarySearch(a.Peers, r); !ok {
		a.Peers = slices.Insert(a.Peers, i, r)
	}
}
