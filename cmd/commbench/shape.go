package main

import (
	"math"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// task is the work of one row.
type task struct {
	bytes int
	dtype mem.DType
	redop mem.Op
	op    *operation
}

// shape is what a row means for one rank: what lies where. Sizes are those of
// nccl-tests: of the buffer or, where a buffer has a block for every rank, of
// that buffer.
type shape struct {
	task
	rank, root, ranks int

	counts  []int // elements of every rank's block
	in, out []int // elements of the blocks of this rank's buffers; nil where it has none
}

// count is the elements of a block: whole ones, and one at least.
func (t task) count(ranks int) int {
	n := t.bytes / t.dtype.Size()
	if t.op.parted() {
		n = max(1, n/ranks)
	}
	return n
}

// counts are the elements of every rank's block. Uneven ones are in proportion
// to rank+1.
func (t task) counts(ranks int, uneven bool) []int {
	counts := make([]int, ranks)
	for i := range counts {
		counts[i] = t.count(ranks)
		if uneven && t.op.vector {
			share := float64(i+1) * 2 / float64(ranks) / float64(ranks+1)
			counts[i] = int(math.Round(float64(t.bytes/t.dtype.Size()) * share))
		}
	}
	counts[ranks-1] = max(counts[ranks-1], min(1, t.count(ranks)))
	return counts
}

func newShape(t task, rank, root int, counts []int) *shape {
	s := &shape{task: t, rank: rank, root: root, ranks: len(counts), counts: counts}
	blocks := func(b plan.Buf) []int {
		switch t.op.form.Blocks(b, rank, root, s.ranks) {
		case 0:
			return nil
		case 1:
			return counts[rank : rank+1]
		}
		return counts
	}
	s.in, s.out = blocks(plan.In), blocks(plan.Out)
	if t.op.form == plan.AllToAll { // what comes is this rank's block of everyone's
		s.out = make([]int, s.ranks)
		for i := range s.out {
			s.out[i] = counts[rank]
		}
	}
	return s
}

// sizeOf is the bytes of blocks with so many elements.
func (s *shape) sizeOf(counts []int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum * s.dtype.Size()
}

func (s *shape) inBytes() int { return s.sizeOf(s.in) }

func (s *shape) outBytes() int { return s.sizeOf(s.out) }

// wholeBytes is the size of the one buffer of a call in place.
func (s *shape) wholeBytes() int { return max(s.inBytes(), s.outBytes()) }

// before is the bytes of the blocks before that of a rank.
func (s *shape) before(rank int) int { return s.sizeOf(s.counts[:rank]) }

// inPlace is where the buffers lie in the one of a call in place: a single
// block is the rank's own of the other buffer.
func (s *shape) inPlace() (inAt, outAt int) {
	switch {
	case s.in == nil || s.out == nil || len(s.in) == len(s.out):
		return 0, 0
	case len(s.in) < len(s.out):
		return s.before(s.rank), 0
	}
	return 0, s.before(s.rank)
}

// neighbours are whom a rank sends to and receives from in a sendrecv.
func (s *shape) neighbours() (to, from int) {
	return (s.rank + 1) % s.ranks, (s.rank + s.ranks - 1) % s.ranks
}

// piece is a part of a receive buffer: so many bytes of what a rank brings, or
// of the reduction of what all bring.
type piece struct {
	at     int // in the receive buffer
	source int // a rank, or everyone
	from   int // in the source
	bytes  int
}

const everyone = -1

// The wants of the operations.

func reduction(s *shape) []piece {
	if s.out == nil {
		return nil
	}
	return []piece{{0, everyone, 0, s.outBytes()}}
}

func blockOfReduction(s *shape) []piece {
	return []piece{{0, everyone, s.before(s.rank), s.outBytes()}}
}

func rootsData(s *shape) []piece { return []piece{{0, s.root, 0, s.outBytes()}} }

func blockOfRoot(s *shape) []piece {
	return []piece{{0, s.root, s.before(s.rank), s.outBytes()}}
}

func neighboursData(s *shape) []piece {
	_, from := s.neighbours()
	return []piece{{0, from, 0, s.outBytes()}}
}

func everyonesData(s *shape) []piece {
	var pieces []piece
	at := 0
	for rank := range s.out {
		size := s.sizeOf(s.counts[rank : rank+1])
		pieces = append(pieces, piece{at, rank, 0, size})
		at += size
	}
	return pieces
}

func blockOfEveryone(s *shape) []piece {
	var pieces []piece
	for rank := range s.out {
		size := s.sizeOf(s.out[:1])
		pieces = append(pieces, piece{rank * size, rank, s.before(s.rank), size})
	}
	return pieces
}
