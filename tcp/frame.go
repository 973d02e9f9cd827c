package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/mem"
)

// What ranks say to each other on a connection: frames, little-endian:
// kind(1) marks(1) zero(2) region(4) offset(8) value(8), then marks numbers of
// 8 bytes, then, of a put, the payload. What a kind does not use is zero.
//
//	put     region, offset, value: bytes; payload
//	notify  region, offset, value; marks   the counter's new count
//	want    region                         how large is it?
//	have    region, value: its bytes       the answer; 0: there is none
//	freed   region                         to who wanted it: gone
//	forgot  region; marks                  the answer: nothing more comes for it
//	bye     region: see farewell           closed in good order; the last frame
//	start   region: stripes, offset: which of them this is, value: see attempt
//	ready                                  the answer to all starts, on stripe 0
//
// Puts may go by any of a link's connections, called stripes; bye ends each of
// them; everything else goes by stripe 0. A frame with marks comes after what
// was put by the other stripes: it carries the number of puts that were sent by
// stripe 1, 2, ..., and is not taken before so many have come. One without comes
// after what was put by its own stripe only, which is all there was since the
// last frame with marks.
const (
	headerBytes = 24
	maxMarks    = MaxStripes - 1
	maxFrame    = headerBytes + 8*maxMarks

	kindPut    = 1
	kindNotify = 2
	kindWant   = 3
	kindHave   = 4
	kindFreed  = 5
	kindForgot = 6
	kindBye    = 7
	kindStart  = 8
	kindReady  = 9
)

type frame struct {
	kind   uint8
	marks  uint8
	region mem.RegionID
	offset uint64
	value  uint64
}

// append encodes a frame; its marks are for the caller to append.
func (f *frame) append(b []byte) []byte {
	b = append(b, f.kind, f.marks, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.region))
	b = binary.LittleEndian.AppendUint64(b, f.offset)
	return binary.LittleEndian.AppendUint64(b, f.value)
}

// bytes is the length of a frame without its payload.
func (f *frame) bytes() int { return headerBytes + 8*int(f.marks) }

// What is wrong with a header. They are values, so that a frame is decoded
// without an allocation.
var (
	errKind     = errors.New("its kind is unknown")
	errReserved = errors.New("it has something where nothing should be")
	errMarks    = errors.New("it has marks that its kind does not have")
	errNothing  = errors.New("it puts nothing")
	errStripes  = fmt.Errorf("it starts a stripe that is none of up to %d", MaxStripes)
)

// decodeHeader reads the first headerBytes bytes of a frame. Whether the region
// has the bytes that it names is for the receiver to see.
func decodeHeader(b *[headerBytes]byte) (frame, error) {
	f := frame{
		kind:   b[0],
		marks:  b[1],
		region: mem.RegionID(binary.LittleEndian.Uint32(b[4:])),
		offset: binary.LittleEndian.Uint64(b[8:]),
		value:  binary.LittleEndian.Uint64(b[16:]),
	}
	if b[2]|b[3] != 0 {
		return f, errReserved
	}
	if f.marks != 0 && (f.marks > maxMarks || f.kind != kindNotify && f.kind != kindForgot) {
		return f, errMarks
	}
	var unused uint64
	switch f.kind {
	case kindPut:
		if f.value == 0 {
			return f, errNothing
		}
	case kindNotify:
	case kindWant, kindFreed, kindForgot, kindBye:
		unused = f.offset | f.value
	case kindHave:
		unused = f.offset
	case kindStart:
		if f.region == 0 || f.region > MaxStripes || f.offset >= uint64(f.region) {
			return f, errStripes
		}
	case kindReady:
		unused = uint64(f.region) | f.offset | f.value
	default:
		return f, errKind
	}
	if unused != 0 {
		return f, errReserved
	}
	return f, nil
}
