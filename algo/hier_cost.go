package algo

// A flow says how many blocks of each home a node puts and gets in the rounds of
// a pattern: [node][home].
type flow struct{ puts, gets [][]int }

func flowOf(nodes int, rounds [][]move) flow {
	f := flow{make([][]int, nodes), make([][]int, nodes)}
	for k := range nodes {
		f.puts[k], f.gets[k] = make([]int, nodes), make([]int, nodes)
	}
	for _, round := range rounds {
		for _, m := range round {
			f.puts[m.from][m.block]++
			f.gets[m.to][m.block]++
		}
	}
	return f
}

// flows returns those of both directions of a pattern.
func (g *grouping) flows(among pattern) (up, down flow) {
	if len(g.members) == 1 {
		return flowOf(1, nil), flowOf(1, nil)
	}
	a, b := among(len(g.members))
	return flowOf(len(g.members), a), flowOf(len(g.members), b)
}

// mates returns how many others there are in r's node.
func (g *grouping) mates(r int) int { return len(g.members[g.node[r]]) - 1 }

// copiesOut returns what an owner moves as it copies what has come: directly, to
// each mate; else to its own Out and, if it has mates, to scratch.
func (g *grouping) copiesOut(r int, direct bool) int {
	if direct {
		return max(1, g.mates(r))
	}
	return 1 + min(1, g.mates(r))
}

// lotsOf calls f for the lots that a rank owns, and returns how many it does not
// own, which it shows and copies if it has mates.
func (g *grouping) lotsOf(r int, lots []lot, f func(home int)) (others int) {
	for _, l := range lots {
		if g.owner(g.node[r], l.lane) == r {
			f(l.home)
		} else {
			others++
		}
	}
	return others
}

// crowded is 1 if a node has several ranks, or 0: so many waits a stage within
// nodes comes to.
func (g *grouping) crowded() int { return min(1, g.lanes-1) }

// summing returns the load of the way up: what a rank shows of lots that it does
// not own, and reads and combines of its own.
func (g *grouping) summing(r int, lots []lot, up flow, direct bool) load {
	var l load
	others := g.lotsOf(r, lots, func(home int) {
		k := g.node[r]
		l.inside += g.mates(r)
		l.put += up.puts[k][home]
		l.got += up.gets[k][home]
		l.combined += g.mates(r) + up.gets[k][home]
	})
	if !direct {
		l.inside += others
	}
	return l
}

// spreading adds the way down: what an owner copies out, and others from it.
func (g *grouping) spreading(l load, r int, lots []lot, down flow, direct bool) load {
	others := g.lotsOf(r, lots, func(home int) {
		k := g.node[r]
		l.put += down.puts[k][home]
		l.got += down.gets[k][home]
		if home != k {
			l.inside += g.copiesOut(r, direct)
		}
	})
	if !direct {
		l.inside += others
	}
	return l
}

// hierAllReduceCost is the cost of hierAllReduce.
func hierAllReduceCost(cut func(*grouping) []lot, among pattern, hops func(nodes int) int, direct bool) func(g *grouping, _ int) LevelCost {
	return func(g *grouping, _ int) LevelCost {
		lots := cut(g)
		up, down := g.flows(among)
		inside := 2 * g.crowded()
		if direct {
			inside = 0
		}
		return g.cost(inside, 2*hops(len(g.members)), len(lots), func(r int) load {
			l := g.spreading(g.summing(r, lots, up, direct), r, lots, down, direct)
			if direct { // the sums go to all at once
				g.lotsOf(r, lots, func(home int) {
					if home == g.node[r] {
						l.inside += g.mates(r)
					}
				})
			}
			return l
		})
	}
}

// hierDoublingCost is the cost of [AllReduceHierDoubling].
func hierDoublingCost(g *grouping, _ int) LevelCost {
	n := len(g.members)
	rounds := floorLog2(n)
	extra := n - 1<<rounds
	return g.cost(2*g.crowded(), doublingHops(n), 1, func(r int) load {
		if g.index[r] > 0 {
			return load{inside: 2} // shows, and copies the sum
		}
		l := load{inside: g.mates(r), combined: g.mates(r)}
		switch k := g.node[r]; {
		case k >= 2*extra: // takes part
			l.put, l.got, l.combined = rounds, rounds, l.combined+rounds
		case k%2 == 0: // and folds for the next one
			l.put, l.got, l.combined = rounds+1, rounds+1, l.combined+rounds+1
		default: // stands aside
			l.put, l.got, l.inside = 1, 1, l.inside+g.copiesOut(r, false)
		}
		return l
	})
}

// hierReduceScatterCost is the cost of hierReduceScatter.
func hierReduceScatterCost(among pattern, hops func(nodes int) int, direct bool) func(g *grouping, _ int) LevelCost {
	return func(g *grouping, _ int) LevelCost {
		up, _ := g.flows(among)
		inside := g.crowded()
		if direct {
			inside = 0
		}
		return g.cost(inside, hops(len(g.members)), len(g.node), func(r int) load {
			return g.summing(r, g.laneOwn(), up, direct)
		})
	}
}

// hierReduceCost is the cost of hierReduce.
func hierReduceCost(among pattern, hops func(nodes int) int, direct bool) func(g *grouping, root int) LevelCost {
	return func(g *grouping, root int) LevelCost {
		lots := g.laneAt(root)
		up, _ := g.flows(among)
		inside := g.crowded()
		switch {
		case direct:
			inside = 0
		case !g.alone(root):
			inside = 2
		}
		return g.cost(inside, hops(len(g.members)), len(lots), func(r int) load {
			l := g.summing(r, lots, up, direct)
			switch others := g.lotsOf(r, lots, func(int) {}); {
			case r == root && !direct:
				l.inside += others
			case r != root && direct && g.node[r] == g.node[root]:
				l.inside += len(lots) - others // the sums, into the root's Out
			}
			return l
		})
	}
}

// hierBroadcastCost is the cost of hierBroadcast.
func hierBroadcastCost(among pattern, hops func(nodes int) int, direct bool) func(g *grouping, root int) LevelCost {
	return func(g *grouping, root int) LevelCost {
		lots := g.laneAt(root)
		_, down := g.flows(among)
		inside := g.crowded()
		switch {
		case direct:
			inside = 0
		case !g.alone(root) && len(g.members) > 1 && g.fellows(root):
			inside = 2
		}
		return g.cost(inside, hops(len(g.members)), len(lots), func(r int) load {
			l := g.spreading(load{}, r, lots, down, direct)
			if g.node[r] != g.node[root] {
				return l
			}
			own := len(lots) - g.lotsOf(r, lots, func(int) {})
			switch {
			case !direct && r == root && !g.alone(r):
				l.inside = 2 * len(lots)
			case !direct:
				l.inside = len(lots)
			case r == root:
				l.inside = own * g.copiesOut(r, true)
			default:
				l.inside = own * (1 + g.mates(r))
			}
			return l
		})
	}
}

// fellows reports whether a node that is not the rank's own has several ranks.
func (g *grouping) fellows(rank int) bool {
	for k, ranks := range g.members {
		if k != g.node[rank] && len(ranks) > 1 {
			return true
		}
	}
	return false
}

// hierAllGatherCost is the cost of hierAllGather.
func hierAllGatherCost(among pattern, hops func(nodes int) int, direct bool) func(g *grouping, _ int) LevelCost {
	return func(g *grouping, _ int) LevelCost {
		_, down := g.flows(among)
		inside := g.crowded()
		if direct {
			inside = 0
		}
		return g.cost(inside, hops(len(g.members)), len(g.node), func(r int) load {
			l := g.spreading(load{}, r, g.laneOwn(), down, direct)
			l.inside += g.copiesOut(r, direct) // of its own
			return l
		})
	}
}

// helped returns by rank how many blocks of ranks of other nodes pass through it
// in a scatter from the root, or in a gather.
func (g *grouping) helped(root int) []int {
	n := make([]int, len(g.node))
	g.away(root, func(_, lane int) { n[g.owner(g.node[root], lane)]++ })
	return n
}

// hierGatherCost is the cost of hierGather.
func hierGatherCost(direct bool) func(g *grouping, root int) LevelCost {
	return func(g *grouping, root int) LevelCost {
		helped := g.helped(root)
		away := len(g.node) - len(g.members[g.node[root]])
		inside := 1
		if direct || g.alone(root) {
			inside = 0
		}
		return g.cost(inside, min(1, away), len(g.node), func(r int) load {
			switch {
			case g.node[r] != g.node[root]:
				return load{put: 1}
			case direct:
				return load{inside: 1 + helped[r], got: helped[r]}
			case r == root:
				return load{inside: len(g.node), got: away}
			}
			return load{inside: 1}
		})
	}
}

// hierScatterCost is the cost of hierScatter.
func hierScatterCost(direct bool) func(g *grouping, root int) LevelCost {
	return func(g *grouping, root int) LevelCost {
		helped := g.helped(root)
		away := len(g.node) - len(g.members[g.node[root]])
		inside := 1
		if direct || g.alone(root) {
			inside = 0
		}
		return g.cost(inside, min(1, away), len(g.node), func(r int) load {
			switch {
			case g.node[r] != g.node[root]:
				return load{inside: 1, got: 1}
			case r != root:
				return load{inside: 1 + helped[r], put: helped[r]}
			case direct:
				return load{inside: 1, put: helped[r]}
			}
			return load{inside: len(g.node) - helped[r], put: helped[r]}
		})
	}
}

// hierAllToAllCost is the cost of hierAllToAll.
func hierAllToAllCost(direct bool) func(g *grouping, _ int) LevelCost {
	return func(g *grouping, _ int) LevelCost {
		n := len(g.node)
		inside := g.crowded()
		if direct {
			inside = 0
		}
		return g.cost(inside, min(1, len(g.members)-1), n, func(r int) load {
			away := n - 1 - g.mates(r)
			l := load{inside: n, put: away, got: away}
			if !direct {
				l.inside += g.mates(r)
			}
			return l
		})
	}
}

// hierBarrierCost is the cost of [BarrierHier].
func hierBarrierCost(g *grouping, _ int) LevelCost {
	return LevelCost{Inside: Cost{Alpha: 2 * g.crowded()}, Across: Cost{Alpha: ceilLog2(len(g.members))}}
}
