package plan_test

import (
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// simple authors the plainest plan of a collective: who has what copies it
// to, or reduces it into, everybody who wants it.
func simple(c plan.Collective, n, root, chunks int) (*plan.Plan, error) {
	b := plan.NewRooted(c.String()+"/simple", c, n, root, chunks)
	type datum struct{ block, piece int }
	holders, wanters := map[datum][]plan.Place{}, map[datum][]plan.Place{}
	var order []datum
	p := &plan.Plan{Collective: c, Ranks: n, Root: root, Chunks: chunks}
	for r := range n {
		for i := range c.Blocks(plan.In, r, root, n) * chunks {
			block, piece := p.Datum(plan.In.At(r, i))
			d := datum{block, piece}
			if len(holders[d]) == 0 {
				order = append(order, d)
			}
			holders[d] = append(holders[d], plan.In.At(r, i))
		}
		for i := range c.Blocks(plan.Out, r, root, n) * chunks {
			block, piece := p.Datum(plan.Out.At(r, i))
			d := datum{block, piece}
			wanters[d] = append(wanters[d], plan.Out.At(r, i))
		}
	}
	for _, d := range order {
		if from := holders[d]; c.Reduces() && n > 1 {
			b.Reduce(d.piece%n, wanters[d], from...)
		} else {
			b.Copy(from[0].Rank, from[0], wanters[d]...)
		}
	}
	return b.Plan()
}

// TestCollectives: the plainest plan of every collective is right, survives
// its text form and lowering, and is wrong as soon as a step is left out.
func TestCollectives(t *testing.T) {
	for _, c := range plan.Collectives() {
		if c == plan.Barrier {
			continue // see TestCheckBarrier
		}
		for n := 1; n <= 5; n++ {
			for root := range n {
				if root > 0 && !c.Rooted() {
					continue
				}
				for chunks := 1; chunks <= 2; chunks++ {
					p, err := simple(c, n, root, chunks)
					if err != nil {
						t.Fatalf("%v, %d ranks, root %d: %v", c, n, root, err)
					}
					if err := p.Check(); err != nil {
						t.Errorf("%v, %d ranks, root %d: %v", c, n, root, err)
					}
					again, err := plan.Parse(p.String())
					if err != nil || again.String() != p.String() {
						t.Errorf("%v, %d ranks, root %d: read back: %v\n%v", c, n, root, err, again)
					}
					l, err := plan.Lower(p, 2)
					if err == nil {
						err = l.Verify()
					}
					if err != nil {
						t.Errorf("%v, %d ranks, root %d: %v", c, n, root, err)
					}
					p.Steps = p.Steps[:len(p.Steps)-1]
					kindOf(t, c.String()+" without its last step", p.Check(), plan.WrongResult)
				}
			}
		}
	}
}

// TestCollectiveMistakes: what is right for one collective is not for another.
func TestCollectiveMistakes(t *testing.T) {
	build := func(c plan.Collective, f func(b *plan.Builder)) error {
		b := plan.NewRooted("x/mistake", c, 2, 0, 1)
		f(b)
		p, err := b.Plan()
		if err == nil {
			err = p.Check()
		}
		return err
	}
	for _, c := range []struct {
		what       string
		collective plan.Collective
		want       plan.Kind
		author     func(b *plan.Builder)
	}{
		{"blocks the wrong way round", plan.AllToAll, plan.WrongResult, func(b *plan.Builder) {
			for r := range 2 {
				for q := range 2 {
					b.Copy(r, plan.In.At(r, q), plan.Out.At(r, q))
				}
			}
		}},
		{"another's block", plan.Scatter, plan.WrongResult, func(b *plan.Builder) {
			b.Copy(0, plan.In.At(0, 0), plan.Out.At(0, 0), plan.Out.At(1, 0))
		}},
		{"one's own instead of the root's", plan.Gather, plan.WrongResult, func(b *plan.Builder) {
			b.Copy(0, plan.In.At(0, 0), plan.Out.At(0, 1), plan.Out.At(0, 0))
		}},
		{"half a reduction", plan.ReduceScatter, plan.WrongResult, func(b *plan.Builder) {
			b.Reduce(0, []plan.Place{plan.Out.At(0, 0)}, plan.In.At(0, 0), plan.In.At(1, 0))
			b.Copy(1, plan.In.At(1, 1), plan.Out.At(1, 0))
		}},
	} {
		kindOf(t, c.what, build(c.collective, c.author), c.want)
	}
	// In place, block 1 of rank 1's In is where its Out is.
	b := plan.NewBuilder("x/in-place", plan.ReduceScatter, 2, 1)
	b.Reduce(1, []plan.Place{plan.Out.At(1, 0)}, plan.In.At(0, 1), plan.In.At(1, 1))
	b.Copy(0, plan.In.At(1, 1), plan.Scratch.At(0, 0))
	if _, err := b.Plan(); err == nil {
		t.Error("a read of In after Out was written in the same place is accepted")
	}
	// A buffer that a rank does not bring.
	for _, c := range []struct {
		collective plan.Collective
		q          plan.Place
	}{{plan.Broadcast, plan.In.At(1, 0)}, {plan.Scatter, plan.In.At(1, 0)}} {
		b := plan.NewRooted("x/absent", c.collective, 2, 0, 1)
		b.Copy(1, c.q, plan.Scratch.At(1, 0))
		if b.Err() == nil {
			t.Errorf("%v reads %v, which nobody brings", c.collective, c.q)
		}
	}
	if plan.NewRooted("x/root", plan.Broadcast, 2, 2, 1).Err() == nil || plan.NewRooted("x/root", plan.AllReduce, 2, 1, 1).Err() == nil {
		t.Error("a root that is not there is accepted")
	}
}
