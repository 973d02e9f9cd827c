package algo

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

var (
	update = flag.Bool("update", false, "rewrite the golden plans in testdata")
	full   = flag.Bool("full", false, "prove every plan for every root: minutes instead of one")
)

const maxRanks = 64

// A promise is what an algorithm's doc comment says about its plans for 2 or
// more ranks, besides the [Cost].
type promise struct {
	counts func(n int) counts
	reach  func(n int) plan.Reach
	// rooted: counts and Cost are those of root 0. Else they are the same
	// for every root.
	rooted bool
}

// counts are summed over all ranks.
type counts struct {
	steps  int
	moves  int // chunks that a rank reads from or writes to a peer
	copies int // chunks that a rank copies within its own memory
	puts   int
	skew   int // pipeline stages - 1, from depth on; -1: no promise
	depth  int
	below  int // the same at depth 2, where that is less than depth
}

// always is a reach that does not depend on the number of ranks.
func always(r plan.Reach) func(int) plan.Reach { return func(int) plan.Reach { return r } }

// log2 returns ⌊log2 n⌋.
func log2(n int) int { return bits.Len(uint(n)) - 1 }

// promises has the promises of every family, each from the family's own test
// file.
var promises = func() map[string]promise {
	all := map[string]promise{}
	for _, family := range []map[string]promise{mappedPromises, treePromises, exchangePromises} {
		maps.Copy(all, family)
	}
	return all
}()

func measure(p *plan.Plan) counts {
	c := counts{steps: len(p.Steps)}
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

// roots returns the roots there are.
func roots(c plan.Collective, n int) []int {
	if !c.Rooted() {
		return []int{0}
	}
	all := make([]int, n)
	for r := range all {
		all[r] = r
	}
	return all
}

// checked returns the roots that TestEveryPlan takes: all of up to 32 ranks and
// of 64, and a few of the numbers between. With -full all, with -short fewer.
func checked(c plan.Collective, n int) []int {
	all := roots(c, n)
	switch {
	case *full, len(all) == 1, n <= 16, !testing.Short() && (n <= 32 || n == maxRanks):
		return all
	}
	return slices.DeleteFunc(all, func(root int) bool { return !corner(n, root) })
}

// proved reports whether TestEveryPlan also lowers and verifies the plan for a
// root, which takes most of its time.
func proved(n, root int) bool { return *full || n <= 16 || corner(n, root) }

func corner(n, root int) bool { return root == 0 || root == 1 || root == n/2 || root == n-1 }

// TestEveryPlan checks each algorithm for every number of ranks and the roots
// that [checked] returns, holds it to its cost and to what else its doc comment
// promises, and proves it at two depths where [proved] says so.
func TestEveryPlan(t *testing.T) {
	for _, g := range generators {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= maxRanks; n++ {
				if testing.Short() && n > 9 && n != 15 && n != 16 && n != 17 && n != maxRanks {
					continue
				}
				for _, root := range checked(g.collective, n) {
					if err := holds(g, n, root); err != nil {
						t.Fatalf("%d ranks, root %d: %v", n, root, err)
					}
				}
			}
		})
	}
}

// holds returns what is wrong with the plan of a generator.
func holds(g generator, n, root int) error {
	p, err := New(g.name, n, root)
	if err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return err
	}
	if p.Name != g.name || p.Collective != g.collective || p.Ranks != n || p.Root != root {
		return fmt.Errorf("the plan says %s, %v, %d ranks, root %d", p.Name, p.Collective, p.Ranks, p.Root)
	}
	want, reach := counts{}, plan.Reach{}
	switch {
	case n > 1:
		want, reach = promises[g.name].counts(n), promises[g.name].reach(n)
	case g.collective != plan.Barrier:
		want = counts{steps: 1, copies: 1}
	}
	if root == 0 || !promises[g.name].rooted {
		got := measure(p)
		got.skew, got.depth, got.below = want.skew, want.depth, want.below
		if got != want {
			return fmt.Errorf("%+v, promised %+v", got, want)
		}
		if err := costs(g.name, p); err != nil {
			return err
		}
	}
	if r := p.Reach(); r != reach {
		return fmt.Errorf("reach %+v, want %+v", r, reach)
	}
	if !proved(n, root) {
		return nil
	}
	for _, depth := range []int{2, 4} {
		l, err := plan.Lower(p, depth)
		if err != nil {
			return err
		}
		if err := l.Verify(); err != nil {
			return fmt.Errorf("depth %d: %w", depth, err)
		}
		skew := want.skew
		if depth < want.depth {
			skew = want.below
		}
		if root > 0 && promises[g.name].rooted {
			skew = -1
		}
		if s := l.MaxSkew(); skew >= 0 && s != skew {
			return fmt.Errorf("depth %d: skew %d, want %d", depth, s, skew)
		}
	}
	return nil
}

// costs counts what the formula says.
func costs(name string, p *plan.Plan) error {
	const tiny = 1e-9
	want, err := CostFor(name, p.Ranks)
	if err != nil {
		return err
	}
	got := CostOf(p)
	if got.Alpha != want.Alpha || math.Abs(got.Beta-want.Beta) > tiny || math.Abs(got.Gamma-want.Gamma) > tiny {
		return fmt.Errorf("the plan costs %+v, the formula says %+v", got, want)
	}
	return nil
}

// TestCostOf counts a plan that is small enough to count by hand.
func TestCostOf(t *testing.T) {
	in, out, scratch := plan.In.At, plan.Out.At, plan.Scratch.At
	b := plan.NewRooted("gather/by-hand", plan.Gather, 2, 1, 2)
	b.Copy(0, in(0, 0), scratch(0, 0), scratch(0, 1)) // 2 chunks of the 4 of Out
	b.Copy(0, in(0, 1), out(1, 1))                    // 1
	b.Copy(1, scratch(0, 1), out(1, 0))               // 1, after a wait
	b.Copy(1, in(1, 0), out(1, 2))                    // 1
	b.Copy(0, in(1, 1), out(1, 3))                    // 2: there and back
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := CostOf(p), (Cost{1, 5. / 4, 0}); got != want {
		t.Errorf("cost %+v, want %+v", got, want)
	}
	b = plan.NewBuilder("allreduce/by-hand", plan.AllReduce, 3, 1)
	b.Copy(1, in(1, 0), scratch(2, 0))
	b.Reduce(2, []plan.Place{scratch(2, 0)}, in(2, 0), scratch(2, 0), in(0, 0))
	b.Copy(2, scratch(2, 0), out(0, 0), out(1, 0), out(2, 0))
	if p, err = b.Plan(); err != nil {
		t.Fatal(err)
	}
	if got, want := CostOf(p), (Cost{1, 3, 2}); got != want {
		t.Errorf("cost %+v, want %+v", got, want)
	}
}

// TestGolden compares the text of small plans with testdata. The difference
// is what there is to review in a change to an algorithm.
func TestGolden(t *testing.T) {
	for _, g := range generators {
		for _, size := range []struct{ ranks, root int }{{2, 0}, {3, 0}, {4, 0}, {8, 0}, {4, 2}} {
			n, root := size.ranks, size.root
			if root > 0 && !g.collective.Rooted() {
				continue
			}
			p, err := g.new(n, root)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, p, goldenName(g.name, n, root))
		}
	}
}

// golden compares the text of a plan with a file in testdata.
func golden(t *testing.T, p *plan.Plan, name string) {
	t.Helper()
	file := filepath.Join("testdata", name)
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

func goldenName(name string, ranks, root int) string {
	file := fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "/", "-"), ranks)
	if root > 0 {
		file += fmt.Sprintf("-root%d", root)
	}
	return file + ".plan"
}

// TestNames: every name is found under its collective, and what it promises
// is written down.
func TestNames(t *testing.T) {
	listed := 0
	for _, c := range plan.Collectives() {
		for _, name := range Names(c) {
			listed++
			if _, ok := promises[name]; !ok && !strings.Contains(name, "/hier") {
				t.Errorf("%s promises nothing", name)
			}
			if family, _, _ := strings.Cut(name, "/"); family != c.String() {
				t.Errorf("%s is listed under %v", name, c)
			}
		}
	}
	if listed != len(generators)+len(hierGenerators) || len(promises) != len(generators) {
		t.Errorf("%d generators, %d names, %d promises", len(generators), listed, len(promises))
	}
	for _, c := range []plan.Collective{plan.AllReduce, plan.Barrier} {
		if names := Names(c); len(names) < 2 {
			t.Errorf("%v has the algorithms %v", c, names)
		}
	}
}

func TestNewErrors(t *testing.T) {
	var unknown *UnknownError
	if _, err := New("allreduce/magic", 4, 0); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "allreduce/ring") {
		t.Errorf("an unknown name gives %v", err)
	}
	if _, err := CostFor("allreduce/magic", 4); !errors.As(err, &unknown) {
		t.Errorf("the cost of an unknown name gives %v", err)
	}
	for _, g := range generators {
		for _, n := range []int{-1, 0, plan.MaxRanks + 1} {
			if _, err := New(g.name, n, 0); err == nil {
				t.Errorf("%s accepts %d ranks", g.name, n)
			}
			if _, err := CostFor(g.name, n); err == nil {
				t.Errorf("%s has a cost for %d ranks", g.name, n)
			}
		}
		for _, root := range []int{-1, 4} {
			if _, err := New(g.name, 4, root); err == nil {
				t.Errorf("%s accepts root %d of 4 ranks", g.name, root)
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
