package plan_test

import (
	"fmt"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

func TestLowerPair(t *testing.T) {
	l := lowerPair(t)
	var got string
	for _, prog := range l.Programs {
		for j, a := range prog.Actions {
			got += fmt.Sprintf("%d.%d step %d skew %d waits %v peers %v\n", prog.Rank, j, a.Step, a.Skew, a.Waits, a.Peers)
		}
	}
	// Rank 1 puts tile t+2 while it copies tile t out, so what it waits for
	// in 0.0-2 is two tiles back.
	want := `0.0 step 1 skew 1 waits [1.0] peers [1]
0.1 step 2 skew 1 waits [1.1-2] peers [1]
1.0 step 0 skew 0 waits [0.0-2] peers [0]
1.1 step 3 skew 2 waits [0.1] peers [0]
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if l.Stride != 2 || l.MaxSkew() != 2 {
		t.Errorf("stride %d, skew %d, want 2 and 2", l.Stride, l.MaxSkew())
	}
}

// TestValue: values grow along a program, each is published once, and the
// end of a call is beyond all of them.
func TestValue(t *testing.T) {
	l := lowerPair(t)
	const tiles = 5
	for r := range l.Programs {
		last := uint64(plan.Arrived)
		n := 0
		for i := range tiles + l.MaxSkew() {
			for j, a := range l.Programs[r].Actions {
				if tile := i - a.Skew; tile >= 0 && tile < tiles {
					v := l.Value(r, j, tile)
					if v <= last {
						t.Errorf("rank %d action %d tile %d: %d after %d", r, j, tile, v, last)
					}
					last = v
					n++
				}
			}
		}
		if n != tiles*len(l.Programs[r].Actions) || l.End(tiles) < last {
			t.Errorf("rank %d: %d values up to %d, end %d", r, n, last, l.End(tiles))
		}
	}
}

// TestLowerLongLife: where a value stays in scratch for longer than its
// slots allow the ranks to be apart, they move closer instead of waiting for
// one another for ever.
func TestLowerLongLife(t *testing.T) {
	const ranks = 6
	b := plan.NewBuilder("allreduce/keep", plan.AllReduce, ranks, 1)
	// Rank 0 shows its input to all. One rank after the other adds its own to
	// a sum that goes from hand to hand; the last adds what rank 0 showed.
	b.Copy(0, plan.In.At(0, 0), plan.Scratch.At(0, 0))
	sum := plan.In.At(1, 0)
	for r := 2; r < ranks; r++ {
		b.Reduce(r, []plan.Place{plan.Scratch.At(r, 1)}, sum, plan.In.At(r, 0))
		sum = plan.Scratch.At(r, 1)
	}
	var outs []plan.Place
	for r := range ranks {
		outs = append(outs, plan.Out.At(r, 0))
	}
	b.Reduce(ranks-1, outs, plan.Scratch.At(0, 0), sum)
	// And the slot is read once more, many hops later.
	b.Copy(1, plan.Scratch.At(ranks-2, 1), plan.Scratch.At(1, 2))
	b.Copy(2, plan.Scratch.At(1, 2), plan.Scratch.At(2, 2))
	b.Reduce(3, []plan.Place{plan.Scratch.At(3, 2)}, plan.Scratch.At(2, 2), plan.Scratch.At(0, 0))
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	skews := map[int]int{}
	for _, depth := range []int{1, 2, 3, 4, 8} {
		l, err := plan.Lower(p, depth)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Verify(); err != nil {
			t.Errorf("depth %d: %v", depth, err)
		}
		skews[depth] = l.MaxSkew()
	}
	if skews[1] != 0 || skews[8] <= skews[2] {
		t.Errorf("skews by depth: %v; want none at depth 1, and more with more slots", skews)
	}
}

func TestLowerRefuses(t *testing.T) {
	_, err := plan.Lower(pair(t), 0)
	kindOf(t, "depth 0", err, plan.Malformed)
	p := pair(t)
	p.Steps[3].After = nil
	_, err = plan.Lower(p, 2)
	kindOf(t, "no order", err, plan.Unordered)
	p.Steps[0].Rank = 7
	_, err = plan.Lower(p, 2)
	kindOf(t, "no such rank", err, plan.Malformed)
}
