package link

import (
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/spin"
)

// SeatBytes is the size of a Seat: a line.
const SeatBytes = LineBytes

// Seat is where a rank tells its peers which core it runs on, in memory that
// they all map; all zeros is a seat that nobody has taken.
//
// Its rank alone writes it, when it begins to wait and has moved since the last
// time; anybody reads it. Nothing but the waiting of others depends on it, so
// it may be out of date, and orders nothing.
type Seat struct {
	core atomic.Int64 // plus 1; 0 where it is not known
	_    [SeatBytes - 8]byte
}

// SeatAt lays a seat over the first SeatBytes bytes of memory, which must start
// on a multiple of 8 and should start on one of LineBytes.
func SeatAt(memory []byte) *Seat { return (*Seat)(unsafe.Pointer(&memory[:SeatBytes][0])) }

// take says that the caller's core is this rank's, and returns it as a seat
// has it.
func (s *Seat) take() int64 {
	core := int64(spin.Core()) + 1
	if s.core.Load() != core {
		s.core.Store(core)
	}
	return core
}

// Crowd is how ranks that outnumber the cores share them: a rank that waits
// gives its core away at once if that helps somebody, and keeps it if not.
//
// To change between two processes takes a microsecond or more, many times what
// a small call takes. When all ranks of one core have done their part, and the
// part of another core's is on its way, to let the neighbour look whether it
// has come costs two changes for nothing; so the rank that is there looks
// itself, for about as long as a change takes. But as long as one neighbour
// has not come as far as this rank, every look takes from its time.
//
// It belongs to one goroutine at a time.
type Crowd struct {
	rank  int
	seats []*Seat // by rank

	counters []*Counter // by rank: how far everybody is
	count    uint64     // and how far this rank is
	awaited  int        // the one rank that is waited for, where counters is nil
}

// NewCrowd returns the crowd of a rank among those with these seats.
func NewCrowd(rank int, seats []*Seat) *Crowd { return &Crowd{rank: rank, seats: seats} }

// At says what the waits from now on go by: the counters that ranks raise as
// they advance, by rank, and the count that this rank has raised its own to. A
// nil Crowd takes no notice.
func (c *Crowd) At(counters []*Counter, count uint64) {
	if c != nil {
		c.counters, c.count = counters, count
	}
}

// Await says that the waits from now on are for one rank only: the core is its
// if it is the same, and kept otherwise, for who waits for a stream of small
// messages is mostly given the next one soon.
func (c *Crowd) Await(rank int) {
	if c != nil {
		c.counters, c.awaited = nil, rank
	}
}

// neighbourBehind reports whether a rank that runs on our core, as far as one
// knows, has not come as far as this one; or is the one that is waited for.
func (c *Crowd) neighbourBehind() bool {
	core := c.seats[c.rank].take()
	if c.counters == nil {
		return c.sitsOn(core, c.awaited)
	}
	for rank, counter := range c.counters {
		if rank != c.rank && counter.value.Load() < c.count && c.sitsOn(core, rank) {
			return true
		}
	}
	return false
}

// sitsOn reports whether a rank runs on a core, or might.
func (c *Crowd) sitsOn(core int64, rank int) bool {
	theirs := c.seats[rank].core.Load()
	return theirs == core || theirs == 0
}
