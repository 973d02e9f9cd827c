package algo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// A planMutant is a plan with one thing changed.
type planMutant struct {
	kind string
	p    *plan.Plan
}

func clonePlan(p *plan.Plan) *plan.Plan {
	c := *p
	c.Steps = slices.Clone(p.Steps)
	for i := range c.Steps {
		s := &c.Steps[i]
		s.Dsts, s.Srcs, s.After = slices.Clone(s.Dsts), slices.Clone(s.Srcs), slices.Clone(s.After)
	}
	return &c
}

// planMutants returns every plan that one change to p gives.
func planMutants(p *plan.Plan) []planMutant {
	var ms []planMutant
	for id := range p.Steps {
		add := func(kind string, change func(c *plan.Plan, s *plan.Step)) {
			c := clonePlan(p)
			change(c, &c.Steps[id])
			ms = append(ms, planMutant{kind, c})
		}
		s := &p.Steps[id]
		add("drop step", func(c *plan.Plan, _ *plan.Step) {
			c.Steps = slices.Delete(c.Steps, id, id+1)
			for i := range c.Steps {
				s := &c.Steps[i]
				s.After = slices.DeleteFunc(s.After, func(a plan.StepID) bool { return a == plan.StepID(id) })
				for k := range s.After {
					if s.After[k] > plan.StepID(id) {
						s.After[k]--
					}
				}
			}
		})
		if id+1 < len(p.Steps) {
			add("swap steps", func(c *plan.Plan, _ *plan.Step) {
				i, j := plan.StepID(id), plan.StepID(id+1)
				c.Steps[i], c.Steps[j] = c.Steps[j], c.Steps[i]
				for k := range c.Steps {
					s := &c.Steps[k]
					for x, a := range s.After {
						switch a {
						case i:
							s.After[x] = j
						case j:
							s.After[x] = i
						}
					}
					slices.Sort(s.After)
				}
			})
		}
		if len(s.Dsts) > 1 {
			for i := range s.Dsts {
				add("drop destination", func(_ *plan.Plan, s *plan.Step) { s.Dsts = slices.Delete(s.Dsts, i, i+1) })
			}
		}
		for i := range s.After {
			add("drop after", func(_ *plan.Plan, s *plan.Step) { s.After = slices.Delete(s.After, i, i+1) })
		}
		if s.Op == plan.Reduce {
			add("flip last", func(_ *plan.Plan, s *plan.Step) { s.Last = !s.Last })
			for i := range s.Srcs {
				add("double source", func(_ *plan.Plan, s *plan.Step) { s.Srcs = append(s.Srcs, s.Srcs[i]) })
				add("drop source", func(_ *plan.Plan, s *plan.Step) {
					if s.Srcs = slices.Delete(s.Srcs, i, i+1); len(s.Srcs) == 1 {
						s.Op = plan.Copy
					}
				})
				if i > 0 {
					add("swap sources", func(_ *plan.Plan, s *plan.Step) { s.Srcs[i-1], s.Srcs[i] = s.Srcs[i], s.Srcs[i-1] })
				}
			}
		}
		for i, q := range s.Srcs {
			if n := chunksAt(p, q); n > 1 {
				add("change source chunk", func(_ *plan.Plan, s *plan.Step) { s.Srcs[i].Chunk = (q.Chunk + 1) % n })
			}
			add("change source buffer", func(_ *plan.Plan, s *plan.Step) { s.Srcs[i].Buf = (q.Buf + 1) % 3 })
		}
		for i, q := range s.Dsts {
			if n := chunksAt(p, q); n > 1 {
				add("change destination chunk", func(_ *plan.Plan, s *plan.Step) { s.Dsts[i].Chunk = (q.Chunk + 1) % n })
			}
			add("change destination rank", func(_ *plan.Plan, s *plan.Step) { s.Dsts[i].Rank = (q.Rank + 1) % p.Ranks })
		}
		add("change executing rank", func(_ *plan.Plan, s *plan.Step) { s.Rank = (s.Rank + 1) % p.Ranks })
	}
	return ms
}

// TestMutatedPlans changes plans in every way. What Check accepts must lower
// to programs that Verify accepts and the machine cannot break; what Check
// refuses is run as well, where it can be lowered, to see whether it was
// worth refusing.
func TestMutatedPlans(t *testing.T) {
	each, schedules := 200, 40
	if testing.Short() {
		each, schedules = 30, 20
	}
	kinds := map[string]*tally{}
	rng := rand.New(rand.NewPCG(2, 2))
	for _, g := range generators {
		for _, n := range []int{2, 3, 4} {
			p, err := g.new(n, anyRoot(g.collective, n, rng))
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range sample(planMutants(p), each, rng) {
				verdict := m.p.Check()
				l, err := plan.Lower(m.p, 2)
				if err != nil {
					if verdict == nil {
						t.Errorf("%s, %d ranks: %s: Check accepts, Lower does not: %v", g.name, n, m.kind, err)
					}
					count(kinds, m.kind, tally{mutants: 1, refused: 1}) // nothing to run
					continue
				}
				if verdict == nil {
					if err := l.Verify(); err != nil {
						t.Errorf("%s, %d ranks: %s: Check accepts, Verify does not: %v\n%v", g.name, n, m.kind, err, m.p)
					}
				}
				c, broken := judge(l, verdict, schedules, uint64(i))
				count(kinds, m.kind, c)
				if c.missed > 0 {
					t.Errorf("%s, %d ranks: %s: Check accepts, but %v", g.name, n, m.kind, broken)
				}
			}
		}
	}
	report(t, kinds)
}
