package plan

import "fmt"

// An Op is what a step does with its sources. There are only two: whatever
// else a collective seems to need is a protocol, chosen later, or a place.
type Op uint8

const (
	// Copy writes its one source to every destination.
	Copy Op = iota
	// Reduce combines two or more sources, in the order given, and writes
	// the result to every destination.
	Reduce
	numOps
)

var opNames = [numOps]string{"copy", "reduce"}

// String returns the operation's name in lower case.
func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// A Buf is one of the three buffers that each rank brings to a collective.
type Buf uint8

const (
	// In is the caller's input. No step writes it.
	In Buf = iota
	// Out is the caller's output. It may be the same memory as In.
	Out
	// Scratch is the engine's own memory, always reachable for peers.
	Scratch
	numBufs
)

var bufNames = [numBufs]string{"in", "out", "scratch"}

// String returns the buffer's name in lower case.
func (b Buf) String() string {
	if b < numBufs {
		return bufNames[b]
	}
	return fmt.Sprintf("buf(%d)", uint8(b))
}

// At returns chunk c of the buffer b of the given rank.
func (b Buf) At(rank, c int) Place { return Place{Rank: rank, Buf: b, Chunk: c} }

// A Place is one chunk of one rank's buffer.
type Place struct {
	Rank  int
	Buf   Buf
	Chunk int
}

// String returns the place as in the text form: "2.in[0]" is chunk 0 of the
// input of rank 2.
func (p Place) String() string { return fmt.Sprintf("%d.%v[%d]", p.Rank, p.Buf, p.Chunk) }

// A StepID is the index of a step in its plan.
type StepID int

// A Step is executed by Rank: it combines Srcs and writes the value to every
// one of Dsts, in one pass over memory. It works element by element, so a
// place may be source and destination of the same step.
type Step struct {
	Rank       int
	Op         Op
	Dsts, Srcs []Place

	// After holds, in ascending order, the steps that must be complete
	// before this one may start: the last writers of what it reads and
	// writes, and those who have read since what it writes.
	After []StepID

	// Last marks a Reduce whose result holds the contribution of every rank:
	// this is where an average divides.
	Last bool
}

// A Plan is a collective over a fixed number of ranks. A block, that is the
// caller's buffer or the share of one rank in it, is cut into Chunks chunks of
// equal extent; chunk c of block b of a buffer has the number b*Chunks + c.
// Scratch is the number of scratch chunks of each rank, each the size of one
// tile of a chunk. The steps are in a global order in which every step follows
// all its After.
//
// Treat a plan as read-only once it is built: lowered programs share its
// slices.
type Plan struct {
	Name       string // such as "allreduce/ring"
	Collective Collective
	Ranks      int
	Root       int // of collectives that have one; else 0
	Chunks     int // of a block
	Scratch    int
	Steps      []Step
}

// Limits on a plan, so that a text from elsewhere cannot ask for the moon.
const (
	MaxRanks  = 1 << 12
	MaxChunks = 1 << 16 // chunks of In and Out, and scratch chunks of a rank
	MaxCells  = 1 << 22 // the same, over all ranks
	MaxSteps  = 1 << 20
	MaxPlaces = 1 << 12 // sources of a step, and destinations
)
