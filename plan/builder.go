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
type Builder struct {
	p    Plan
	deps *tracker
	err  error
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
	b.deps.add(id, s.Srcs, s.Dsts)
	b.p.Steps = append(b.p.Steps, s)
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
