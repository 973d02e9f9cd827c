package plan

import "slices"

// Skews are the longest paths over two kinds of constraints:
//
//	skew[step] >= skew[dependency] + gain   gain 1 across ranks, else 0
//	skew[writer] >= skew[user] - depth + 1  for every reuse of scratch
//
// The first kind is what pipelining asks for: a rank hands tile t on and
// works on tile t+1 while its peer handles tile t. Gain 0 would be correct
// too. The second kind is what correctness asks for: the user of tile
// t-depth runs in an earlier iteration than the writer of tile t.
//
// Where the two contradict, because a value lives in scratch for depth hops
// or more, there is a cycle of positive length. The gains on it are then
// given up. With all gains 0 all skews are 0, which satisfies everything.

// maxRelax bounds how many cycles are relaxed one by one before all gains
// are given up at once.
const maxRelax = 64

func (lo *lowering) skews() {
	type edge struct{ from, to StepID }
	flat := map[edge]bool{} // edges whose gain has been given up
	for round := 0; ; round++ {
		gain := func(from, to StepID) int {
			if round > maxRelax || lo.p.Steps[from].Rank == lo.p.Steps[to].Rank || flat[edge{from, to}] {
				return 0
			}
			return 1
		}
		cycle := lo.relax(gain)
		if cycle == nil {
			return
		}
		for i, from := range cycle {
			flat[edge{from, cycle[(i+1)%len(cycle)]}] = true
		}
	}
}

// relax sets lo.skew to the longest paths under the given gains, or returns
// a cycle of positive length, each step followed by one that depends on it.
func (lo *lowering) relax(gain func(from, to StepID) int) []StepID {
	n := len(lo.p.Steps)
	lo.skew = make([]int, n)
	by := make([]StepID, n) // who determined the skew, or -1
	for i := range by {
		by[i] = -1
	}
	for {
		for id := range n {
			for _, d := range lo.p.Steps[id].After {
				if v := lo.skew[d] + gain(d, StepID(id)); v > lo.skew[id] {
					lo.skew[id], by[id] = v, d
				}
			}
		}
		changed := false
		for _, r := range lo.reuse {
			for _, u := range r.users {
				if v := lo.skew[u] - lo.depth + 1; v > lo.skew[r.writer] {
					lo.skew[r.writer], by[r.writer] = v, u
					changed = true
				}
			}
		}
		if !changed {
			return nil
		}
		if c := findCycle(by); c != nil {
			return c
		}
	}
}

// findCycle returns a cycle in the graph of who determined whom, in the direction of
// dependency, or nil.
func findCycle(by []StepID) []StepID {
	mark := make([]int, len(by)) // the walk that has passed here
	for start := range by {
		s := StepID(start)
		for s >= 0 && mark[s] == 0 {
			mark[s] = start + 1
			s = by[s]
		}
		if s < 0 || mark[s] != start+1 {
			continue
		}
		cycle := []StepID{s}
		for q := by[s]; q != s; q = by[q] {
			cycle = append(cycle, q)
		}
		slices.Reverse(cycle) // the walk went backwards
		return cycle
	}
	return nil
}
