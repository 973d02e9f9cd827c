package engine

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
	"github.com/tutti-go/tutti/tune"
)

// programKey tells programs of one Comm apart. Sizes are not part of it: a
// program runs on any.
type programKey struct {
	algo  string
	root  int
	depth int
}

// program is this rank's part of a plan, resolved as far as it is the same for
// every call, and bound to the buffers of the present one.
type program struct {
	name       string
	collective plan.Collective
	reach      plan.Reach // within nodes
	chunks     int        // of a block
	scratch    int        // scratch chunks of each rank
	depth      int
	tileBytes  int // as chosen, cut so that the scratch fits
	stride     uint64
	maxSkew    int // of any rank, so that all count alike
	ranks      int
	actions    []action
	finish     []waitFor
	touches    []int // ranks whose memory this one reads or writes
	touchedBy  []int // ranks that read or write this one's

	// Of the present call. Buffers are indexed by buffer*ranks+rank.
	pieceUnit int
	tiles     int
	streams   bool             // the call moves more than the cache holds
	bases     []unsafe.Pointer // where each begins, as far as it is mapped here
	addresses []uintptr        // and where it is in its rank's memory, if it is far
	far       []bool           // reached by address only
}

// action is one step of the program.
type action struct {
	reduces    bool
	last       bool
	skew       int
	block      int // the block of data that the step moves, and which piece of it
	piece      int
	dsts, srcs []operand
	waits      []waitFor
	signal     bool
	notify     []int // whom to tell, where nothing is mapped
	peer       int   // whose memory it touches, of those that touch only one; else -1
	put        bool  // the destination is a peer's and is reached by Put

	// Of the present call.
	bytes        int // of the piece
	way          way
	dstAt, srcAt []unsafe.Pointer // filled for each tile
}

// way is how an action moves bytes.
type way uint8

const (
	loadStore way = iota
	stream        // past the cache
	put           // into a peer's scratch over the link
	readFar       // out of a peer's ordinary memory, by address
	writeFar      // into it
)

// operand is a place of the plan: a chunk of scratch, or a piece of a block in
// a buffer.
type operand struct {
	base    int // index of the buffer
	scratch bool
	chunk   int // of scratch
	buf     plan.Buf
	rank    int
	at      int // position of the block in the buffer

	from int // bytes from the buffer's start to the piece, in the present call
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

// program returns the program for a choice, making it at its first use, and
// binds it to a call at its execution.
func (c *Comm) program(k *call, choice tune.Choice) (*program, error) {
	key := programKey{choice.Algo, k.root, choice.Depth}
	p, ok := c.programs[key]
	if !ok {
		made, err := c.cfg.Plan(choice.Algo, c.nodes, k.root)
		if err != nil {
			return nil, err
		}
		if c.cfg.FixedOrder && !made.RankOrder() {
			return nil, k.bad("%s does not combine in rank order, as a fixed order demands", made.Name)
		}
		lowered, err := c.lower(made, choice.Depth)
		if err != nil {
			return nil, err
		}
		if p, err = c.resolve(lowered); err != nil {
			return nil, err
		}
		c.programs[key] = p
	}
	unit := k.wire.unit()
	p.tileBytes = max(choice.TileBytes, unit)
	room := scratchBytes
	if !c.mapped {
		room = scratchHalf
	}
	if slots := p.scratch * p.depth; slots > 0 {
		p.tileBytes = min(p.tileBytes, room/slots)
	}
	p.tileBytes -= p.tileBytes % unit
	if p.tileBytes == 0 {
		return nil, fmt.Errorf("%s needs %d pieces of scratch, more than %d bytes hold", p.name, p.scratch*p.depth, room)
	}
	return p, nil
}

// lower cuts a plan into programs for the nodes that there are.
func (c *Comm) lower(p *plan.Plan, depth int) (*plan.Lowered, error) {
	if c.mapped {
		return plan.Lower(p, depth)
	}
	lowered, err := plan.LowerOver(p, depth, c.nodes)
	var check *plan.CheckError
	if errors.As(err, &check) && check.Kind == plan.OutOfReach {
		return nil, &ArgumentError{p.Collective.String(), fmt.Sprintf(
			"%s reads and writes memory of other ranks, which over %s can only be put to: %s",
			p.Name, c.family.fabric.Medium(), check.Detail)}
	}
	return lowered, err
}

// resolve turns this rank's lowered program into one that can run.
func (c *Comm) resolve(l *plan.Lowered) (*program, error) {
	n := c.size
	p := &program{
		name: l.Plan.Name, collective: l.Plan.Collective,
		chunks: l.Plan.Chunks, scratch: l.Plan.Scratch, depth: l.Depth,
		stride: uint64(l.Stride), maxSkew: l.MaxSkew(), ranks: n,
		bases: make([]unsafe.Pointer, 3*n), addresses: make([]uintptr, 3*n), far: make([]bool, 3*n),
	}
	p.reach, _ = l.Plan.ReachOver(c.nodes)
	c.placeScratch(p)
	p.touches, p.touchedBy = neighbours(l, c.rank)
	data := dataOf(l.Plan)
	for _, a := range l.Programs[c.rank].Actions {
		p.actions = append(p.actions, c.resolveAction(l, &a, data[a.Step]))
	}
	for _, w := range l.Programs[c.rank].Finish {
		p.finish = append(p.finish, resolveWait(l, w))
	}
	return p, nil
}

// placeScratch points the program at the part of every mapped scratch that the
// next call uses.
func (c *Comm) placeScratch(p *program) {
	for rank, control := range c.controls {
		if control != nil {
			p.setBase(plan.Scratch, rank, control[c.scratchAt():])
		}
	}
}

// scratchAt is where the scratch of the next call begins in control regions.
func (c *Comm) scratchAt() int { return c.layout.scratch + int(c.half)*scratchHalf }

// neighbours returns the ranks whose memory a rank reads or writes, and those
// that read or write its own.
func neighbours(l *plan.Lowered, rank int) (touches, touchedBy []int) {
	n := len(l.Programs)
	mine, theirs := make([]bool, n), make([]bool, n)
	for r := range l.Programs {
		for _, a := range l.Programs[r].Actions {
			for _, places := range [][]plan.Place{a.Dsts, a.Srcs} {
				for _, q := range places {
					if r == rank {
						mine[q.Rank] = true
					}
					if q.Rank == rank {
						theirs[r] = true
					}
				}
			}
		}
	}
	for r := range n {
		if r == rank {
			continue
		}
		if mine[r] {
			touches = append(touches, r)
		}
		if theirs[r] {
			touchedBy = append(touchedBy, r)
		}
	}
	return touches, touchedBy
}

// A piece is what a step moves: a piece of a block of data.
type piece struct{ block, number int }

// dataOf tells, for each step, what it moves. In scratch that is what was put
// there last.
func dataOf(p *plan.Plan) []piece {
	data := make([]piece, len(p.Steps))
	held := map[plan.Place]piece{} // by scratch chunk
	for id, s := range p.Steps {
		if q := s.Srcs[0]; q.Buf == plan.Scratch {
			data[id] = held[q]
		} else {
			block, number := p.Datum(q)
			data[id] = piece{block, number}
		}
		for _, q := range s.Dsts {
			if q.Buf == plan.Scratch {
				held[q] = data[id]
			}
		}
	}
	return data
}

func (c *Comm) resolveAction(l *plan.Lowered, a *plan.Action, what piece) action {
	out := action{
		reduces: a.Op == plan.Reduce, last: a.Last, skew: a.Skew, block: what.block, piece: what.number,
		signal: a.Signal, peer: -1,
		dstAt: make([]unsafe.Pointer, len(a.Dsts)), srcAt: make([]unsafe.Pointer, len(a.Srcs)),
	}
	for _, q := range a.Dsts {
		out.dsts = append(out.dsts, c.operand(l.Plan, q))
		if q.Rank != c.rank {
			out.peer, out.put = q.Rank, !c.near(q.Rank)
		}
	}
	for _, q := range a.Srcs {
		out.srcs = append(out.srcs, c.operand(l.Plan, q))
		if q.Rank != c.rank {
			out.peer = q.Rank
		}
	}
	for _, w := range a.Waits {
		out.waits = append(out.waits, resolveWait(l, w))
	}
	for _, rank := range a.Peers {
		if !c.near(rank) {
			out.notify = append(out.notify, rank)
		}
	}
	return out
}

func (c *Comm) operand(p *plan.Plan, q plan.Place) operand {
	o := operand{base: baseIndex(q.Buf, q.Rank, c.size), buf: q.Buf, rank: q.Rank}
	if q.Buf == plan.Scratch {
		o.scratch, o.chunk = true, q.Chunk
	} else {
		o.at = q.Chunk / p.Chunks
	}
	return o
}

func resolveWait(l *plan.Lowered, w plan.Wait) waitFor {
	return waitFor{rank: w.Rank, offset: l.Value(w.Rank, w.Action, 0), lag: w.Lag}
}

// end is how far a call of so many tiles takes every rank's progress.
func (p *program) end(tiles int) uint64 {
	return plan.Arrived + uint64(tiles+p.maxSkew)*p.stride
}

// pieceOf is the size of a block's pieces, all but the last: whole units, so
// that they end on cache lines.
func (p *program) pieceOf(block int) int {
	units := (block + p.chunks*p.pieceUnit - 1) / (p.chunks * p.pieceUnit)
	return units * p.pieceUnit
}

// tilesFor is how many tiles a call takes whose largest block has so many
// bytes. All ranks count the same, also those with less to do.
func (p *program) tilesFor(largest int) int {
	return max(1, (p.pieceOf(largest)+p.tileBytes-1)/p.tileBytes)
}

// pieceBytes is how long a piece of a block is; 0 where the block is shorter.
func (p *program) pieceBytes(s *shape, block, number int) int {
	bytes := s.bytes(block)
	each := p.pieceOf(bytes)
	return max(0, min(each, bytes-number*each))
}

// place works out where an operand is in the buffers of the present call.
func (p *program) place(s *shape, a *action, o *operand) {
	if o.scratch {
		o.from = o.chunk * p.depth * p.tileBytes
		return
	}
	o.from = s.offset(o.buf, o.rank, o.at) + a.piece*p.pieceOf(s.bytes(a.block))
}

// wayOf tells how an action moves bytes in the present call.
func (p *program) wayOf(a *action) way {
	switch {
	case a.put:
		return put
	case a.peer >= 0 && p.far[a.srcs[0].base]:
		return readFar
	case a.peer >= 0 && p.far[a.dsts[0].base]:
		return writeFar
	case p.streams && !a.reduces && !a.dsts[0].scratch:
		return stream
	}
	return loadStore
}

// tileOf is the offset of tile t of an operand in its buffer.
func (p *program) tileOf(o *operand, t int) int {
	if o.scratch {
		return o.from + t%p.depth*p.tileBytes
	}
	return o.from + t*p.tileBytes
}

// at is the address of tile t of an operand that is mapped here.
func (p *program) at(o *operand, t int) unsafe.Pointer {
	return unsafe.Add(p.bases[o.base], p.tileOf(o, t))
}

// farAt is the address of tile t of an operand in its rank's own memory.
func (p *program) farAt(o *operand, t int) uintptr {
	return p.addresses[o.base] + uintptr(p.tileOf(o, t))
}

// remoteAt is tile t of an operand in a peer's scratch that is reached by Put.
func (c *Comm) remoteAt(p *program, o *operand, t int) mem.Remote {
	return mem.Remote{Region: c.peerRegions[o.rank], Offset: c.scratchAt() + p.tileOf(o, t)}
}
