package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/plan"
)

func TestNodes(t *testing.T) {
	nodes := plan.NodesOf([]string{"b", "a", "b", "c", "a"})
	if want := (plan.Nodes{0, 1, 0, 2, 1}); !slices.Equal(nodes, want) {
		t.Errorf("nodes %v, want %v", nodes, want)
	}
	if got := fmt.Sprint(nodes.Members(), nodes.Count(), nodes.Together(0, 2), nodes.Together(0, 1)); got != "[[0 2] [1 4] [3]] 3 true false" {
		t.Error(got)
	}
	if !slices.Equal(plan.OneNode(3), plan.Nodes{0, 0, 0}) || !slices.Equal(plan.Apart(3), plan.Nodes{0, 1, 2}) {
		t.Errorf("one node %v, apart %v", plan.OneNode(3), plan.Apart(3))
	}
	if none := plan.NodesOf([]int(nil)); none.Count() != 0 || len(none.Members()) != 0 || len(plan.OneNode(-1)) != 0 {
		t.Errorf("no ranks: %v", none)
	}
}

// twoPairs returns a broadcast over two nodes of two ranks: the root shows its
// input, puts it to the other node, and everybody copies it.
func twoPairs(t *testing.T) *plan.Plan {
	t.Helper()
	b := plan.NewOver("broadcast/pairs", plan.Broadcast, plan.Nodes{0, 0, 1, 1}, 0, 1)
	in, out, scratch := plan.In.At, plan.Out.At, plan.Scratch.At
	b.Copy(0, in(0, 0), scratch(0, 0))
	b.Copy(0, scratch(0, 0), scratch(2, 0))
	b.Copy(2, scratch(2, 0), out(2, 0))
	b.Copy(3, scratch(2, 0), out(3, 0))
	b.Copy(1, scratch(0, 0), out(1, 0))
	b.Copy(0, in(0, 0), out(0, 0))
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBuilderOver: who reads what came from another node comes after the rank
// whose memory it is, although both only read.
func TestBuilderOver(t *testing.T) {
	if after := twoPairs(t).Steps[3].After; !slices.Equal(after, []plan.StepID{1, 2}) {
		t.Errorf("rank 3 reads after %v, want after the put and after rank 2", after)
	}
	in, out, scratch := plan.In.At, plan.Out.At, plan.Scratch.At
	for _, c := range []struct {
		want  string
		build func(b *plan.Builder)
	}{
		{"only by a put", func(b *plan.Builder) { b.Copy(2, in(0, 0), out(2, 0)) }},
		{"only by a put", func(b *plan.Builder) { b.Copy(1, in(0, 0), scratch(2, 0)) }},
		{"only by a put", func(b *plan.Builder) { b.Copy(0, in(0, 0), out(2, 0)) }},
		{"only by a put", func(b *plan.Builder) { b.Copy(0, in(0, 0), scratch(2, 0), scratch(3, 0)) }},
		{"only by a put", func(b *plan.Builder) { b.Copy(0, in(0, 0), scratch(0, 0), scratch(2, 0)) }},
		{"before rank 2 has", func(b *plan.Builder) {
			b.Copy(0, in(0, 0), scratch(2, 0))
			b.Copy(3, scratch(2, 0), out(3, 0))
		}},
		{"before rank 2 has", func(b *plan.Builder) {
			b.Copy(0, in(0, 0), scratch(2, 0))
			b.Copy(0, in(0, 0), scratch(3, 0))
			b.Copy(3, scratch(3, 0), scratch(2, 0))
		}},
	} {
		b := plan.NewOver("broadcast/wrong", plan.Broadcast, plan.Nodes{0, 0, 1, 1}, 0, 1)
		c.build(b)
		var be *plan.BuildError
		if _, err := b.Plan(); !errors.As(err, &be) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	_, err := plan.NewOver("broadcast/wrong", plan.Broadcast, plan.Nodes{1, 0}, 0, 1).Plan()
	kindOf(t, "nodes out of order", err, plan.Malformed)
}

func TestReachOver(t *testing.T) {
	puts, show := pair(t), pairBroadcast(t)
	for _, c := range []struct {
		what  string
		p     *plan.Plan
		nodes plan.Nodes
		want  plan.Reach
		ok    bool
	}{
		{"puts within a node", puts, plan.Nodes{0, 0}, plan.Reach{PeerPut: true}, true},
		{"puts across", puts, plan.Nodes{0, 1}, plan.Reach{}, true},
		{"stores within a node", show, plan.Nodes{0, 0}, show.Reach(), true},
		{"stores across", show, plan.Nodes{0, 1}, plan.Reach{}, false},
		{"both levels", twoPairs(t), plan.Nodes{0, 0, 1, 1}, plan.Reach{PeerScratchRead: true}, true},
		{"both levels, but crosswise", twoPairs(t), plan.Nodes{0, 1, 0, 1}, plan.Reach{}, false},
		{"both levels on one node", twoPairs(t), plan.OneNode(4), plan.Reach{PeerPut: true, PeerScratchRead: true}, true},
	} {
		if got, ok := c.p.ReachOver(c.nodes); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.what, got, ok, c.want, c.ok)
		}
		_, err := plan.LowerOver(c.p, 2, c.nodes)
		if c.ok && err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if !c.ok {
			kindOf(t, c.what, err, plan.OutOfReach)
		}
	}
	if _, ok := puts.ReachOver(plan.Nodes{0}); ok {
		t.Error("a plan of 2 ranks runs over 1")
	}
	_, err := plan.LowerOver(puts, 2, plan.Nodes{0})
	kindOf(t, "a rank too few", err, plan.Malformed)
	_, err = plan.LowerOver(puts, 2, plan.Nodes{-1, 0})
	kindOf(t, "a negative node", err, plan.Malformed)
}

// TestLowerArrivals: a rank waits for one rank of each other node that it puts
// to, not always the same, and for none of its own.
func TestLowerArrivals(t *testing.T) {
	b := plan.NewBuilder("alltoall/puts", plan.AllToAll, 4, 1)
	for r := range 4 {
		for q := range 4 {
			if q != r {
				b.Copy(r, plan.In.At(r, q), plan.Scratch.At(q, r))
				b.Copy(q, plan.Scratch.At(q, r), plan.Out.At(q, r))
			} else {
				b.Copy(r, plan.In.At(r, r), plan.Out.At(r, r))
			}
		}
	}
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		nodes        plan.Nodes
		arrive, told string
	}{
		{plan.Nodes{0, 0, 1, 1}, "[[2] [3] [0] [1]]", "[[2] [3] [0] [1]]"},
		{plan.Nodes{0, 1, 1, 2}, "[[1 3] [0 3] [0 3] [0 2]]", "[[1 2 3] [0] [3] [0 1 2]]"},
		{plan.OneNode(4), "[[] [] [] []]", "[[] [] [] []]"},
		{nil, "[[1 2 3] [0 2 3] [0 1 3] [0 1 2]]", "[[1 2 3] [0 2 3] [0 1 3] [0 1 2]]"},
	} {
		l, err := plan.LowerOver(p, 2, c.nodes)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Verify(); err != nil {
			t.Errorf("nodes %v: %v", c.nodes, err)
		}
		var arrive, told [][]int
		for _, prog := range l.Programs {
			arrive, told = append(arrive, prog.Arrive), append(told, prog.Told)
		}
		if fmt.Sprint(arrive) != c.arrive || fmt.Sprint(told) != c.told {
			t.Errorf("nodes %v: arrive %v, told %v; want %s, %s", c.nodes, arrive, told, c.arrive, c.told)
		}
	}
}

// TestVerifyOverRefuses changes programs over two nodes of two ranks.
func TestVerifyOverRefuses(t *testing.T) {
	for _, c := range []struct {
		what   string
		want   plan.Kind
		change func(l *plan.Lowered)
	}{
		{"another grouping", plan.OutOfReach, func(l *plan.Lowered) { l.Nodes = plan.Nodes{0, 1, 0, 1} }},
		{"nodes not numbered in order", plan.Malformed, func(l *plan.Lowered) { l.Nodes = plan.Nodes{1, 1, 0, 0} }},
		{"a store across", plan.OutOfReach, func(l *plan.Lowered) {
			l.Programs[0].Actions[1].Dsts = []plan.Place{plan.Out.At(2, 0)}
		}},
		{"no arrival", plan.NotArrived, func(l *plan.Lowered) { l.Programs[0].Arrive = nil }},
		{"arrival that nobody tells", plan.Unsignalled, func(l *plan.Lowered) { l.Programs[2].Told = nil }},
		{"arrival of the own node", plan.Malformed, func(l *plan.Lowered) { l.Programs[0].Arrive = []int{1} }},
		{"arrival of nobody", plan.Malformed, func(l *plan.Lowered) { l.Programs[0].Arrive = []int{4} }},
		{"a reader who waits for the wrong one", plan.Undelivered, func(l *plan.Lowered) {
			// Rank 0 tells rank 3 that it has put to rank 2, but not that the bytes
			// are there.
			l.Programs[3].Actions[0].Waits = []plan.Wait{{Rank: 0, Action: 1}}
			l.Programs[0].Actions[1].Peers = []int{2, 3}
		}},
	} {
		l, err := plan.LowerOver(twoPairs(t), 2, plan.Nodes{0, 0, 1, 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Verify(); err != nil {
			t.Fatal(err)
		}
		c.change(l)
		kindOf(t, c.what, l.Verify(), c.want)
	}
}

// TestVerifyArrivalOfAnother: any rank of a node speaks for all of it.
func TestVerifyArrivalOfAnother(t *testing.T) {
	l, err := plan.LowerOver(twoPairs(t), 2, plan.Nodes{0, 0, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	l.Programs[0].Arrive, l.Programs[2].Told, l.Programs[3].Told = []int{3}, nil, []int{0}
	if err := l.Verify(); err != nil {
		t.Error(err)
	}
}

// TestUnusedPut: a rank waits also for what it does not use, before it returns:
// in its next call something else may be there.
func TestUnusedPut(t *testing.T) {
	b := plan.NewRooted("broadcast/unused", plan.Broadcast, 2, 0, 1)
	b.Copy(0, plan.In.At(0, 0), plan.Scratch.At(1, 0))
	b.Copy(1, plan.Scratch.At(1, 0), plan.Out.At(1, 0))
	b.Copy(0, plan.In.At(0, 0), plan.Scratch.At(1, 1))
	b.Copy(0, plan.In.At(0, 0), plan.Out.At(0, 0))
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	l, err := plan.Lower(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(l.Programs[1].Finish); got != "[0.1]" {
		t.Errorf("rank 1 finishes after %s, want after 0.1", got)
	}
	l.Programs[1].Finish = nil
	kindOf(t, "no wait for the unused", l.Verify(), plan.Undelivered)
	// Within a node, whoever may have stored there has arrived.
	if l, err = plan.LowerOver(p, 2, plan.OneNode(2)); err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(); err != nil || len(l.Programs[1].Finish) > 0 {
		t.Errorf("%v, finish %v", err, l.Programs[1].Finish)
	}
}
