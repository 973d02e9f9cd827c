package engine

import (
	"unsafe"

	"github.com/tutti-go/tutti/link"
	"github.com/tutti-go/tutti/tune"
)

// The control region is the memory of a rank that every peer can reach and
// that belongs to the communicator itself:
//
//	progress            the counter that says how far the rank is
//	two announcements   one line each, used by even and odd calls
//	eight counters      of the one-shot door, used in turn by its calls
//	two slots           of the one-shot door, used by its even and odd calls
//	scratch             what plans call Scratch
//	mirrors             a counter for each rank: that rank's progress, which it
//	                    raises here where the medium maps nothing
//
// Announcements and slots come in twos because a rank may be one call ahead of
// the slowest reader and never two: it enters call k+1 only after call k, which
// no rank leaves before all have entered it, that is, have left call k-1.
const (
	progressOffset = 0
	announceOffset = progressOffset + link.CounterBytes
	lineOffset     = announceOffset + 2*link.LineBytes
	doorLines      = 8
	slotOffset     = lineOffset + doorLines*link.CounterBytes
	slotBytes      = tune.OneShotBytes
	scratchOffset  = (slotOffset + 2*slotBytes + 4095) / 4096 * 4096
	scratchBytes   = 8 << 20
	mirrorOffset   = scratchOffset + scratchBytes
)

// controlBytes is the size of the control region in a job of so many ranks.
func controlBytes(ranks int) int { return mirrorAt(ranks) }

// mirrorAt is where the mirror of a rank's progress lies in a control region.
func mirrorAt(rank int) int { return mirrorOffset + rank*link.CounterBytes }

// announcement is what a rank says about a call before it arrives. Its writer
// is the rank it belongs to; peers read it once they have seen the arrival in
// the rank's progress counter, which orders the two. It fits one line.
type announcement struct {
	bytes      uint64
	inOffset   uint64
	outOffset  uint64
	inRegion   uint32 // 0: memory that peers cannot map
	outRegion  uint32
	collective uint8
	dtype      uint8
	op         uint8
}

// announcementIn is the announcement for an announced call in a rank's control region.
func announcementIn(control []byte, call uint64) *announcement {
	line := control[announceOffset+int(call&1)*link.LineBytes:][:link.LineBytes]
	return (*announcement)(unsafe.Pointer(&line[0]))
}

// lineIn is one of the door's lines in a rank's control region.
func lineIn(control []byte, number int) *link.Counter {
	return link.CounterAt(control[lineOffset+number*link.CounterBytes:])
}

// slotIn is one of the two slots in a rank's control region.
func slotIn(control []byte, half int) []byte {
	return control[slotOffset+half*slotBytes:][:slotBytes]
}
