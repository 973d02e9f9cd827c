package plan_test

import (
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// TestRankOrder: the contributions count, not the places they have come
// through, and only one step with all of them in order will do.
func TestRankOrder(t *testing.T) {
	in, out, scratch := plan.In.At, plan.Out.At, plan.Scratch.At
	everybody := []plan.Place{out(0, 0), out(1, 0), out(2, 0)}
	for _, c := range []struct {
		what   string
		want   bool
		author func(b *plan.Builder)
	}{
		{"one step", true, func(b *plan.Builder) {
			b.Reduce(2, everybody, in(0, 0), in(1, 0), in(2, 0))
		}},
		{"through scratch, by way of another rank", true, func(b *plan.Builder) {
			b.Copy(1, in(1, 0), scratch(2, 0))
			b.Copy(2, scratch(2, 0), scratch(0, 1))
			b.Copy(2, in(2, 0), scratch(2, 0))
			b.Reduce(0, everybody, in(0, 0), scratch(0, 1), scratch(2, 0))
		}},
		{"everybody for himself", true, func(b *plan.Builder) {
			for r := range 3 {
				for q := range 3 {
					b.Copy(r, in(q, 0), scratch(r, q))
				}
			}
			for r := range 3 {
				b.Reduce(r, []plan.Place{out(r, 0)}, scratch(r, 0), scratch(r, 1), scratch(r, 2))
			}
		}},
		{"another order", false, func(b *plan.Builder) {
			b.Reduce(0, everybody, in(1, 0), in(0, 0), in(2, 0))
		}},
		{"the same order in two steps", false, func(b *plan.Builder) {
			b.Reduce(0, []plan.Place{scratch(0, 0)}, in(0, 0), in(1, 0))
			b.Reduce(0, everybody, scratch(0, 0), in(2, 0))
		}},
		{"from the right", false, func(b *plan.Builder) {
			b.Reduce(0, []plan.Place{scratch(0, 0)}, in(1, 0), in(2, 0))
			b.Reduce(0, everybody, in(0, 0), scratch(0, 0))
		}},
	} {
		b := plan.NewBuilder("allreduce/order", plan.AllReduce, 3, 1)
		c.author(b)
		p, err := b.Plan()
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if err := p.Check(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if got := p.RankOrder(); got != c.want {
			t.Errorf("%s: rank order %v, want %v", c.what, got, c.want)
		}
	}
	if !pairBroadcast(t).RankOrder() {
		t.Error("a broadcast, which reduces nothing, is not in rank order")
	}
}

func pairBroadcast(t *testing.T) *plan.Plan {
	b := plan.NewRooted("broadcast/pair", plan.Broadcast, 2, 1, 1)
	b.Copy(1, plan.In.At(1, 0), plan.Out.At(0, 0), plan.Out.At(1, 0))
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
