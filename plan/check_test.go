package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// kindOf fails the test unless err is a CheckError of the wanted kind.
func kindOf(t *testing.T, what string, err error, want plan.Kind) {
	t.Helper()
	var ce *plan.CheckError
	switch {
	case err == nil:
		t.Errorf("%s: accepted, want %v", what, want)
	case !errors.As(err, &ce):
		t.Errorf("%s: %v is a %T", what, err, err)
	case ce.Kind != want:
		t.Errorf("%s: %v, want %v", what, err, want)
	case strings.Contains(err.Error(), "\n"):
		t.Errorf("%s: %q has more than one line", what, err)
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		what   string
		want   plan.Kind
		change func(p *plan.Plan)
	}{
		{"no ranks", plan.Malformed, func(p *plan.Plan) { p.Ranks = 0 }},
		{"unknown collective", plan.Malformed, func(p *plan.Plan) { p.Collective = 99 }},
		{"unknown op", plan.Malformed, func(p *plan.Plan) { p.Steps[0].Op = 9 }},
		{"unknown buffer", plan.Malformed, func(p *plan.Plan) { p.Steps[0].Srcs[0].Buf = 9 }},
		{"after itself", plan.Malformed, func(p *plan.Plan) { p.Steps[2].After = []plan.StepID{2} }},
		{"after out of order", plan.Malformed, func(p *plan.Plan) { p.Steps[3].After = []plan.StepID{2, 0} }},
		{"in place forgotten", plan.Unordered, func(p *plan.Plan) { p.Steps[3].After = []plan.StepID{2} }},
		{"read too early", plan.Unwritten, func(p *plan.Plan) { p.Steps[1].Srcs[1] = plan.Scratch.At(1, 0) }},
		{"in after out", plan.Unwritten, func(p *plan.Plan) { p.Steps[2].Srcs[0] = plan.In.At(0, 0) }},
		{"contribution twice", plan.WrongResult, func(p *plan.Plan) {
			p.Steps[0].Srcs[0], p.Steps[0].After = plan.In.At(0, 0), nil
		}},
		{"last step missing", plan.WrongResult, func(p *plan.Plan) { p.Steps = p.Steps[:3] }},
		{"last not marked", plan.WrongResult, func(p *plan.Plan) { p.Steps[1].Last = false }},
	} {
		p := pair(t)
		c.change(p)
		kindOf(t, c.what, p.Check(), c.want)
	}
}

func TestCheckWantsSameOrder(t *testing.T) {
	b := plan.NewBuilder("allreduce/each-its-own", plan.AllReduce, 2, 1)
	for r := range 2 {
		b.Copy(r, plan.In.At(r, 0), plan.Scratch.At(1-r, 0))
	}
	for r := range 2 {
		b.Reduce(r, []plan.Place{plan.Out.At(r, 0)}, plan.In.At(r, 0), plan.Scratch.At(r, 0))
	}
	_, err := b.Plan()
	kindOf(t, "own first", err, plan.NotIdentical)
}

func TestCheckBarrier(t *testing.T) {
	b := plan.NewBuilder("barrier/half", plan.Barrier, 3, 1)
	for r := range 3 {
		b.Copy(r, plan.In.At(r, 0), plan.Scratch.At((r+1)%3, 0))
	}
	for r := range 3 {
		b.Copy(r, plan.Scratch.At(r, 0), plan.Out.At(r, 0))
	}
	_, err := b.Plan()
	kindOf(t, "a hop to the right", err, plan.NotSynchronized)
}

// lowerPair returns programs that belong to the caller: the plan under them
// is a new one for each call.
func lowerPair(t *testing.T) *plan.Lowered {
	t.Helper()
	l, err := plan.Lower(pair(t), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestVerifyRefuses(t *testing.T) {
	// rank 0: 0 reduce, 1 put;  rank 1: 0 put, 1 copy out.
	for _, c := range []struct {
		what   string
		want   plan.Kind
		change func(a, b []plan.Action, l *plan.Lowered)
	}{
		{"depth 0", plan.Malformed, func(a, b []plan.Action, l *plan.Lowered) { l.Depth = 0 }},
		{"stride too small", plan.Malformed, func(a, b []plan.Action, l *plan.Lowered) { l.Stride = 1 }},
		{"a rank too few", plan.Malformed, func(a, b []plan.Action, l *plan.Lowered) { l.Programs = l.Programs[:1] }},
		{"skew out of range", plan.Malformed, func(a, b []plan.Action, l *plan.Lowered) { b[1].Skew = 9 }},
		{"wait for itself", plan.Malformed, func(a, b []plan.Action, l *plan.Lowered) { a[1].Waits[0].Rank = 0 }},
		{"wait for nobody", plan.Malformed, func(a, b []plan.Action, l *plan.Lowered) { a[1].Waits[0].Rank = 2 }},
		{"wait for nothing", plan.Malformed, func(a, b []plan.Action, l *plan.Lowered) { a[1].Waits[0].Action = 2 }},
		{"wait for the future", plan.Malformed, func(a, b []plan.Action, l *plan.Lowered) { a[1].Waits[0].Lag = -1 }},
		{"no signal", plan.Unsignalled, func(a, b []plan.Action, l *plan.Lowered) { b[0].Signal = false }},
		{"signal to nobody", plan.Unsignalled, func(a, b []plan.Action, l *plan.Lowered) { b[0].Peers = nil }},
		{"a later iteration", plan.Deadlock, func(a, b []plan.Action, l *plan.Lowered) {
			b[1].Signal, b[1].Peers = true, []int{0}
			a[0].Waits = append(a[0].Waits, plan.Wait{Rank: 1, Action: 1})
		}},
		{"a cycle in one iteration", plan.Deadlock, func(a, b []plan.Action, l *plan.Lowered) {
			b[1].Signal, b[1].Peers = true, []int{0}
			a[0].Waits = append(a[0].Waits, plan.Wait{Rank: 1, Action: 1, Lag: 1})
			a[1].Signal, a[1].Peers = true, []int{1}
			b[0].Waits = append(b[0].Waits, plan.Wait{Rank: 0, Action: 1, Lag: 1})
		}},
		{"no wait for a free slot", plan.Race, func(a, b []plan.Action, l *plan.Lowered) { b[0].Waits = nil }},
		{"fewer slots", plan.Race, func(a, b []plan.Action, l *plan.Lowered) { l.Depth = 1 }},
		{"sources swapped for one", plan.WrongResult, func(a, b []plan.Action, l *plan.Lowered) {
			a[0].Op, a[0].Srcs, a[0].Last = plan.Copy, a[0].Srcs[1:], false
		}},
		{"last forgotten", plan.WrongResult, func(a, b []plan.Action, l *plan.Lowered) { a[0].Last = false }},
		{"stale input", plan.Unwritten, func(a, b []plan.Action, l *plan.Lowered) { b[0].Srcs[0] = plan.Scratch.At(1, 0) }},
	} {
		l := lowerPair(t)
		c.change(l.Programs[0].Actions, l.Programs[1].Actions, l)
		kindOf(t, c.what, l.Verify(), c.want)
	}
}

// TestVerifyDelivery: rank 0 puts into rank 2 and tells rank 1, who tells
// rank 2. In shared memory that is order enough; over a network it is not,
// so Lower keeps the direct wait and Verify demands it.
func TestVerifyDelivery(t *testing.T) {
	b := plan.NewBuilder("allreduce/triangle", plan.AllReduce, 3, 1)
	in, out, scratch := plan.In.At, plan.Out.At, plan.Scratch.At
	b.Copy(0, in(0, 0), scratch(2, 0))
	b.Copy(0, in(0, 0), scratch(1, 0))
	b.Reduce(1, []plan.Place{scratch(1, 0)}, scratch(1, 0), in(1, 0))
	b.Copy(1, scratch(1, 0), scratch(2, 1))
	// Rank 2 throws away what rank 0 put there, and uses the chunk itself.
	b.Reduce(2, []plan.Place{scratch(2, 0), out(2, 0)}, scratch(2, 1), in(2, 0))
	for r := range 2 {
		b.Copy(2, scratch(2, 0), scratch(r, 2))
		b.Copy(r, scratch(r, 2), out(r, 0))
	}
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	l, err := plan.Lower(p, 4) // slots enough for rank 0 to put in this order
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(); err != nil {
		t.Fatal(err)
	}
	a := &l.Programs[2].Actions[0]
	direct := slices.IndexFunc(a.Waits, func(w plan.Wait) bool { return w.Rank == 0 })
	if direct < 0 {
		t.Fatalf("rank 2 waits for %v, not for rank 0", a.Waits)
	}
	a.Waits = slices.Delete(slices.Clone(a.Waits), direct, direct+1)
	kindOf(t, "no direct wait", l.Verify(), plan.Undelivered)
}

func TestVerifyFinish(t *testing.T) {
	b := plan.NewBuilder("allreduce/pull", plan.AllReduce, 2, 1)
	b.Reduce(0, []plan.Place{plan.Out.At(0, 0), plan.Out.At(1, 0)}, plan.In.At(0, 0), plan.In.At(1, 0))
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	l, err := plan.Lower(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(l.Programs[1].Finish, len(l.Programs[1].Actions)); got != "[0.0] 0" {
		t.Errorf("rank 1 finishes after %s", got)
	}
	l.Programs[1].Finish = nil
	kindOf(t, "no finish", l.Verify(), plan.EarlyFinish)
}
