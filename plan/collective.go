package plan

import "fmt"

// A Collective says what a plan computes. Below, n is the number of ranks, a
// block is the caller's unit (the whole buffer, or the share of one rank), and
// block b of a buffer of n blocks is the one that goes to, or came from, rank b.
type Collective uint8

const (
	// AllReduce: every rank's Out is the reduction over all ranks of their In,
	// each contribution exactly once.
	AllReduce Collective = iota
	// Broadcast: every rank's Out is the root's In.
	Broadcast
	// Reduction, of the name "reduce": the root's Out is the reduction over all ranks of their In.
	Reduction
	// Gather: block b of the root's Out is the In of rank b.
	Gather
	// AllGather: block b of every rank's Out is the In of rank b.
	AllGather
	// Scatter: the Out of rank b is block b of the root's In.
	Scatter
	// ReduceScatter: the Out of rank b is the reduction over all ranks of
	// block b of their In.
	ReduceScatter
	// AllToAll: block b of rank a's Out is block a of rank b's In.
	AllToAll
	// Barrier: no rank finishes before every rank has started. A barrier
	// moves no bytes: its places are tokens, and only the order of its steps
	// counts. Its Chunks is 1.
	Barrier
	numCollectives
)

// A form is what tells one collective from another.
type form struct {
	name    string
	in, out extent
	// reduces: an output combines the contributions of all ranks.
	reduces bool
	// apart: In and Out are never the same memory.
	apart bool
}

// An extent says how many blocks a rank's buffer has.
type extent uint8

const (
	one     extent = iota // one block
	all                   // a block for every rank
	rootOne               // one block at the root, none elsewhere
	rootAll               // a block for every rank at the root, none elsewhere
)

var forms = [numCollectives]form{
	AllReduce:     {name: "allreduce", in: one, out: one, reduces: true},
	Broadcast:     {name: "broadcast", in: rootOne, out: one},
	Reduction:     {name: "reduce", in: one, out: rootOne, reduces: true},
	Gather:        {name: "gather", in: one, out: rootAll},
	AllGather:     {name: "allgather", in: one, out: all},
	Scatter:       {name: "scatter", in: rootAll, out: one},
	ReduceScatter: {name: "reduce_scatter", in: all, out: one, reduces: true},
	AllToAll:      {name: "alltoall", in: all, out: all, apart: true},
	Barrier:       {name: "barrier", in: one, out: one},
}

// Collectives returns every collective, in declaration order.
func Collectives() []Collective {
	cs := make([]Collective, numCollectives)
	for i := range cs {
		cs[i] = Collective(i)
	}
	return cs
}

// String returns the collective's name in lower case.
func (c Collective) String() string {
	if c < numCollectives {
		return forms[c].name
	}
	return fmt.Sprintf("collective(%d)", uint8(c))
}

// ParseCollective returns the collective with the given name.
func ParseCollective(name string) (Collective, error) {
	for c, f := range forms {
		if f.name == name {
			return Collective(c), nil
		}
	}
	return 0, fmt.Errorf("plan: unknown collective %q", name)
}

// Rooted reports whether the collective has a root.
func (c Collective) Rooted() bool {
	f := forms[c]
	return f.in >= rootOne || f.out >= rootOne
}

// Reduces reports whether the collective combines contributions with an
// operator.
func (c Collective) Reduces() bool { return forms[c].reduces }

// Blocks returns how many blocks the In or Out of a rank has in a collective
// among so many ranks: 0 where the rank brings no such buffer.
func (c Collective) Blocks(b Buf, rank, root, ranks int) int {
	e := forms[c].in
	if b == Out {
		e = forms[c].out
	}
	switch {
	case e >= rootOne && rank != root:
		return 0
	case e == all, e == rootAll:
		return ranks
	}
	return 1
}

// blocks returns how many blocks a rank's In or Out has.
func (p *Plan) blocks(rank int, b Buf) int {
	return p.Collective.Blocks(b, rank, p.Root, p.Ranks)
}

// chunks returns how many chunks a rank's buffer has.
func (p *Plan) chunks(rank int, b Buf) int {
	if b == Scratch {
		return p.Scratch
	}
	return p.blocks(rank, b) * p.Chunks
}

// A datum is the identity of a chunk of data, wherever it lies: which of the
// blocks that the ranks bring it belongs to, and which piece of the block it
// is. All contributions to one reduction have the same datum.
type datum struct{ block, piece int }

// source returns the datum that chunk c of the rank's In holds.
func (p *Plan) source(rank, c int) datum {
	block, piece := c/p.Chunks, c%p.Chunks
	switch p.Collective {
	case Gather, AllGather:
		block = rank
	case AllToAll:
		block += rank * p.Ranks
	}
	return datum{block, piece}
}

// result returns the datum that chunk c of the rank's Out must hold in the
// end, and whose contribution it is: a rank's, or everybody's (-1).
func (p *Plan) result(rank, c int) (d datum, from int) {
	block, piece := c/p.Chunks, c%p.Chunks
	from = -1
	switch p.Collective {
	case Broadcast:
		from = p.Root
	case Gather, AllGather:
		from = block
	case Scatter:
		block, from = rank, p.Root
	case ReduceScatter:
		block = rank
	case AllToAll:
		from = block
		block = block*p.Ranks + rank
	}
	return datum{block, piece}, from
}

// Datum returns which block of data, of those that the ranks bring, a place in
// In or Out is for, and which piece of it. Blocks are numbered by the rank
// that they come from or go to; in an alltoall, from a to b, as a*ranks + b.
// Where there is only one block its number is 0.
func (p *Plan) Datum(q Place) (block, piece int) {
	d := p.source(q.Rank, q.Chunk)
	if q.Buf == Out {
		d, _ = p.result(q.Rank, q.Chunk)
	}
	return d.block, d.piece
}

// cells returns how many cells a rank's In and Out have together: places that
// may be the same memory are one cell.
func (p *Plan) cells() int {
	f := forms[p.Collective]
	switch {
	case f.apart:
		return 2 * p.Ranks * p.Chunks
	case f.in == all || f.in == rootAll || f.out == all || f.out == rootAll:
		return p.Ranks * p.Chunks
	}
	return p.Chunks
}

// cell returns the cell of a place in In or Out. A buffer of one block that
// goes with one of n lies, in place, where the rank's own block is; that is
// NCCL's rule.
func (p *Plan) cell(q Place) int {
	f := forms[p.Collective]
	mine, other := f.in, f.out
	if q.Buf == Out {
		mine, other = other, mine
	}
	many := func(e extent) bool { return e == all || e == rootAll }
	switch {
	case f.apart && q.Buf == Out:
		return p.Ranks*p.Chunks + q.Chunk
	case many(other) && !many(mine):
		return q.Rank*p.Chunks + q.Chunk
	}
	return q.Chunk
}
