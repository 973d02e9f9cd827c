package tune

import (
	"strings"

	"github.com/tutti-go/tutti/plan"
)

// Between nodes bytes travel by puts, and every round of a plan costs the
// latency of the network, which is many times what a round costs inside.
const (
	// acrossTile is the unit that overlaps with the next node's. With its frame and
	// the notification behind it, it is one packet of 64 KiB to the kernel.
	acrossTile = 63 << 10
	// shortBytes is up to where the fewest rounds are best, and middleBytes up
	// to where few rounds are worth more than even traffic.
	shortBytes  = 32 << 10
	middleBytes = 1 << 20
	// meetBytes is from where it pays that ranks first tell each other whether
	// their buffers are mapped: that costs a round, and spares a copy inside
	// the nodes.
	meetBytes = 1 << 20
)

// across is Choose where not all ranks are mapped.
func across(r Request) Choice {
	if r.Ordered || r.Coded || r.Neighbours < 2 {
		return flat(r)
	}
	return hierarchical(r)
}

// flat is the choice where every rank puts to every other.
func flat(r Request) Choice {
	pick := func(short, long string) Choice {
		if r.Bytes <= shortBytes {
			return r.choice(short, acrossTile, depth)
		}
		return r.choice(long, acrossTile, depth)
	}
	switch r.Collective {
	case plan.Barrier:
		return r.choice("dissemination", 64, 2)
	case plan.Broadcast:
		return pick("binomial", "doubletree")
	case plan.Gather, plan.Scatter:
		if r.Uneven {
			return pick("linear", "linear")
		}
		return pick("binomial", "linear")
	case plan.AllGather:
		if r.Uneven {
			return pick("ring", "ring")
		}
		return pick("bruck", "ring")
	case plan.AllToAll:
		if r.Uneven {
			return pick("pairwise", "pairwise")
		}
		return pick("bruck", "pairwise")
	}
	switch {
	case r.Ordered, r.Coded: // a code is made of each contribution and of the sum, no more
		return pick("pairwise", "pairwise")
	case r.Collective == plan.Reduction:
		return pick("binomial", "doubletree")
	case r.Collective == plan.ReduceScatter && !r.Uneven:
		return pick("halving", "ring")
	case r.Collective == plan.ReduceScatter:
		return pick("ring", "ring")
	}
	return pick("doubling", "ring")
}

// hierarchical is the choice where nodes have several ranks: each node does as
// much as it can inside, and all its ranks at once exchange with other nodes.
func hierarchical(r Request) Choice {
	if r.Collective == plan.Barrier {
		return r.choice("hier", 64, 2)
	}
	if r.Blind && !r.Uneven && r.Bytes >= meetBytes {
		return Choice{}
	}
	name := ""
	switch r.Collective {
	case plan.AllReduce:
		switch {
		case r.Bytes <= shortBytes:
			return r.choice("hier-doubling", acrossTile, depth)
		case r.Bytes <= middleBytes:
			name = "hier-halving-doubling"
		default:
			name = "hier-ring"
		}
	case plan.Broadcast, plan.Reduction:
		if name = "hier-chain"; r.Bytes <= shortBytes {
			name = "hier-tree"
		}
	case plan.AllGather:
		if name = "hier-ring"; r.Bytes <= shortBytes && !r.Uneven {
			name = "hier-doubling"
		}
	case plan.ReduceScatter:
		if name = "hier-ring"; r.Bytes <= shortBytes && !r.Uneven {
			name = "hier-halving"
		}
	default:
		name = "hier"
	}
	if r.MappedData {
		name += "-direct"
	}
	return r.choice(name, acrossTile, depth)
}

// forcedAcross is For where not all ranks are mapped. Plans that need the
// buffers of a node mapped can be chosen only by ranks that have met.
func forcedAcross(algo string, r Request) Choice {
	if r.Blind && r.Neighbours > 1 && strings.HasSuffix(algo, "-direct") {
		return Choice{}
	}
	return Choice{algo, acrossTile, depth}
}
