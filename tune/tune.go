// Package tune chooses how a collective runs: which algorithm, cut into tiles
// of which size. It knows costs, not how anything is run.
//
// The choices are rules drawn from measurements (docs/architecture.md says
// which); every rank must come to the same choice, so they depend only on what
// all ranks know.
package tune

import "github.com/tutti-go/tutti/plan"

// Request is what a choice may depend on.
type Request struct {
	Collective plan.Collective
	Bytes      int // of one rank's buffer
	Ranks      int
	Cores      int // that the ranks of this machine may use in all

	// MappedScratch: all ranks can load and store each other's scratch.
	MappedScratch bool
	// MappedData: and also the buffers of this call. Ranks learn it of each
	// other when they arrive; Blind asks before that.
	MappedData bool
	Blind      bool
}

// Choice says how to run. Without an Algo it means: ask again when the ranks
// have arrived.
type Choice struct {
	Algo      string // a name that algo.New knows
	TileBytes int    // the unit of pipelining
	Depth     int    // tiles a rank may run ahead of the readers of its scratch
}

// OneShotBytes is the largest message for which every rank may read
// everybody's input: one step, at the price of ranks times the traffic.
const OneShotBytes = 32 << 10

// Where one step without arrival beats arriving and reducing in place. With
// more ranks than cores each further step costs every rank its turn on a core.
const (
	blindBytes        = 4 << 10
	blindBytesCrowded = 8 << 10
)

// Tile sizes. Direct plans stream through main memory and need tiles only to
// look at deadlines now and then. Staged plans live from tiles that stay in
// the cache between the rank that writes them and the one that reads them: all
// scratch in use together should fit, down to a least tile. 16 MiB is half of
// the last-level cache of the machine that was measured.
const (
	directTile    = 4 << 20
	stagedTile    = 128 << 10
	stagedLeast   = 16 << 10
	stagedScratch = 16 << 20
	putTile       = 64 << 10
	depth         = 4
)

// Choose picks algorithm and tiles for r.
func Choose(r Request) Choice {
	switch {
	case r.Collective == plan.Barrier && r.MappedScratch:
		return Choice{"barrier/direct", 64, 1}
	case r.Collective == plan.Barrier:
		return Choice{"barrier/dissemination", 64, 2}
	case !r.MappedScratch && r.Bytes <= OneShotBytes:
		return Choice{"allreduce/tree", putTile, depth}
	case !r.MappedScratch:
		return Choice{"allreduce/ring", putTile, depth}
	case r.Bytes <= blindBytes, r.Bytes <= blindBytesCrowded && r.Ranks > r.Cores:
		return Choice{"allreduce/oneshot", OneShotBytes, 2}
	case r.Blind:
		return Choice{}
	case r.MappedData:
		return Choice{"allreduce/direct", directTile, 1}
	case r.Bytes <= OneShotBytes:
		return Choice{"allreduce/oneshot", OneShotBytes, 2}
	}
	return staged(r.Ranks)
}

// staged is the choice of allreduce/staged, in which each rank has depth tiles
// of scratch for every rank's share.
func staged(ranks int) Choice {
	tile := stagedTile
	for tile > stagedLeast && ranks*ranks*depth*tile > stagedScratch {
		tile /= 2
	}
	return Choice{"allreduce/staged", tile, depth}
}

// For is Choose for a caller who insists on an algorithm: it fills in what
// goes with it.
func For(algo string, r Request) Choice {
	c := Choose(r)
	switch {
	case c.Algo == algo:
		return c
	case r.Blind && (algo != "allreduce/oneshot" || r.Bytes > OneShotBytes):
		return Choice{}
	}
	switch algo {
	case "allreduce/direct":
		return Choice{algo, directTile, 1}
	case "allreduce/oneshot":
		return Choice{algo, OneShotBytes, 2}
	case "allreduce/staged":
		return staged(r.Ranks)
	}
	return Choice{algo, putTile, depth}
}
