package algo

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// A tally says what became of the mutants of one kind.
type tally struct {
	mutants int
	broken  int // refused by the verifier, broken by the machine
	refused int // refused by the verifier, not broken by the machine or not fit to run
	equal   int // accepted by the verifier, not broken by the machine
	missed  int // accepted by the verifier, broken by the machine
}

// judge holds the verifier's word on a mutant against the machine's. It is
// the machine that says whether an accepted mutant means the same: the
// verifier is not asked twice.
func judge(l *plan.Lowered, verdict error, schedules int, seed uint64) (c tally, broken error) {
	broken = tryToBreak(l, schedules, seed)
	c.mutants = 1
	switch {
	case verdict != nil && broken != nil:
		c.broken = 1
	case verdict != nil:
		c.refused = 1
	case broken == nil:
		c.equal = 1
	default:
		c.missed = 1
	}
	return c, broken
}

func (c *tally) add(d tally) {
	c.mutants += d.mutants
	c.broken += d.broken
	c.refused += d.refused
	c.equal += d.equal
	c.missed += d.missed
}

func (c tally) String() string {
	return fmt.Sprintf("%5d mutants: %5d broken and refused, %4d refused only, %4d accepted and equal, %d missed",
		c.mutants, c.broken, c.refused, c.equal, c.missed)
}

// anyRoot returns a root by chance, or 0 for a collective without one.
func anyRoot(c plan.Collective, n int, rng *rand.Rand) int {
	all := roots(c, n)
	return all[rng.IntN(len(all))]
}

func report(t *testing.T, kinds map[string]*tally) {
	var sum tally
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("%-32s %v", k, kinds[k])
		sum.add(*kinds[k])
	}
	t.Logf("%-32s %v", "all", sum)
}

func count(kinds map[string]*tally, kind string, c tally) {
	if kinds[kind] == nil {
		kinds[kind] = &tally{}
	}
	kinds[kind].add(c)
}

// sample returns at most n of the mutants, chosen by chance.
func sample[T any](ms []T, n int, rng *rand.Rand) []T {
	rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	return ms[:min(n, len(ms))]
}

// TestMutatedPrograms changes lowered programs in every way, one change at a
// time, and shows that the verifier accepts none that the machine can break.
func TestMutatedPrograms(t *testing.T) {
	kinds := map[string]*tally{}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, g := range generators {
		for _, n := range []int{2, 3, 4, 5} {
			for _, depth := range []int{1, 2} {
				p, err := g.new(n, anyRoot(g.collective, n, rng))
				if err != nil {
					t.Fatal(err)
				}
				mutate(t, p, nil, depth, kinds, rng)
			}
		}
	}
	report(t, kinds)
}

// TestMutatedOver is TestMutatedPrograms for programs that run over nodes, of
// hierarchical plans and of flat ones that need nothing mapped.
func TestMutatedOver(t *testing.T) {
	kinds := map[string]*tally{}
	rng := rand.New(rand.NewPCG(4, 4))
	for _, c := range plan.Collectives() {
		for _, name := range Names(c) {
			for _, nodes := range []plan.Nodes{{0, 0, 1, 1}, {0, 1, 0}, {0, 1, 1, 0, 2}, {0, 1, 1, 1}} {
				p, err := NewOver(name, nodes, anyRoot(c, len(nodes), rng))
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := p.ReachOver(nodes); ok {
					mutate(t, p, nodes, 2+rng.IntN(2), kinds, rng)
				} else if strings.Contains(name, "/hier") {
					t.Errorf("%s does not run over %v", name, nodes)
				}
			}
		}
	}
	report(t, kinds)
	for _, kind := range []string{"drop arrival", "drop told"} {
		if k := kinds[kind]; k == nil || k.broken == 0 || k.equal > 0 {
			t.Errorf("%s: %v; want that some break, and none is accepted", kind, k)
		}
	}
}

// mutate holds the verifier's word on mutants of a plan's programs against the
// machine's.
func mutate(t *testing.T, p *plan.Plan, nodes plan.Nodes, depth int, kinds map[string]*tally, rng *rand.Rand) {
	each, schedules := 120, 80
	if testing.Short() {
		each, schedules = 20, 40
	}
	if nodes != nil {
		each /= 8 // there are many such plans
	}
	l, err := plan.LowerOver(p, depth, nodes)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range sample(mutants(l), each, rng) {
		verdict := m.l.Verify()
		var ce *plan.CheckError
		if verdict != nil && !errors.As(verdict, &ce) {
			t.Fatalf("%s: %T", m.what, verdict)
		}
		c, broken := judge(m.l, verdict, schedules, uint64(i))
		count(kinds, m.kind, c)
		if c.missed > 0 {
			t.Errorf("%s, %d ranks over %v, depth %d: %s: the verifier accepts, but %v", p.Name, p.Ranks, nodes, depth, m.what, broken)
		}
	}
}
