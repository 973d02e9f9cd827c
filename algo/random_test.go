package algo

import (
	"math/rand/v2"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

// A scribbler writes correct allreduce plans in which everything that may be
// is left to chance: who reduces what with what, where, and in which of a
// few scratch chunks, which it uses again as soon as it can.
type scribbler struct {
	*plan.Builder
	rng   *rand.Rand
	ranks int
	putty bool // puts only
	used  map[plan.Place]bool
}

// scratch returns a free scratch chunk of the rank.
func (s *scribbler) scratch(rank int) plan.Place {
	for size := 1; ; size++ {
		q := plan.Scratch.At(rank, s.rng.IntN(size))
		if !s.used[q] {
			s.used[q] = true
			return q
		}
	}
}

func (s *scribbler) anyone() int { return s.rng.IntN(s.ranks) }

// bring returns where the part is within reach of rank r.
func (s *scribbler) bring(part plan.Place, r int) plan.Place {
	if part.Rank == r || !s.putty && s.rng.IntN(3) > 0 {
		return part
	}
	q, by := s.scratch(r), part.Rank
	if !s.putty {
		by = s.anyone()
	}
	s.Copy(by, part, q)
	delete(s.used, part)
	return q
}

// combine reduces some of the parts into one and returns what is left.
func (s *scribbler) combine(parts []plan.Place) []plan.Place {
	s.rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	n, r := 2+s.rng.IntN(len(parts)-1), s.anyone()
	var srcs []plan.Place
	for _, q := range parts[:n] {
		srcs = append(srcs, s.bring(q, r))
	}
	for _, q := range srcs {
		delete(s.used, q) // a reduce may write what it reads
	}
	at := r
	if !s.putty {
		at = s.anyone()
	}
	to := s.scratch(at)
	s.Reduce(r, []plan.Place{to}, srcs...)
	return append(parts[n:], to)
}

// spread copies the total into every rank's Out.
func (s *scribbler) spread(total plan.Place, c int) {
	holders := []plan.Place{total}
	for _, r := range s.rng.Perm(s.ranks) {
		from, out := holders[s.rng.IntN(len(holders))], plan.Out.At(r, c)
		if s.putty {
			if from.Rank != r {
				q := s.scratch(r)
				s.Copy(from.Rank, from, q)
				from = q
				holders = append(holders, q)
			}
			s.Copy(r, from, out)
			continue
		}
		dsts := []plan.Place{out}
		if s.rng.IntN(3) == 0 {
			dsts = append(dsts, s.scratch(s.anyone()))
		}
		// The writer pushes, the reader pulls, or somebody else does both.
		s.Copy([]int{from.Rank, r, s.anyone()}[s.rng.IntN(3)], from, dsts...)
		holders = append(holders, dsts...)
	}
	for _, q := range holders {
		delete(s.used, q)
	}
}

func randomPlan(rng *rand.Rand) (*plan.Plan, error) {
	ranks, chunks := 2+rng.IntN(4), 1+rng.IntN(3)
	s := &scribbler{
		Builder: plan.NewBuilder("allreduce/random", plan.AllReduce, ranks, chunks),
		rng:     rng, ranks: ranks, putty: rng.IntN(2) == 0, used: map[plan.Place]bool{},
	}
	parts := make([][]plan.Place, chunks)
	for c := range parts {
		for r := range ranks {
			parts[c] = append(parts[c], plan.In.At(r, c))
		}
	}
	for left := chunks; left > 0; {
		c := rng.IntN(chunks)
		switch len(parts[c]) {
		case 0:
		case 1:
			s.spread(parts[c][0], c)
			parts[c] = nil
			left--
		default:
			parts[c] = s.combine(parts[c])
		}
	}
	return s.Plan()
}

// TestRandomPlans lowers plans that no algorithm would write, with scratch
// that lives too long for its slots, and shows that Lower copes.
func TestRandomPlans(t *testing.T) {
	plans := 500
	if testing.Short() {
		plans = 100
	}
	kinds := map[string]*tally{}
	for seed := range plans {
		rng := rand.New(rand.NewPCG(3, uint64(seed)))
		p, err := randomPlan(rng)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := p.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for depth := 1; depth <= 3; depth++ {
			l, err := plan.Lower(p, depth)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := l.Verify(); err != nil {
				t.Errorf("seed %d, depth %d: %v\n%v", seed, depth, err, p)
			}
			if err := tryToBreak(l, 6, uint64(seed)); err != nil {
				t.Errorf("seed %d, depth %d: %v\n%v", seed, depth, err, p)
			}
			for i, m := range sample(mutants(l), 2, rng) {
				c, broken := judge(m.l, m.l.Verify(), 20, uint64(i))
				count(kinds, m.kind, c)
				if c.missed > 0 {
					t.Errorf("seed %d, depth %d: %s: the verifier accepts, but %v\n%v", seed, depth, m.what, broken, p)
				}
			}
		}
	}
	report(t, kinds)
}
