package algo

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// splits are groupings for tests that run programs.
var splits = []plan.Nodes{
	{0, 0}, {0, 1}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1, 1}, {0, 1, 1, 0}, {0, 1, 2, 3},
	{0, 1, 1, 1, 1}, {0, 1, 2, 0, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 1, 1, 1, 1, 1, 2}, {0, 1, 2, 3, 3, 2, 1, 0},
}

// TestMachineOver runs hierarchical programs that the verifier accepts with real
// numbers, a call at a time and several in turn.
func TestMachineOver(t *testing.T) {
	schedules := 12
	if testing.Short() {
		schedules = 4
	}
	for _, g := range hierGenerators {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for i, nodes := range splits {
				all := roots(g.collective, len(nodes))
				for _, root := range []int{all[0], all[len(all)-1]} {
					p, err := NewOver(g.name, nodes, root)
					if err != nil {
						t.Fatal(err)
					}
					for depth := 1; depth <= 4; depth++ {
						l, err := plan.LowerOver(p, depth, nodes)
						if err != nil {
							t.Fatal(err)
						}
						if err := breakIt(l, schedules, uint64(i), p.RankOrder()); err != nil {
							t.Errorf("nodes %v, root %d, depth %d: %v", nodes, root, depth, err)
						}
					}
				}
			}
		})
	}
}

// runsOver returns the lowered programs of all algorithms that run over a
// grouping, for a root and a depth by chance.
func runsOver(t *testing.T, nodes plan.Nodes, rng *rand.Rand) []*plan.Lowered {
	t.Helper()
	var ls []*plan.Lowered
	for _, c := range plan.Collectives() {
		for _, name := range Names(c) {
			p, err := NewOver(name, nodes, anyRoot(c, len(nodes), rng))
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := p.ReachOver(nodes); !ok {
				if strings.Contains(name, "/hier") {
					t.Errorf("%s does not run over %v", name, nodes)
				}
				continue
			}
			l, err := plan.LowerOver(p, 1+rng.IntN(4), nodes)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Verify(); err != nil {
				t.Errorf("nodes %v: %v", nodes, err)
			}
			ls = append(ls, l)
		}
	}
	return ls
}

// inTurnBy returns how many of so many sequences of calls the machine breaks,
// and the last failure.
func inTurnBy(ls []*plan.Lowered, nodes plan.Nodes, sequences int, two, hasty bool, rng *rand.Rand) (broken int, last error) {
	for range sequences {
		var calls []*plan.Lowered
		var tiles []int
		for range 2 + rng.IntN(4) {
			calls = append(calls, ls[rng.IntN(len(ls))])
			tiles = append(tiles, 1+rng.IntN(6))
		}
		m := newMachine(calls, tiles, rng.IntN(2) == 0, nodes, rng)
		m.two, m.hasty = two, hasty
		if err := m.run(); err != nil {
			broken, last = broken+1, err
		}
	}
	return broken, last
}

// TestCallsInTurn runs different programs one after the other in the same
// scratch: who is done goes on to the next call as far as arrivals let him. What
// is proved of each by itself must be enough.
func TestCallsInTurn(t *testing.T) {
	sequences := 300
	if testing.Short() {
		sequences = 60
	}
	rng := rand.New(rand.NewPCG(5, 5))
	for _, nodes := range splits {
		ls := runsOver(t, nodes, rng)
		for _, two := range []bool{false, true} {
			if broken, err := inTurnBy(ls, nodes, sequences, two, false, rng); broken > 0 {
				t.Errorf("nodes %v, two sets of scratch %v: %d of %d sequences break: %v", nodes, two, broken, sequences, err)
			}
		}
	}
}

// TestHastyArrival: a rank speaks for its node when it tells others of its
// arrival. If it does so before the rest of its node have come, calls break.
func TestHastyArrival(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	nodes := plan.Nodes{0, 0, 1, 1, 1}
	var ls []*plan.Lowered
	// A root may be far ahead of ranks that only receive, and in whose node
	// others are still at work in a call in which it had nothing to do with them.
	for _, c := range []struct {
		name string
		root int
	}{{"gather/hier", 2}, {"scatter/hier", 0}, {"broadcast/hier-chain", 0}} {
		p, err := NewOver(c.name, nodes, c.root)
		if err != nil {
			t.Fatal(err)
		}
		l, err := plan.LowerOver(p, 2, nodes)
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, l)
	}
	for _, two := range []bool{false, true} {
		if broken, err := inTurnBy(ls, nodes, 1000, two, false, rng); broken > 0 {
			t.Errorf("two sets of scratch %v: %d sequences of calls break: %v", two, broken, err)
		}
		broken, _ := inTurnBy(ls, nodes, 2000, two, true, rng)
		if t.Logf("two sets of scratch %v: %d sequences of calls break", two, broken); broken == 0 {
			t.Errorf("two sets of scratch %v: no sequence of calls breaks", two)
		}
	}
}
