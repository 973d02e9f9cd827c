package plan

import (
	"fmt"
	"slices"
)

// Check proves the plan itself, before any lowering:
//
//   - structure: every field is in range, every step follows its After;
//   - order: After names at least the steps that the places demand, with In
//     and Out of a chunk taken as the same memory;
//   - values: nothing is read before it is written, no value takes a
//     contribution twice, and Last marks exactly the steps that complete a
//     value;
//   - result: the postcondition of the collective, both when In and Out are
//     different memory and when they are the same; and all ranks combine a
//     chunk in the same order, so that their results are the same to the bit.
//
// The error is a [*CheckError].
func (p *Plan) Check() error {
	if err := p.checkStructure(); err != nil {
		return err
	}
	if err := p.checkOrder(); err != nil {
		return err
	}
	if err := p.evaluate(p.checkLast); err != nil {
		return err
	}
	return nil
}

func (p *Plan) fault(k Kind, id int, format string, args ...any) *CheckError {
	e := &CheckError{Plan: p.Name, Kind: k, Rank: -1, Step: id, Action: -1, Tile: -1, Detail: fmt.Sprintf(format, args...)}
	if id >= 0 {
		e.Rank = p.Steps[id].Rank
	}
	return e
}

func (p *Plan) checkHeader() error {
	bad := func(format string, args ...any) error { return p.fault(Malformed, -1, format, args...) }
	switch {
	case !validName(p.Name):
		return bad("the name %q is not made of letters, digits and -_./", p.Name)
	case p.Collective >= numCollectives:
		return bad("unknown %v", p.Collective)
	case p.Ranks < 1 || p.Ranks > MaxRanks:
		return bad("%d ranks, want 1 to %d", p.Ranks, MaxRanks)
	case p.Root < 0 || p.Root >= p.Ranks || p.Root > 0 && !p.Collective.Rooted():
		return bad("%v with root %d of %d ranks", p.Collective, p.Root, p.Ranks)
	case p.Chunks < 1 || p.Chunks > MaxChunks:
		return bad("%d chunks, want 1 to %d", p.Chunks, MaxChunks)
	case p.Collective == Barrier && p.Chunks != 1:
		return bad("%d chunks, a barrier has 1", p.Chunks)
	case p.Scratch < 0 || p.Scratch > MaxChunks:
		return bad("%d scratch chunks, want 0 to %d", p.Scratch, MaxChunks)
	case p.Ranks*max(p.cells(), p.Scratch) > MaxCells:
		return bad("%d chunks over all ranks, want at most %d", p.Ranks*max(p.cells(), p.Scratch), MaxCells)
	case len(p.Steps) > MaxSteps:
		return bad("%d steps, want at most %d", len(p.Steps), MaxSteps)
	}
	return nil
}

func validName(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == '/':
		default:
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// stepFault returns what is wrong with the shape of a step, or "".
func (p *Plan) stepFault(s *Step) string {
	switch {
	case s.Rank < 0 || s.Rank >= p.Ranks:
		return fmt.Sprintf("rank %d is not among %d ranks", s.Rank, p.Ranks)
	case s.Op >= numOps:
		return fmt.Sprintf("unknown %v", s.Op)
	case s.Op == Copy && len(s.Srcs) != 1:
		return fmt.Sprintf("a copy has 1 source, not %d", len(s.Srcs))
	case s.Op == Reduce && len(s.Srcs) < 2:
		return fmt.Sprintf("a reduce has 2 or more sources, not %d", len(s.Srcs))
	case len(s.Dsts) == 0:
		return "no destination"
	case max(len(s.Srcs), len(s.Dsts)) > MaxPlaces:
		return fmt.Sprintf("%d sources and %d destinations, want at most %d", len(s.Srcs), len(s.Dsts), MaxPlaces)
	}
	for _, q := range s.Srcs {
		if d := p.placeFault(q); d != "" {
			return d
		}
	}
	for i, q := range s.Dsts {
		if d := p.placeFault(q); d != "" {
			return d
		}
		if q.Buf == In {
			return fmt.Sprintf("writes %v; In is never written", q)
		}
		if slices.Contains(s.Dsts[:i], q) {
			return fmt.Sprintf("writes %v twice", q)
		}
	}
	if s.Op == Copy && slices.Contains(s.Dsts, s.Srcs[0]) {
		return fmt.Sprintf("copies %v to itself", s.Srcs[0])
	}
	return ""
}

// afterFault returns what is wrong with the After of step id, or "".
func afterFault(s *Step, id int) string {
	for i, a := range s.After {
		if a < 0 || int(a) >= id {
			return fmt.Sprintf("after %d, which is no earlier step", a)
		}
		if i > 0 && s.After[i-1] >= a {
			return fmt.Sprintf("after %d %d: not in ascending order", s.After[i-1], a)
		}
	}
	return ""
}

func (p *Plan) placeFault(q Place) string {
	switch {
	case q.Buf >= numBufs:
		return fmt.Sprintf("unknown %v", q.Buf)
	case q.Rank < 0 || q.Rank >= p.Ranks:
		return fmt.Sprintf("%v: rank not among %d ranks", q, p.Ranks)
	}
	if limit := p.chunks(q.Rank, q.Buf); q.Chunk < 0 || q.Chunk >= limit {
		return fmt.Sprintf("%v: chunk not among %d", q, limit)
	}
	return ""
}

func (p *Plan) checkStructure() error {
	if err := p.checkHeader(); err != nil {
		return err
	}
	for id := range p.Steps {
		s := &p.Steps[id]
		if d := p.stepFault(s); d != "" {
			return p.fault(Malformed, id, "%s", d)
		}
		if d := afterFault(s, id); d != "" {
			return p.fault(Malformed, id, "%s", d)
		}
	}
	return nil
}

// checkOrder shows that After names every direct dependency. More is
// allowed: an author may order steps that share no place.
func (p *Plan) checkOrder() error {
	deps := newTracker(p)
	for id := range p.Steps {
		s := &p.Steps[id]
		for _, a := range deps.after(s.Srcs, s.Dsts) {
			if _, ok := slices.BinarySearch(s.After, a); !ok {
				return p.fault(Unordered, id, "must come after step %d", a)
			}
		}
		deps.add(StepID(id), s.Srcs, s.Dsts)
	}
	return nil
}

func (p *Plan) checkLast(id StepID, complete bool) *CheckError {
	if last := p.Steps[id].Last; last != complete {
		return p.fault(WrongResult, int(id), "last is %v, but complete is %v", last, complete)
	}
	return nil
}

// evaluate runs the steps symbolically in their global order, which by
// checkOrder stands for every order, once with In and Out apart and once
// with In and Out the same memory, and checks the postcondition. It calls
// visit for every step with whether it is a Reduce that completes a value.
func (p *Plan) evaluate(visit func(StepID, bool) *CheckError) error {
	vals := newValues(p.Ranks, p.Collective)
	mem := newMemory(p, vals)
	for id := range p.Steps {
		s := &p.Steps[id]
		var result [2]value // both before the first store: a step may write what it reads
		for i, inPlace := range []bool{false, true} {
			v, k, detail := mem.result(s.Srcs, inPlace)
			if detail != "" {
				return p.fault(k, id, "%s%s", detail, where(inPlace))
			}
			result[i] = v
		}
		for i, inPlace := range []bool{false, true} {
			for _, d := range s.Dsts {
				mem.store(d, inPlace, result[i])
			}
		}
		complete := s.Op == Reduce && p.Collective != Barrier && vals.complete(result[0])
		if err := visit(StepID(id), complete); err != nil {
			return err
		}
	}
	if p.Collective == Barrier {
		return p.checkBarrier()
	}
	if k, _, detail := mem.wrong(); detail != "" {
		return p.fault(k, -1, "%s", detail)
	}
	return nil
}

func where(inPlace bool) string {
	if inPlace {
		return " (in place)"
	}
	return " (out of place)"
}

// checkBarrier shows that from some step of each rank an After path leads to
// a step of every other: who takes that step knows that all have started.
func (p *Plan) checkBarrier() error {
	if p.Ranks == 1 {
		return nil
	}
	words := (p.Ranks + 63) / 64
	heard := make([]uint64, (len(p.Steps)+p.Ranks)*words)
	at := func(i int) []uint64 { return heard[i*words : (i+1)*words] }
	for id := range p.Steps {
		s := &p.Steps[id]
		mine := at(id)
		mine[s.Rank/64] |= 1 << (s.Rank % 64)
		for _, a := range s.After {
			or(mine, at(int(a)))
		}
		or(at(len(p.Steps)+s.Rank), mine)
	}
	for r := range p.Ranks {
		known := at(len(p.Steps) + r)
		for q := range p.Ranks {
			if q != r && known[q/64]&(1<<(q%64)) == 0 {
				return p.fault(NotSynchronized, -1, "rank %d may leave before rank %d has entered", r, q)
			}
		}
	}
	return nil
}

func or(dst, src []uint64) {
	for i := range dst {
		dst[i] |= src[i]
	}
}

// A memory is the symbolic content of all ranks' buffers, for one tile and
// twice: with In and Out apart, and in place.
type memory struct {
	p       *Plan
	vals    *values
	cells   int        // of a rank
	user    [2][]value // by inPlace and cell; Out, or In and Out where they are one
	scratch [2][]value
}

func newMemory(p *Plan, vals *values) *memory {
	m := &memory{p: p, vals: vals, cells: p.cells()}
	for i := range 2 {
		m.user[i] = unwrittenValues(p.Ranks * m.cells)
		m.scratch[i] = unwrittenValues(p.Ranks * p.Scratch)
	}
	for r := range p.Ranks {
		for c := range p.chunks(r, In) {
			m.user[1][m.at(In.At(r, c))] = vals.input(r, p.source(r, c))
		}
	}
	return m
}

func unwrittenValues(n int) []value {
	vs := make([]value, n)
	for i := range vs {
		vs[i] = unwritten
	}
	return vs
}

// at returns the index of a place of In or Out in user.
func (m *memory) at(q Place) int { return q.Rank*m.cells + m.p.cell(q) }

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *memory) load(q Place, inPlace bool) value {
	i := index(inPlace)
	switch {
	case q.Buf == Scratch:
		return m.scratch[i][q.Rank*m.p.Scratch+q.Chunk]
	case q.Buf == In && !inPlace:
		return m.vals.input(q.Rank, m.p.source(q.Rank, q.Chunk))
	}
	return m.user[i][m.at(q)]
}

func (m *memory) store(q Place, inPlace bool, v value) {
	i := index(inPlace)
	if q.Buf == Scratch {
		m.scratch[i][q.Rank*m.p.Scratch+q.Chunk] = v
	} else {
		m.user[i][m.at(q)] = v
	}
}

// result returns the value of a step with these sources, or what is wrong.
func (m *memory) result(srcs []Place, inPlace bool) (value, Kind, string) {
	acc := unwritten
	for i, q := range srcs {
		v := m.load(q, inPlace)
		if v == unwritten {
			return v, Unwritten, fmt.Sprintf("reads %v, which nothing has written", q)
		}
		if q.Buf == In && m.user[0][m.at(q)] != unwritten {
			return v, Unwritten, fmt.Sprintf("reads %v after Out was written there", q)
		}
		if i == 0 {
			acc = v
			continue
		}
		u, why := m.vals.union(acc, v)
		if why != "" {
			return u, WrongResult, fmt.Sprintf("%s with %v", why, q)
		}
		acc = u
	}
	return acc, 0, ""
}

// wrong returns what the collective must not leave in some rank's Out: the
// kind, the rank and the detail, which is "" if all is well.
func (m *memory) wrong() (k Kind, rank int, detail string) {
	for i, inPlace := range []bool{false, true} {
		first := map[datum]Place{} // who holds the reduction of a datum
		for r := range m.p.Ranks {
			for c := range m.p.chunks(r, Out) {
				out := Out.At(r, c)
				v := m.user[i][m.at(out)]
				if detail := m.fault(out, v); detail != "" {
					return WrongResult, r, out.String() + " " + detail + where(inPlace)
				}
				d := m.vals.datum[v]
				if other, ok := first[d]; !ok {
					first[d] = out
				} else if m.user[i][m.at(other)] != v {
					return NotIdentical, r, fmt.Sprintf("%v and %v combine in different orders%s", other, out, where(inPlace))
				}
			}
		}
	}
	return 0, -1, ""
}

// fault returns what is wrong with the final value of a place in Out, or "".
func (m *memory) fault(out Place, v value) string {
	d, from := m.p.result(out.Rank, out.Chunk)
	switch {
	case v == unwritten:
		return "is never written"
	case m.vals.datum[v] != d:
		return fmt.Sprintf("holds %v, not %v", m.vals.datum[v], d)
	case from < 0 && !m.vals.complete(v):
		return fmt.Sprintf("lacks the contribution of rank %d", m.vals.missing(v))
	case from >= 0 && v != m.vals.input(from, d):
		return fmt.Sprintf("is not the contribution of rank %d", from)
	}
	return ""
}
