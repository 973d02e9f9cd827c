package engine

import (
	"slices"
	"unsafe"

	"github.com/tutti-go/tutti/plan"
)

// shape says where the blocks of a call lie in the ranks' buffers, and how
// long each is. Where all are alike that is a multiplication; in a v form it
// is read from the rows that ranks give with their notices.
//
// A block of data has a number of its own, whichever buffers it is in: see
// plan.Plan.Datum.
type shape struct {
	ranks  int
	vector bool
	block  int // bytes, where all are alike

	sizes   []int    // by block of data
	offsets [2][]int // by In and Out; rank*ranks + position in the buffer
	largest int      // of all blocks

	// Of what the ranks showed at the door, if that is what the shape was read
	// from: the collective, and everybody's sizes.
	of    plan.Collective
	shown []uint32
}

// uniform makes the shape of a call whose blocks are alike.
func (s *shape) uniform(block int) { s.vector, s.block, s.largest = false, block, block }

// bytes is the size of a block of data.
func (s *shape) bytes(block int) int {
	if s.vector {
		return s.sizes[block]
	}
	return s.block
}

// offset is where the block at a position of a rank's buffer begins.
func (s *shape) offset(buf plan.Buf, rank, position int) int {
	if s.vector {
		return s.offsets[buf][rank*s.ranks+position]
	}
	return position * s.block
}

// isOf reports whether the shape was read from the same sizes, of which each
// rank shows so many.
func (s *shape) isOf(c plan.Collective, shown []unsafe.Pointer, each int) bool {
	if !s.vector || s.of != c || len(s.shown) != len(shown)*each {
		return false
	}
	for rank, sizes := range shown {
		if !slices.Equal(s.shown[rank*each:][:each], unsafe.Slice((*uint32)(sizes), each)) {
			return false
		}
	}
	return true
}

// keep notes from which sizes the shape was read.
func (s *shape) keep(c plan.Collective, shown []unsafe.Pointer, each int) {
	s.of = c
	for _, sizes := range shown {
		s.shown = append(s.shown, unsafe.Slice((*uint32)(sizes), each)...)
	}
}

// read makes the shape of a v form from everybody's rows, and finds ranks that
// disagree. rows is by rank: n sizes of the blocks in In, then n of those in
// Out; where a buffer has one block, only the first counts, and where it has
// none, none.
func (s *shape) read(k *call, rows [][]uint64) error {
	n := len(rows)
	s.ranks, s.vector, s.largest, s.shown = n, true, 0, s.shown[:0]
	if s.sizes == nil {
		s.sizes = make([]int, n*n)
		s.offsets = [2][]int{make([]int, n*n), make([]int, n*n)}
	}
	for rank, row := range rows {
		for buf := range s.offsets {
			at := 0
			for i := range k.collective.Blocks(plan.Buf(buf), rank, k.root, n) {
				s.offsets[buf][rank*n+i] = at
				at += int(row[buf*n+i])
			}
		}
	}
	return s.match(k, rows)
}

// match compares, for each block of data, the size that its source brings with
// the one that its destination expects.
func (s *shape) match(k *call, rows [][]uint64) error {
	n := len(rows)
	in := func(rank, i int) int { return int(rows[rank][i]) }
	out := func(rank, i int) int { return int(rows[rank][n+i]) }
	note := func(block, from, to, sent, expected int) error {
		if sent != expected {
			return &CountError{Call: k.name(), From: from, To: to, Sent: sent, Expected: expected}
		}
		s.sizes[block] = sent
		s.largest = max(s.largest, sent)
		return nil
	}
	for a := range n {
		switch k.collective {
		case plan.Gather:
			if err := note(a, a, k.root, in(a, 0), out(k.root, a)); err != nil {
				return err
			}
		case plan.Scatter:
			if err := note(a, k.root, a, in(k.root, a), out(a, 0)); err != nil {
				return err
			}
		default:
			for b := range n {
				var err error
				switch k.collective {
				case plan.AllGather:
					err = note(a, a, b, in(a, 0), out(b, a))
				case plan.ReduceScatter:
					err = note(a, b, a, in(b, a), out(a, 0))
				case plan.AllToAll:
					err = note(a*n+b, a, b, in(a, b), out(b, a))
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}
