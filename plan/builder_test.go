package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// pair returns an allreduce between two ranks: rank 0 reduces what rank 1
// puts into its scratch, and puts the sum into rank 1's.
func pair(t testing.TB) *plan.Plan {
	t.Helper()
	b := plan.NewBuilder("allreduce/pair", plan.AllReduce, 2, 1)
	b.Copy(1, plan.In.At(1, 0), plan.Scratch.At(0, 0))
	b.Reduce(0, []plan.Place{plan.Out.At(0, 0)}, plan.In.At(0, 0), plan.Scratch.At(0, 0))
	b.Copy(0, plan.Out.At(0, 0), plan.Scratch.At(1, 0))
	b.Copy(1, plan.Scratch.At(1, 0), plan.Out.At(1, 0))
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBuilderDerives(t *testing.T) {
	p := pair(t)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	if p.Scratch != 1 {
		t.Errorf("scratch is %d, want 1", p.Scratch)
	}
	// The last step follows the first: In and Out of rank 1 may be one.
	want := [][]plan.StepID{nil, {0}, {1}, {0, 2}}
	for id, s := range p.Steps {
		if !slices.Equal(s.After, want[id]) {
			t.Errorf("step %d is after %v, want %v", id, s.After, want[id])
		}
		if s.Last != (id == 1) {
			t.Errorf("step %d: last is %v", id, s.Last)
		}
	}
	if got, want := p.Reach(), (plan.Reach{PeerPut: true}); got != want {
		t.Errorf("reach is %+v, want %+v", got, want)
	}
}

func TestBuilderMistakes(t *testing.T) {
	in, out, scratch := plan.In.At, plan.Out.At, plan.Scratch.At
	for _, c := range []struct {
		want  string
		build func(b *plan.Builder)
	}{
		{"rank 2 is not among", func(b *plan.Builder) { b.Copy(2, in(0, 0), out(0, 0)) }},
		{"rank not among", func(b *plan.Builder) { b.Copy(0, in(2, 0), out(0, 0)) }},
		{"chunk not among", func(b *plan.Builder) { b.Copy(0, in(0, 1), out(0, 0)) }},
		{"chunk not among", func(b *plan.Builder) { b.Copy(0, in(0, 0), scratch(0, -1)) }},
		{"chunk not among", func(b *plan.Builder) { b.Copy(0, in(0, 0), scratch(0, plan.MaxChunks)) }},
		{"In is never written", func(b *plan.Builder) { b.Copy(0, in(1, 0), in(0, 0)) }},
		{"no destination", func(b *plan.Builder) { b.Copy(0, in(0, 0)) }},
		{"twice", func(b *plan.Builder) { b.Copy(0, in(0, 0), out(0, 0), out(0, 0)) }},
		{"2 or more sources", func(b *plan.Builder) { b.Reduce(0, []plan.Place{out(0, 0)}, in(0, 0)) }},
		{"nothing has written", func(b *plan.Builder) { b.Copy(0, scratch(0, 0), out(0, 0)) }},
		{"nothing has written", func(b *plan.Builder) { b.Copy(0, out(0, 0), out(1, 0)) }},
		{"to itself", func(b *plan.Builder) {
			b.Copy(0, in(0, 0), scratch(0, 0))
			b.Copy(0, scratch(0, 0), scratch(0, 0))
		}},
		{"may be the same memory", func(b *plan.Builder) {
			b.Copy(0, in(0, 0), out(1, 0))
			b.Copy(1, in(1, 0), out(0, 0))
		}},
		{"contribution twice", func(b *plan.Builder) { b.Reduce(0, []plan.Place{out(0, 0)}, in(0, 0), in(0, 0)) }},
		{"never written", func(b *plan.Builder) { b.Reduce(0, []plan.Place{out(0, 0)}, in(0, 0), in(1, 0)) }},
		{"lacks the contribution of rank 1", func(b *plan.Builder) {
			b.Copy(0, in(0, 0), out(0, 0))
			b.Copy(1, in(1, 0), out(1, 0))
		}},
	} {
		b := plan.NewBuilder("allreduce/mistake", plan.AllReduce, 2, 1)
		c.build(b)
		_, err := b.Plan()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
		var be *plan.BuildError
		var ce *plan.CheckError
		if !errors.As(err, &be) && !errors.As(err, &ce) {
			t.Errorf("%v is a %T", err, err)
		}
	}
}

func TestBuilderKeepsFirstMistake(t *testing.T) {
	b := plan.NewBuilder("allreduce/mistake", plan.AllReduce, 2, 1)
	b.Copy(0, plan.In.At(0, 0), plan.Out.At(0, 0))
	b.Copy(5, plan.In.At(0, 0), plan.Out.At(0, 0))
	b.Copy(6, plan.In.At(0, 0), plan.Out.At(0, 0))
	_, err := b.Plan()
	var be *plan.BuildError
	if !errors.As(err, &be) || be.Step != 1 || !strings.Contains(be.Detail, "rank 5") {
		t.Errorf("got %v", err)
	}
}

func TestBuilderHeader(t *testing.T) {
	if _, err := plan.NewBuilder("allreduce/none", plan.AllReduce, 0, 1).Plan(); err == nil {
		t.Error("0 ranks are accepted")
	}
	if _, err := plan.NewBuilder("two words", plan.AllReduce, 1, 1).Plan(); err == nil {
		t.Error("a name with a space is accepted")
	}
	if _, err := plan.NewBuilder("barrier/two", plan.Barrier, 2, 2).Plan(); err == nil {
		t.Error("a barrier with two chunks is accepted")
	}
}

func TestReach(t *testing.T) {
	in, out, scratch := plan.In.At, plan.Out.At, plan.Scratch.At
	for _, c := range []struct {
		name               string
		step               plan.Step
		want               plan.Reach
		put, inner, attach bool
	}{
		{"local", plan.Step{Rank: 0, Srcs: []plan.Place{in(0, 0)}, Dsts: []plan.Place{out(0, 0)}},
			plan.Reach{}, true, true, true},
		{"put into scratch", plan.Step{Rank: 0, Srcs: []plan.Place{in(0, 0)}, Dsts: []plan.Place{scratch(1, 0)}},
			plan.Reach{PeerPut: true}, true, true, true},
		{"put into out", plan.Step{Rank: 0, Srcs: []plan.Place{in(0, 0)}, Dsts: []plan.Place{out(1, 0)}},
			plan.Reach{PeerPut: true, PeerData: true}, false, false, true},
		{"read scratch", plan.Step{Rank: 0, Srcs: []plan.Place{scratch(1, 0)}, Dsts: []plan.Place{out(0, 0)}},
			plan.Reach{PeerScratchRead: true}, false, true, true},
		{"store to two", plan.Step{Rank: 0, Srcs: []plan.Place{in(0, 0)}, Dsts: []plan.Place{scratch(0, 0), scratch(1, 0)}},
			plan.Reach{PeerScratchRead: true}, false, true, true},
		{"reduce into scratch", plan.Step{Rank: 0, Op: plan.Reduce, Srcs: []plan.Place{in(0, 0), scratch(0, 0)}, Dsts: []plan.Place{scratch(1, 0)}},
			plan.Reach{PeerScratchRead: true}, false, true, true},
		{"read in", plan.Step{Rank: 0, Srcs: []plan.Place{in(1, 0)}, Dsts: []plan.Place{out(0, 0)}},
			plan.Reach{PeerData: true}, false, false, true},
		{"read and write", plan.Step{Rank: 0, Srcs: []plan.Place{scratch(1, 0)}, Dsts: []plan.Place{out(1, 0)}},
			plan.Reach{PeerData: true, PeerDataMapped: true, PeerScratchRead: true}, false, false, false},
		{"read in, store to two", plan.Step{Rank: 0, Srcs: []plan.Place{in(1, 0)}, Dsts: []plan.Place{out(0, 0), scratch(0, 0)}},
			plan.Reach{PeerData: true, PeerDataMapped: true}, false, false, false},
		{"store to two outs", plan.Step{Rank: 0, Srcs: []plan.Place{in(0, 0)}, Dsts: []plan.Place{out(0, 0), out(1, 0)}},
			plan.Reach{PeerData: true, PeerDataMapped: true}, false, false, false},
		{"within a peer", plan.Step{Rank: 0, Srcs: []plan.Place{in(1, 0)}, Dsts: []plan.Place{out(1, 0)}},
			plan.Reach{PeerData: true, PeerDataMapped: true}, false, false, false},
		{"reduce with a peer's in", plan.Step{Rank: 0, Op: plan.Reduce, Srcs: []plan.Place{in(0, 0), in(1, 0)}, Dsts: []plan.Place{out(0, 0)}},
			plan.Reach{PeerData: true, PeerDataMapped: true}, false, false, false},
		{"reduce into a peer's out", plan.Step{Rank: 0, Op: plan.Reduce, Srcs: []plan.Place{in(0, 0), scratch(0, 0)}, Dsts: []plan.Place{out(1, 0)}},
			plan.Reach{PeerData: true, PeerDataMapped: true}, false, false, false},
	} {
		p := &plan.Plan{Name: "x", Ranks: 2, Chunks: 1, Scratch: 1, Steps: []plan.Step{c.step}}
		got := p.Reach()
		if got != c.want || got.PutOnly() != c.put || got.ScratchOnly() != c.inner || got.AttachOnly() != c.attach {
			t.Errorf("%s: reach %+v, put only %v, scratch only %v, attach only %v", c.name, got, got.PutOnly(), got.ScratchOnly(), got.AttachOnly())
		}
	}
}
