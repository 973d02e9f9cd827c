package codec

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/float16"
)

// encodePortable is the portable twin of every kernel that encodes. It goes
// through arrays on the stack: not every machine that runs this can load an
// element from anywhere.
func encodePortable(c Codec, dst, src unsafe.Pointer, blocks int) {
	var (
		raw  [Block]float32
		half [Block]uint16
		q8   q8Block
	)
	for b := range blocks {
		copyBytes(unsafe.Pointer(&raw), unsafe.Add(src, b*rawBytes), rawBytes)
		switch c {
		case F16:
			for i, x := range raw {
				half[i] = float16.NarrowF16(x)
			}
		case BF16:
			for i, x := range raw {
				half[i] = float16.NarrowBF16(x)
			}
		default:
			q8.encode(&raw)
			copyBytes(unsafe.Add(dst, b*q8Bytes), unsafe.Pointer(&q8), q8Bytes)
			continue
		}
		copyBytes(unsafe.Add(dst, b*halfBytes), unsafe.Pointer(&half), halfBytes)
	}
}

// decodePortable is the way back.
func decodePortable(c Codec, dst, src unsafe.Pointer, blocks int) {
	var (
		raw  [Block]float32
		half [Block]uint16
		q8   q8Block
	)
	for b := range blocks {
		if c == Q8 {
			copyBytes(unsafe.Pointer(&q8), unsafe.Add(src, b*q8Bytes), q8Bytes)
		} else {
			copyBytes(unsafe.Pointer(&half), unsafe.Add(src, b*halfBytes), halfBytes)
		}
		switch c {
		case F16:
			for i, h := range half {
				raw[i] = float16.WidenF16(h)
			}
		case BF16:
			for i, h := range half {
				raw[i] = float16.WidenBF16(h)
			}
		default:
			q8.decode(&raw)
		}
		copyBytes(unsafe.Add(dst, b*rawBytes), unsafe.Pointer(&raw), rawBytes)
	}
}
