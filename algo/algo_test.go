package algo

import (
	"errors"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

var update = flag.Bool("update", false, "rewrite the golden plans in testdata")

const maxRanks = 64

// A cost is what an algorithm's doc comment promises, summed over all ranks.
type cost struct {
	steps  int
	moves  int // chunks that a rank reads from or writes to a peer
	copies int // chunks that a rank copies within its own memory
	puts   int
	skew   int // pipeline stages - 1, from depth on; below it 0; -1: no promise
	depth  int
}

// log2 returns ⌊log2 n⌋.
func log2(n int) int { return bits.Len(uint(n)) - 1 }

var promises = map[string]struct {
	cost  func(n int) cost
	reach plan.Reach // for 2 or more ranks
}{
	"allreduce/direct": {
		func(n int) cost { return cost{steps: n, moves: 2 * n * (n - 1)} },
		plan.Reach{PeerData: true},
	},
	"allreduce/oneshot": {
		func(n int) cost { return cost{steps: 2 * n, moves: n * (n - 1), copies: n, skew: 1} },
		plan.Reach{PeerScratchRead: true},
	},
	"allreduce/staged": {
		func(n int) cost {
			return cost{steps: n * (2*n - 1), moves: 2 * n * (n - 1), copies: 2 * n * (n - 1), skew: 2, depth: 3}
		},
		plan.Reach{PeerScratchRead: true},
	},
	"allreduce/ring": {
		func(n int) cost {
			return cost{steps: 4 * n * (n - 1), moves: 2 * n * (n - 1), puts: 2 * n * (n - 1), copies: n * (n - 1), skew: 2 * (n - 1)}
		},
		plan.Reach{PeerPut: true},
	},
	"allreduce/tree": {
		func(n int) cost {
			return cost{steps: 3*(n-1) + n/2, moves: 2 * (n - 1), puts: 2 * (n - 1), copies: n - 1, skew: 2 * log2(n)}
		},
		plan.Reach{PeerPut: true},
	},
	"barrier/direct": {
		func(n int) cost { return cost{steps: 2 * n, moves: n * (n - 1), copies: n, skew: 1} },
		plan.Reach{PeerScratchRead: true},
	},
	"barrier/dissemination": {
		func(n int) cost {
			rounds := bits.Len(uint(n - 1))
			return cost{steps: 2 * n * rounds, moves: n * rounds, puts: n * rounds, skew: -1}
		},
		plan.Reach{PeerPut: true},
	},
}

func measure(p *plan.Plan) cost {
	c := cost{steps: len(p.Steps)}
	for i := range p.Steps {
		s := &p.Steps[i]
		remote := 0
		for _, q := range slices.Concat(s.Srcs, s.Dsts) {
			// A token that a rank reads back from itself moves nothing.
			if q.Rank != s.Rank {
				remote++
			}
		}
		c.moves += remote
		if s.IsPut() {
			c.puts++
		}
		if s.Op == plan.Copy && remote == 0 {
			c.copies++
		}
	}
	return c
}

// TestEveryPlan proves each algorithm for every number of ranks, at two
// depths, and holds it to the cost that its doc comment promises.
func TestEveryPlan(t *testing.T) {
	for _, g := range generators {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			promise := promises[g.name]
			for n := 1; n <= maxRanks; n++ {
				if testing.Short() && n > 17 && n != 31 && n != 32 && n != maxRanks {
					continue
				}
				p, err := New(g.name, n, 0)
				if err != nil {
					t.Fatalf("%d ranks: %v", n, err)
				}
				if err := p.Check(); err != nil {
					t.Errorf("%d ranks: %v", n, err)
				}
				if p.Name != g.name || p.Collective != g.collective || p.Ranks != n {
					t.Errorf("%d ranks: the plan says %s, %v, %d ranks", n, p.Name, p.Collective, p.Ranks)
				}
				want, reach := promise.cost(n), promise.reach
				if n == 1 {
					want, reach = cost{}, plan.Reach{}
					if g.collective == plan.AllReduce {
						want = cost{steps: 1, copies: 1}
					}
				}
				for _, depth := range []int{2, 4} {
					l, err := plan.Lower(p, depth)
					if err != nil {
						t.Fatalf("%d ranks: %v", n, err)
					}
					if err := l.Verify(); err != nil {
						t.Errorf("%d ranks, depth %d: %v", n, depth, err)
					}
					skew := want.skew
					if depth < want.depth {
						skew = 0
					}
					if s := l.MaxSkew(); skew >= 0 && s != skew {
						t.Errorf("%d ranks, depth %d: skew %d, want %d", n, depth, s, skew)
					}
				}
				got := measure(p)
				got.skew, got.depth = want.skew, want.depth
				if got != want {
					t.Errorf("%d ranks: %+v, promised %+v", n, got, want)
				}
				if r := p.Reach(); r != reach {
					t.Errorf("%d ranks: reach %+v, want %+v", n, r, reach)
				}
			}
		})
	}
}

// TestGolden compares the text of small plans with testdata. The difference
// is what there is to review in a change to an algorithm.
func TestGolden(t *testing.T) {
	for _, g := range generators {
		for _, n := range []int{2, 3, 4, 8} {
			p, err := g.new(n, 0)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", fmt.Sprintf("%s-%d.plan", strings.ReplaceAll(g.name, "/", "-"), n))
			if *update {
				if err := os.WriteFile(file, []byte(p.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if p.String() != string(want) {
				t.Errorf("%s differs; go test ./algo -update, and look at the difference", file)
			}
			q, err := plan.Parse(string(want))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if err := q.Check(); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []plan.Collective{plan.AllReduce, plan.Barrier} {
		names := Names(c)
		if len(names) < 2 {
			t.Errorf("%v has the algorithms %v", c, names)
		}
		for _, name := range names {
			if _, ok := promises[name]; !ok {
				t.Errorf("%s promises no cost", name)
			}
		}
	}
}

func TestNewErrors(t *testing.T) {
	_, err := New("allreduce/magic", 4, 0)
	var unknown *UnknownError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "allreduce/ring") {
		t.Errorf("an unknown name gives %v", err)
	}
	for _, g := range generators {
		for _, n := range []int{-1, 0, plan.MaxRanks + 1} {
			if _, err := New(g.name, n, 0); err == nil {
				t.Errorf("%s accepts %d ranks", g.name, n)
			}
		}
	}
}

// BenchmarkLower is what a communicator pays once for each plan.
func BenchmarkLower(b *testing.B) {
	for _, g := range generators {
		for _, n := range []int{8, 64} {
			p, err := g.new(n, 0)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%d", g.name, n), func(b *testing.B) {
				for b.Loop() {
					if _, err := plan.Lower(p, 2); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
