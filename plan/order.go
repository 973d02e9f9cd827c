package plan

// RankOrder reports whether every reduction is one left fold over the ranks 0
// to n-1, in a single step:
//
//	((In of 0 + In of 1) + In of 2) + ... + In of n-1
//
// no matter which rank takes the step and where the contributions have been
// copied before. Results then depend neither on the algorithm nor on who
// reduces, and a type that is summed with more digits than it is stored with
// is rounded once. A plan that reduces nothing is in rank order.
//
// The plan must pass [Plan.Check].
func (p *Plan) RankOrder() bool {
	if !p.Collective.Reduces() {
		return true
	}
	vals := newValues(p.Ranks, p.Collective)
	mem := newMemory(p, vals)
	for id := range p.Steps {
		s := &p.Steps[id]
		if s.Op == Reduce {
			if len(s.Srcs) != p.Ranks {
				return false
			}
			for r, q := range s.Srcs {
				if v := mem.load(q, false); v == unwritten || v != vals.input(r, vals.datum[v]) {
					return false
				}
			}
		}
		v, _, detail := mem.result(s.Srcs, false)
		if detail != "" {
			return false
		}
		for _, d := range s.Dsts {
			mem.store(d, false, v)
		}
	}
	return true
}
