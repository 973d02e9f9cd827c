package tune

import (
	"testing"

	"github.com/tutti-go/tutti/algo"
	"github.com/tutti-go/tutti/plan"
)

// requests is a grid over everything that a choice may depend on.
func requests() []Request {
	var all []Request
	for _, collective := range plan.Collectives() {
		for bytes := 1; bytes <= 1<<30; bytes *= 2 {
			for _, ranks := range []int{2, 3, 8} {
				for _, mapped := range []int{0, 1, 2} {
					for _, blind := range []bool{false, true} {
						r := Request{
							Collective: collective, Bytes: bytes, Ranks: ranks, Crowded: ranks > 2,
							MappedScratch: mapped > 0, MappedData: mapped > 1 && !blind, Blind: blind,
							Nodes: 1, Neighbours: ranks,
						}
						if all = append(all, r); mapped == 1 { // the same across nodes
							continue
						}
						for _, nodes := range []plan.Nodes{plan.Apart(ranks), twoNodes(ranks)} {
							r.MappedScratch, r.Nodes, r.Neighbours = false, nodes.Count(), len(nodes.Members()[0])
							all = append(all, r)
						}
					}
				}
			}
		}
	}
	return all
}

// twoNodes is a grouping of ranks on two nodes by turns.
func twoNodes(ranks int) plan.Nodes {
	nodes := plan.OneNode(ranks)
	for r := range nodes {
		nodes[r] = r % 2
	}
	return nodes
}

// nodesOf is the grouping that a request is about.
func nodesOf(r Request) plan.Nodes {
	switch {
	case r.MappedScratch:
		return plan.OneNode(r.Ranks)
	case r.Neighbours > 1 && r.Nodes > 1:
		return twoNodes(r.Ranks)
	}
	return plan.Apart(r.Ranks)
}

// TestChoicesCanRun holds every choice against what its plan needs.
func TestChoicesCanRun(t *testing.T) {
	for _, r := range requests() {
		c := Choose(r)
		if c.Algo == "" {
			if !r.Blind {
				t.Errorf("%+v: no choice", r)
			}
			continue
		}
		if c.IsMessages() { // no plan
			if !r.Blind || !r.MappedScratch || !r.Collective.Rooted() || r.Collective.Reduces() {
				t.Errorf("%+v: messages", r)
			}
			continue
		}
		p, err := algo.NewOver(c.Algo, nodesOf(r), 0)
		if err != nil {
			t.Errorf("%+v: %v", r, err)
			continue
		}
		inside, ok := p.ReachOver(nodesOf(r))
		if p.Collective != r.Collective || !ok || !r.MappedData && !inside.ScratchOnly() {
			t.Errorf("%+v: %s cannot run there", r, c.Algo)
		}
		if c.TileBytes < 64 || c.Depth < 1 {
			t.Errorf("%+v: %+v", r, c)
		}
	}
}

// TestBlindAgrees: what is chosen before arrival must be what is chosen after
// it, whatever the ranks learn of each other; else ranks would part.
func TestBlindAgrees(t *testing.T) {
	for _, r := range requests() {
		if !r.Blind || !r.MappedScratch {
			continue
		}
		blind := Choose(r)
		if blind.Algo == "" || blind.IsMessages() { // which all take, and nobody asks again
			continue
		}
		for _, data := range []bool{false, true} {
			r.Blind, r.MappedData = false, data
			if seeing := Choose(r); seeing != blind {
				t.Errorf("%+v: %+v blind, %+v seeing", r, blind, seeing)
			}
		}
	}
}

func TestForInsists(t *testing.T) {
	for _, name := range algo.Names(plan.AllReduce) {
		for _, r := range requests() {
			if r.Collective != plan.AllReduce {
				continue
			}
			c := For(name, r)
			if c.Algo != name && (c.Algo != "" || !r.Blind) {
				t.Errorf("%+v: asked for %s, got %+v", r, name, c)
			}
		}
	}
}

// TestOneWayTiles: where bytes go one way only, tiles overlap in short messages,
// stay in the cache in longer ones, and are few in the longest.
func TestOneWayTiles(t *testing.T) {
	for bytes, want := range map[int]int{128 << 10: 32 << 10, 256 << 10: 64 << 10, 1 << 20: 128 << 10, 16 << 20: 128 << 10, 256 << 20: 512 << 10} {
		for _, c := range []plan.Collective{plan.Broadcast, plan.Gather, plan.Scatter} {
			r := Request{Collective: c, Bytes: bytes, Ranks: 2, MappedScratch: true}
			if got := Choose(r); got.Algo != c.String()+"/staged" || got.TileBytes != want {
				t.Errorf("%v of %d bytes: %+v, want tiles of %d", c, bytes, got, want)
			}
		}
	}
}

// TestStagedTiles: the more ranks, the smaller the tiles, so that the scratch
// of all of them stays in the cache.
func TestStagedTiles(t *testing.T) {
	for ranks, want := range map[int]int{2: 256 << 10, 4: 256 << 10, 5: 128 << 10, 8: 64 << 10, 16: 16 << 10, 64: 16 << 10} {
		r := Request{Collective: plan.AllReduce, Bytes: 1 << 30, Ranks: ranks, Crowded: ranks > 2, MappedScratch: true}
		if c := Choose(r); c.Algo != "allreduce/staged" || c.TileBytes != want {
			t.Errorf("%d ranks: %+v, want tiles of %d bytes", ranks, c, want)
		}
	}
}
