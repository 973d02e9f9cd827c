// Package tune chooses how a collective runs: which algorithm, cut into tiles
// of which size. It knows costs, not how anything is run.
//
// The choices are rules drawn from measurements (docs/architecture.md says
// which); every rank must come to the same choice, so they depend only on what
// all ranks know.
package tune

import (
	"strings"

	"github.com/tutti-go/tutti/plan"
)

// Request is what a choice may depend on.
type Request struct {
	Collective plan.Collective
	Bytes      int // of a block: the buffer, or the share of one rank in it
	Ranks      int
	Crowded    bool // more ranks on this machine than cores they may use

	// Uneven: blocks differ in size, and Bytes is the largest.
	Uneven bool
	// Ordered: only plans that combine contributions in rank order.
	Ordered bool
	// Coded: elements travel in another form than they have in the buffers,
	// so nobody can read a peer's buffers in place.
	Coded bool

	// MappedScratch: all ranks can load and store each other's scratch. Else only
	// those of one node can; there are so many nodes, and so many ranks on the
	// largest.
	MappedScratch bool
	Nodes         int
	Neighbours    int
	// MappedData: and also the buffers of this call. Ranks learn it of each
	// other when they meet; Blind asks before that.
	MappedData bool
	Blind      bool
	// Attach: all ranks can copy each other's ordinary memory by address.
	Attach bool
}

// Choice says how to run. Without an Algo it means: ask again when the ranks
// have arrived.
type Choice struct {
	Algo      string // a name that algo.New knows
	TileBytes int    // the unit of pipelining
	Depth     int    // tiles a rank may run ahead of the readers of its scratch
}

// IsOneShot reports whether the choice is the plan in which every rank reads
// what it needs from those who have it, in one step.
func (c Choice) IsOneShot() bool { return strings.HasSuffix(c.Algo, "/oneshot") }

// IsMessages reports whether the choice is no plan, but messages between the
// root and each other rank, of which only the two need know the size.
func (c Choice) IsMessages() bool { return strings.HasSuffix(c.Algo, "/messages") }

// OneShotBytes is the most that a rank may show to all others for them to read:
// one step, at the price of up to ranks times the traffic.
const OneShotBytes = 64 << 10

// oneShotBytesAll is the same where every rank reads all, or one does.
const oneShotBytesAll = 32 << 10

// Up to where one step without arrival beats arriving and working in place.
// With more ranks than cores each further step costs every rank its turn on a
// core; what counts against it is how much of what is shown each rank reads.
const (
	blindBytes              = 4 << 10
	blindBytesCrowded       = 32 << 10
	blindBytesCrowdedAll    = 16 << 10 // where every rank reads all
	blindBytesCrowdedRooted = 8 << 10  // where there are messages instead
)

// messageBytes is up to where a rooted call is made of messages.
const messageBytes = 64 << 10

// Tile sizes. Direct plans stream through main memory and need tiles only to
// look at deadlines now and then. Staged plans live from tiles that stay in
// the cache between the rank that writes them and the one that reads them: all
// scratch in use together should fit, down to a least tile. 16 MiB is half of
// the last-level cache of the machine that was measured. Where bytes go one way
// only, there are fewer of them in the cache to hide a larger tile among.
// Staged plans have three stages, which need three tiles to overlap.
const (
	directTile    = 4 << 20
	stagedTile    = 256 << 10
	oneWayTile    = 128 << 10
	oneWayMost    = 512 << 10 // where nothing stays in the cache anyway
	overlapLeast  = 32 << 10  // a smaller tile is not worth the overlap
	stagedLeast   = 16 << 10
	stagedScratch = 16 << 20
	stagedDepth   = 3
	depth         = 4
)

// algorithms holds the name of every algorithm for every collective, so that
// choosing one allocates nothing.
var algorithms = func() map[string][]string {
	all := map[string][]string{}
	for _, name := range []string{
		"oneshot", "direct", "attach", "staged", "dissemination", "binomial", "doubletree",
		"linear", "ring", "bruck", "pairwise", "halving", "tree", "messages", "doubling",
		"hier", "hier-tree", "hier-chain", "hier-ring", "hier-doubling", "hier-halving", "hier-halving-doubling",
		"hier-direct", "hier-tree-direct", "hier-chain-direct", "hier-ring-direct", "hier-doubling-direct",
		"hier-halving-direct", "hier-halving-doubling-direct",
	} {
		for _, c := range plan.Collectives() {
			all[name] = append(all[name], c.String()+"/"+name)
		}
	}
	return all
}()

// choice is an algorithm for the request's collective.
func (r *Request) choice(name string, tile, depth int) Choice {
	return Choice{algorithms[name][r.Collective], tile, depth}
}

// shown is the most that a rank shows to others in one step.
func (r *Request) shown() int {
	switch r.Collective {
	case plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		return r.Bytes * (r.Ranks - 1)
	}
	return r.Bytes
}

// blindLimit is the most that is shown without arrival.
func (r *Request) blindLimit() int {
	if !r.Crowded {
		return blindBytes
	}
	switch r.Collective {
	case plan.AllReduce, plan.AllGather:
		return blindBytesCrowdedAll
	case plan.Broadcast, plan.Gather, plan.Scatter:
		return blindBytesCrowdedRooted
	}
	return blindBytesCrowded
}

// OneShotLimit is the most bytes of ordinary memory that a rank shows in a
// collective rather than stage them.
func OneShotLimit(c plan.Collective) int {
	switch c {
	case plan.ReduceScatter, plan.AllToAll:
		return OneShotBytes
	}
	return oneShotBytesAll
}

// middling: too large for the door, and so small that it is worth more that
// ranks do not wait for each other than that they share the work.
func (r *Request) middling(shown, limit int) bool {
	switch r.Collective {
	case plan.Broadcast, plan.Gather, plan.Scatter:
		return !r.Uneven && shown > limit && r.Bytes <= messageBytes
	}
	return false
}

// Choose picks algorithm and tiles for r.
func Choose(r Request) Choice {
	if !r.MappedScratch {
		return across(r)
	}
	shown, limit := r.shown(), r.blindLimit()
	switch {
	case r.Collective == plan.Barrier: // which the door makes of it
		return r.choice("direct", 64, 1)
	case r.Coded && r.Blind:
		return Choice{}
	case r.Coded:
		return staged(r)
	case r.Uneven && r.Blind && r.Collective.Rooted(), r.Blind && r.middling(shown, limit):
		return r.choice("messages", 0, 0)
	case r.Uneven && r.Blind: // where what is shown turns out to be little
		return r.choice("oneshot", OneShotBytes, 2)
	case !r.Uneven && shown <= limit:
		return r.choice("oneshot", OneShotBytes, 2)
	case r.Blind:
		return Choice{}
	case r.MappedData:
		return r.choice("direct", directTile, 1)
	case !r.Uneven && shown <= OneShotLimit(r.Collective):
		return r.choice("oneshot", OneShotBytes, 2)
	}
	return staged(r)
}

// staged is the choice of the staged plan of a collective, in which each rank
// has stagedDepth tiles of scratch for every chunk that it passes on.
func staged(r Request) Choice {
	chunks := r.Ranks
	switch r.Collective {
	case plan.Broadcast, plan.Gather, plan.AllGather:
		chunks = 1
	}
	// One rank copies in while others copy out: a message of one tile would not
	// overlap.
	tile := min(stagedTile, max(overlapLeast, r.Bytes/2))
	switch r.Collective {
	case plan.Broadcast, plan.Gather, plan.Scatter:
		tile = min(oneWayTile, max(overlapLeast, r.Bytes/4))
		tile = max(tile, min(oneWayMost, r.Bytes/128))
	}
	for tile > stagedLeast && r.Ranks*chunks*stagedDepth*tile > stagedScratch {
		tile /= 2
	}
	return r.choice("staged", tile, stagedDepth)
}

// For is Choose for a caller who insists on an algorithm: it fills in what
// goes with it.
func For(algo string, r Request) Choice {
	c := Choose(r)
	forced := Choice{Algo: algo}
	switch {
	case c.Algo == algo && (!r.Uneven || !r.Blind):
		return c
	case !r.MappedScratch:
		return forcedAcross(algo, r)
	case r.Blind && (!forced.IsOneShot() || r.Uneven || r.Coded || r.shown() > OneShotBytes):
		return Choice{}
	case forced.IsOneShot():
		return Choice{algo, OneShotBytes, 2}
	case strings.HasSuffix(algo, "/direct"), strings.HasSuffix(algo, "/attach"):
		return Choice{algo, directTile, attachDepth(algo)}
	case strings.HasSuffix(algo, "/staged"):
		return staged(r)
	}
	return Choice{algo, acrossTile, depth}
}

// attachDepth is 1 for plans that have no scratch.
func attachDepth(algo string) int {
	if strings.HasSuffix(algo, "/direct") {
		return 1
	}
	return depth
}
