package plan

import "slices"

// A cell is memory that steps conflict over. Places in In and Out share one
// cell where a caller may pass the same memory for both.
type cell struct {
	rank    int
	scratch bool
	number  int
}

func (p *Plan) cellOf(q Place) cell {
	if q.Buf == Scratch {
		return cell{q.Rank, true, q.Chunk}
	}
	return cell{q.Rank, false, p.cell(q)}
}

// An epoch is the state of a cell in a global order of steps: who wrote it
// last, and who has read that value since.
type epoch struct {
	written bool
	writer  StepID
	readers []StepID
	first   StepID // the first writer of all
}

// A tracker derives dependencies from a global order of steps.
type tracker struct {
	p     *Plan
	cells map[cell]*epoch
	order []cell // in order of first use, to iterate deterministically
}

func newTracker(p *Plan) *tracker { return &tracker{p: p, cells: map[cell]*epoch{}} }

func (t *tracker) at(q Place) *epoch {
	c := t.p.cellOf(q)
	e := t.cells[c]
	if e == nil {
		e = &epoch{}
		t.cells[c] = e
		t.order = append(t.order, c)
	}
	return e
}

// after returns, in ascending order, the steps that must precede a step with
// these places: the last writer of each source, and for each destination its
// readers since the last write or, where there are none, that writer. A
// reader has itself waited for the writer, so naming it is enough.
func (t *tracker) after(srcs, dsts []Place) []StepID {
	var ids []StepID
	for _, p := range srcs {
		if e := t.at(p); e.written {
			ids = append(ids, e.writer)
		}
	}
	for _, p := range dsts {
		e := t.at(p)
		if len(e.readers) > 0 {
			ids = append(ids, e.readers...)
		} else if e.written {
			ids = append(ids, e.writer)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// add records that step id has run.
func (t *tracker) add(id StepID, srcs, dsts []Place) {
	for _, p := range srcs {
		e := t.at(p)
		e.readers = append(e.readers, id)
	}
	for _, p := range dsts {
		e := t.at(p)
		if !e.written {
			e.written, e.first = true, id
		}
		e.writer = id
		e.readers = e.readers[:0]
	}
}
