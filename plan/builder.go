package plan

import (
	"fmt"
	"slices"
)

// A Builder authors a plan in a global view: the author names places of any
// ranks in the order in which things happen, and the builder derives what
// each step must come after. A scratch chunk exists from its first use on.
//
// A plan must be valid in place as well as out of place, so places of In and
// Out that are one memory in place count as the same, and reading In after Out
// was written there is a mistake. The first mistake is kept and returned by [Builder.Plan]; what
// follows it is ignored.
//
// Over a grouping of the ranks, see [NewOver], it holds every step to what is
// within reach.
type Builder struct {
	p     Plan
	nodes Nodes // nil: anything is within reach
	deps  *tracker
	err   error
}

// NewBuilder returns a builder of an empty plan, with the given number of
// chunks in a block.
func NewBuilder(name string, collective Collective, ranks, chunks int) *Builder {
	return NewRooted(name, collective, ranks, 0, chunks)
}

// NewRooted is NewBuilder for a collective that has a root.
func NewRooted(name string, collective Collective, ranks, root, chunks int) *Builder {
	b := &Builder{p: Plan{Name: name, Collective: collective, Ranks: ranks, Root: root, Chunks: chunks}}
	b.deps = newTracker(&b.p)
	if err := b.p.checkHeader(); err != nil {
		b.err = err
	}
	return b
}

// NewOver is NewRooted for a plan that runs over the grouping, in the sense of
// [Plan.ReachOver]. A step that is not within reach is a mistake. What a put
// brings from another node, the rank whose memory it is must be the first to
// use: it alone is told that the bytes are there. Others of its node come after
// that use, also where they only read.
func NewOver(name string, collective Collective, nodes Nodes, root, chunks int) *Builder {
	b := NewRooted(name, collective, len(nodes), root, chunks)
	b.nodes = nodes
	if detail := nodes.fault(len(nodes)); detail != "" && b.err == nil {
		b.err = b.p.fault(Malformed, -1, "%s", detail)
	}
	return b
}

// Copy lets rank copy src to every one of dsts.
func (b *Builder) Copy(rank int, src Place, dsts ...Place) {
	b.add(rank, Copy, dsts, []Place{src})
}

// Reduce lets rank combine srcs, in this order, and write the result to
// every one of dsts.
func (b *Builder) Reduce(rank int, dsts []Place, srcs ...Place) {
	b.add(rank, Reduce, dsts, srcs)
}

func (b *Builder) add(rank int, op Op, dsts, srcs []Place) {
	if b.err != nil {
		return
	}
	id := StepID(len(b.p.Steps))
	s := Step{Rank: rank, Op: op, Dsts: slices.Clone(dsts), Srcs: slices.Clone(srcs)}
	for _, places := range [][]Place{srcs, dsts} {
		for _, p := range places {
			if p.Buf == Scratch && p.Chunk < MaxChunks {
				b.p.Scratch = max(b.p.Scratch, p.Chunk+1)
			}
		}
	}
	if id >= MaxSteps {
		b.fail(id, "more than %d steps", MaxSteps)
		return
	}
	if detail := b.p.stepFault(&s); detail != "" {
		b.fail(id, "%s", detail)
		return
	}
	for _, p := range s.Srcs {
		switch written := b.deps.at(p).written; {
		case p.Buf == In && written:
			b.fail(id, "reads %v after Out was written there, which may be the same memory", p)
			return
		case p.Buf != In && !written:
			b.fail(id, "reads %v, which nothing has written", p)
			return
		}
	}
	s.After = b.deps.after(s.Srcs, s.Dsts)
	if b.nodes != nil {
		if detail := b.over(&s); detail != "" {
			b.fail(id, "%s", detail)
			return
		}
	}
	b.deps.add(id, s.Srcs, s.Dsts)
	b.p.Steps = append(b.p.Steps, s)
}

// over holds a step to the grouping: it is within reach, and comes after who is
// told that the bytes from another node are there. It returns what is wrong.
func (b *Builder) over(s *Step) string {
	if q := s.stranger(b.nodes); q != nil && !s.isPutAcross(b.nodes) {
		return fmt.Sprintf("rank %d reaches %v, of another node, only by a put into scratch", s.Rank, *q)
	}
	for _, places := range [][]Place{s.Srcs, s.Dsts} {
		for _, q := range places {
			if q.Buf != Scratch || q.Rank == s.Rank {
				continue
			}
			e := b.deps.at(q)
			if !e.written || !b.p.Steps[e.writer].isPutAcross(b.nodes) {
				continue
			}
			i := slices.IndexFunc(e.readers, func(id StepID) bool { return b.p.Steps[id].Rank == q.Rank })
			if i < 0 {
				return fmt.Sprintf("rank %d uses %v, which came from another node, before rank %d has", s.Rank, q, q.Rank)
			}
			if at, ok := slices.BinarySearch(s.After, e.readers[i]); !ok {
				s.After = slices.Insert(s.After, at, e.readers[i])
			}
		}
	}
	return ""
}

func (b *Builder) fail(id StepID, format string, args ...any) {
	b.err = &BuildError{b.p.Name, id, fmt.Sprintf(format, args...)}
}

// Err returns the first mistake, or nil.
func (b *Builder) Err() error { return b.err }

// Plan returns the plan, with Last set on every Reduce whose result holds
// all contributions. It returns the first mistake made, or what
// [Plan.Check] says.
func (b *Builder) Plan() (*Plan, error) {
	if b.err != nil {
		return nil, b.err
	}
	p := b.p
	p.Steps = slices.Clone(p.Steps)
	if err := p.evaluate(func(id StepID, complete bool) *CheckError {
		p.Steps[id].Last = complete
		return nil
	}); err != nil {
		return nil, err
	}
	return &p, nil
}
