package engine

import (
	"unsafe"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/tune"
)

// The control region is the memory of a rank that every peer can reach and
// that belongs to the communicator itself. Its parts, in this order:
//
//	progress        the counter that says how far the rank is
//	seat            where it says on which core it runs
//	mirrors         a counter for each rank: that rank's progress, which it
//	                raises here where the medium maps nothing
//	notices         two for each rank, used by even and odd calls: what it
//	                calls and where its buffers are. Where memory is mapped a
//	                rank writes its own and the others read it there; where
//	                not, each rank puts its own into every peer's region
//	door lines      counters of the small-message door, used in turn
//	door annexes    one for each line, for payloads of rooted calls that it has
//	                no room for
//	door slots      eight, for all other payloads
//	post            what send and receive use, see post.go
//	scratch         what plans call Scratch
//
// Notices come in twos because a rank may be one call ahead of the slowest
// reader and never two: it enters call k+1 only after call k, which no rank
// leaves before all have entered it, that is, have left call k-1.
type layout struct {
	ranks                                int
	seat, mirrors, notices               int // offsets
	lines, annexes, slots, post, scratch int
	noticeBytes                          int // of one notice, with its rows
	bytes                                int // of the whole region
}

const (
	// So many calls a rank may be ahead that waits for nobody, such as the
	// root of a broadcast: where ranks share a core, each turn on it then
	// serves many calls.
	doorLines  = 128
	annexBytes = 2 << 10
	doorSlots  = 8
	slotBytes  = tune.OneShotBytes

	// A load that follows a store to an address with the same low 12 bits
	// waits for it. Buffers mostly begin on a page; so slots do not, nor do
	// they all lie alike in theirs.
	annexStride = annexBytes + link.LineBytes
	slotStart   = 1152
	slotStride  = slotBytes + 640

	// Where not all ranks are mapped, calls use the two halves of scratch in
	// turn, see enter.
	scratchBytes = 8 << 20
	scratchHalf  = scratchBytes / 2
	pageBytes    = 4096
)

// layoutFor lays out the control regions of a communicator of so many ranks.
func layoutFor(ranks int) layout {
	l := layout{ranks: ranks}
	at := link.CounterBytes // behind the progress counter
	take := func(bytes, align int) int {
		at = (at + align - 1) / align * align
		from := at
		at += bytes
		return from
	}
	l.noticeBytes = (int(unsafe.Sizeof(notice{})) + 2*ranks*8 + link.LineBytes - 1) / link.LineBytes * link.LineBytes
	l.seat = take(link.SeatBytes, link.LineBytes)
	l.mirrors = take(ranks*link.CounterBytes, link.LineBytes)
	l.notices = take(2*ranks*l.noticeBytes, link.LineBytes)
	l.lines = take(doorLines*link.CounterBytes, link.LineBytes)
	l.annexes = take(doorLines*annexStride, link.LineBytes)
	l.slots = take(slotStart+doorSlots*slotStride, pageBytes) + slotStart
	l.post = take(postBytes(ranks), pageBytes)
	l.scratch = take(scratchBytes, pageBytes)
	l.bytes = at
	return l
}

// progressIn is a rank's progress in its control region.
func progressIn(control []byte) *link.Counter { return link.CounterAt(control) }

// seatIn is a rank's seat in its control region.
func (l *layout) seatIn(control []byte) *link.Seat { return link.SeatAt(control[l.seat:]) }

// mirror is the offset of the mirror of a rank's progress.
func (l *layout) mirror(rank int) int { return l.mirrors + rank*link.CounterBytes }

// notice is the offset of a rank's notice of a call.
func (l *layout) notice(rank int, call uint64) int {
	return l.notices + (2*rank+int(call&1))*l.noticeBytes
}

// lineIn is one of the door's lines in a rank's control region.
func (l *layout) lineIn(control []byte, number int) *link.Counter {
	return link.CounterAt(control[l.lines+number*link.CounterBytes:])
}

// annexIn is the annex of one of them.
func (l *layout) annexIn(control []byte, number int) []byte {
	return control[l.annexes+number*annexStride:][:annexBytes]
}

// slotIn is one of the door's slots in a rank's control region.
func (l *layout) slotIn(control []byte, number int) []byte {
	return control[l.slots+number*slotStride:][:slotBytes]
}

// notice is what a rank says about a call before it arrives. Its writer is the
// rank it belongs to; peers read it once they have seen the arrival in the
// rank's progress counter, which orders the two. Behind it, in calls with
// blocks of different sizes, come two rows of one number for each rank: the
// bytes of the blocks of the rank's In, then of its Out.
type notice struct {
	bytes      uint64 // of a block; with blocks of different sizes, 0
	inAt       uint64 // offset in the region, or address where there is none
	outAt      uint64
	inBytes    uint64
	outBytes   uint64
	inRegion   uint32 // 0: memory that peers cannot map
	outRegion  uint32
	collective uint8
	dtype      uint8
	op         uint8
	flags      uint8
	root       uint16
	wire       uint8
	_          uint8
}

// Flags of a notice.
const (
	flagVector = 1 << iota // blocks of different sizes: rows follow
)

// noticeIn lays a notice over its place, and rowsIn the rows behind it.
func noticeIn(b []byte) *notice { return (*notice)(unsafe.Pointer(unsafe.SliceData(b))) }

func rowsIn(b []byte, ranks int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), unsafe.Sizeof(notice{}))), 2*ranks)
}
