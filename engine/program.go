package engine

import (
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/tune"
)

// programKey tells programs of one Comm apart. Sizes are not part of it: a
// program runs on any.
type programKey struct {
	algo  string
	depth int
}

// program is this rank's part of a plan, resolved as far as it is the same for
// every call: bases of the control regions, counters, order. bases of In and
// Out are set by each call.
type program struct {
	name       string
	collective plan.Collective
	reach      plan.Reach
	chunks     int
	scratch    int // scratch chunks of each rank
	depth      int
	tileBytes  int // as chosen, cut so that the scratch fits
	stride     uint64
	maxSkew    int // of any rank, so that all count alike
	ranks      int
	actions    []action
	finish     []waitFor
	touches    []int // ranks whose memory this one reads or writes
	touchedBy  []int // ranks that read or write this one's

	// bases holds the start of each buffer: In, Out and Scratch of each rank,
	// indexed by buffer*ranks+rank.
	bases []unsafe.Pointer
}

// action is one step of the program.
type action struct {
	reduces    bool
	last       bool
	skew       int
	span       int // the data chunk whose extent the step has
	dsts, srcs []operand
	waits      []waitFor
	signal     bool
	notify     []int // whom to tell, where nothing is mapped
	putTo      int   // the peer that the destination belongs to, where it is not mapped; else -1

	dstAt, srcAt []unsafe.Pointer // filled for each tile
}

// operand is a place of the plan as an index into bases and a chunk.
type operand struct {
	base    int
	chunk   int
	scratch bool
}

// waitFor is a wait on a rank's counter: for a tile t it must have reached
// the call's base + offset + (t-lag)*stride.
type waitFor struct {
	rank   int
	offset uint64
	lag    int
}

func baseIndex(buf plan.Buf, rank, ranks int) int { return int(buf)*ranks + rank }

func (p *program) setBase(buf plan.Buf, rank int, b []byte) {
	p.bases[baseIndex(buf, rank, p.ranks)] = pointer(b)
}

// program returns the program for a choice, making it at its first use.
func (c *Comm) program(choice tune.Choice) (*program, error) {
	key := programKey{choice.Algo, choice.Depth}
	p, ok := c.programs[key]
	if !ok {
		made, err := c.plan(choice.Algo, c.size, 0)
		if err != nil {
			return nil, err
		}
		lowered, err := plan.Lower(made, choice.Depth)
		if err != nil {
			return nil, err
		}
		if p, err = c.resolve(lowered); err != nil {
			return nil, err
		}
		c.programs[key] = p
	}
	p.tileBytes = max(choice.TileBytes, link.LineBytes)
	if slots := p.scratch * p.depth; slots > 0 {
		p.tileBytes = min(p.tileBytes, scratchBytes/slots)
	}
	p.tileBytes -= p.tileBytes % link.LineBytes
	if p.tileBytes == 0 {
		return nil, fmt.Errorf("%s needs %d pieces of scratch, more than %d bytes hold", p.name, p.scratch*p.depth, scratchBytes)
	}
	return p, nil
}

// resolve turns this rank's lowered program into one that can run.
func (c *Comm) resolve(l *plan.Lowered) (*program, error) {
	n := c.size
	p := &program{
		name: l.Plan.Name, collective: l.Plan.Collective, reach: l.Plan.Reach(),
		chunks: l.Plan.Chunks, scratch: l.Plan.Scratch, depth: l.Depth,
		stride: uint64(l.Stride), maxSkew: l.MaxSkew(), ranks: n,
		bases: make([]unsafe.Pointer, 3*n),
	}
	if !c.board && !p.reach.PutOnly() {
		return nil, &ArgumentError{p.collective.String(), fmt.Sprintf("%s needs mapped memory, which %s does not give", p.name, c.fabric.Medium())}
	}
	for rank, control := range c.controls {
		if control != nil {
			p.setBase(plan.Scratch, rank, control[scratchOffset:])
		}
	}
	touches := make([][]bool, n) // touches[a][b]: a reads or writes b's memory
	for rank := range touches {
		touches[rank] = make([]bool, n)
		for _, a := range l.Programs[rank].Actions {
			for _, places := range [][]plan.Place{a.Dsts, a.Srcs} {
				for _, place := range places {
					touches[rank][place.Rank] = true
				}
			}
		}
	}
	for rank := range n {
		if rank == c.rank {
			continue
		}
		if touches[c.rank][rank] {
			p.touches = append(p.touches, rank)
		}
		if touches[rank][c.rank] {
			p.touchedBy = append(p.touchedBy, rank)
		}
	}
	spans := spansOf(l.Plan)
	for _, a := range l.Programs[c.rank].Actions {
		p.actions = append(p.actions, c.resolveAction(l, &a, spans[a.Step]))
	}
	for _, w := range l.Programs[c.rank].Finish {
		p.finish = append(p.finish, resolveWait(l, w))
	}
	return p, nil
}

// spansOf tells, for each step, which chunk of the buffers its bytes belong to:
// that chunk may be shorter than the others, and so must be what stands for it
// in scratch.
func spansOf(p *plan.Plan) []int {
	spans := make([]int, len(p.Steps))
	held := map[plan.Place]int{} // by scratch chunk, what it holds just now
	for id, s := range p.Steps {
		for _, places := range [][]plan.Place{s.Srcs, s.Dsts} {
			for _, place := range places {
				if place.Buf != plan.Scratch {
					spans[id] = place.Chunk
				}
			}
		}
		for _, place := range s.Srcs {
			if chunk, ok := held[place]; ok {
				spans[id] = chunk
			}
		}
		for _, place := range s.Dsts {
			if place.Buf == plan.Scratch {
				held[place] = spans[id]
			}
		}
	}
	return spans
}

func (c *Comm) resolveAction(l *plan.Lowered, a *plan.Action, span int) action {
	out := action{
		reduces: a.Op == plan.Reduce, last: a.Last, skew: a.Skew, span: span,
		signal: a.Signal, putTo: -1,
		dstAt: make([]unsafe.Pointer, len(a.Dsts)), srcAt: make([]unsafe.Pointer, len(a.Srcs)),
	}
	for _, place := range a.Dsts {
		out.dsts = append(out.dsts, c.operand(place))
		if place.Rank != c.rank && !c.board {
			out.putTo = place.Rank
		}
	}
	for _, place := range a.Srcs {
		out.srcs = append(out.srcs, c.operand(place))
	}
	for _, w := range a.Waits {
		out.waits = append(out.waits, resolveWait(l, w))
	}
	if !c.board {
		out.notify = a.Peers
	}
	return out
}

func (c *Comm) operand(place plan.Place) operand {
	return operand{baseIndex(place.Buf, place.Rank, c.size), place.Chunk, place.Buf == plan.Scratch}
}

func resolveWait(l *plan.Lowered, w plan.Wait) waitFor {
	return waitFor{rank: w.Rank, offset: l.Value(w.Rank, w.Action, 0), lag: w.Lag}
}

// end is how far a call of so many tiles takes every rank's progress.
func (p *program) end(tiles int) uint64 {
	return plan.Arrived + uint64(tiles+p.maxSkew)*p.stride
}

// tiling is how a call's buffers are cut: into the plan's chunks, of whole
// cache lines but for the end, and each chunk into tiles.
type tiling struct {
	bytes      int // of the buffer
	chunkBytes int
	tiles      int
}

func (p *program) tile(bytes int) tiling {
	lines := (bytes + p.chunks*link.LineBytes - 1) / (p.chunks * link.LineBytes)
	chunkBytes := lines * link.LineBytes
	return tiling{bytes, chunkBytes, max(1, (chunkBytes+p.tileBytes-1)/p.tileBytes)}
}

// extent is the bytes of tile t of a data chunk; none where the chunk is
// shorter.
func (p *program) extent(g *tiling, chunk, t int) (from, bytes int) {
	from = chunk*g.chunkBytes + t*p.tileBytes
	end := min(from+p.tileBytes, (chunk+1)*g.chunkBytes, g.bytes)
	return from, max(0, end-from)
}

// at is the address of an operand's tile t.
func (p *program) at(g *tiling, o operand, t int) unsafe.Pointer {
	if o.scratch {
		return unsafe.Add(p.bases[o.base], (o.chunk*p.depth+t%p.depth)*p.tileBytes)
	}
	return unsafe.Add(p.bases[o.base], o.chunk*g.chunkBytes+t*p.tileBytes)
}

// scratchAt is the same for a peer's scratch that is reached by Put.
func (p *program) scratchAt(region mem.RegionID, o operand, t int) mem.Remote {
	return mem.Remote{Region: region, Offset: scratchOffset + (o.chunk*p.depth+t%p.depth)*p.tileBytes}
}
