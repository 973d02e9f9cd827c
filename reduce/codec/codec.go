// Package codec has the encodings in which f32 travels where an allreduce is
// compressed on request, and the step that reduces encoded contributions.
//
// An encoded buffer is a sequence of blocks of Block elements, of which the
// last may be shorter. A block of Q8 is its scale, an f32, and then an int8 for
// each element; F16 and BF16 are their elements and nothing else. No block
// depends on another, so the encoding of any range that starts at a multiple
// of Block starts at EncodedBytes of what lies before it, and may be encoded,
// sent and decoded by itself. Bytes are in the machine's order; nothing needs
// alignment.
//
// As in package reduce, every kernel exists as portable Go and in vector
// instructions, here AVX-512 and AVX2, and reduce.ISA says which are used. The
// twins agree bit for bit: what one rank encodes, all ranks decode to the same
// bits, whatever they run on. That holds for the NaNs that Encode writes too.
package codec

import (
	"fmt"
	"strings"
	"unsafe"
)

// A Codec is an encoding of f32. The zero value is none of them.
type Codec uint8

const (
	// F16 is IEEE 754 binary16, rounded to nearest even. What is 65520 or more
	// becomes infinity; NaNs become quiet and stay NaNs. 2 bytes an element.
	F16 Codec = iota + 1

	// BF16 is the upper half of a binary32, rounded to nearest even. It has the
	// range of f32 but for the last half unit, which becomes infinity; NaNs
	// become quiet and stay NaNs. 2 bytes an element.
	BF16

	// Q8 is symmetric quantisation in blocks, as in ZeRO++'s qgZ (Wang et al.,
	// ZeRO++: Extremely Efficient Collective Communication for Giant Model
	// Training, 2023): an element is a whole number from -127 to 127 times the
	// scale of its block, which is the block's greatest magnitude over 127.
	// 1 byte an element and 4 a block.
	//
	// A block that holds an infinity or a NaN decodes to NaN throughout: a
	// gradient that overflowed is to be seen, not to become a large number. A
	// block without any magnitude of 2⁻¹¹⁹ or more decodes to zero throughout.
	Q8
)

// Block is how many elements share what an encoding keeps for several: ranges
// that are encoded, reduced and decoded apart start at its multiples.
const Block = 256

var names = [...]string{F16: "f16", BF16: "bf16", Q8: "q8"}

// Parse reads a codec by its name: f16, bf16 or q8. The error lists them.
func Parse(s string) (Codec, error) {
	for c, name := range names {
		if s == name && s != "" {
			return Codec(c), nil
		}
	}
	return 0, fmt.Errorf("unknown codec %q (known: %s)", s, strings.Join(names[F16:], ", "))
}

// Valid reports whether c is one of the declared codecs.
func (c Codec) Valid() bool { return c >= F16 && c <= Q8 }

// String is the name Parse reads.
func (c Codec) String() string {
	if !c.Valid() {
		return fmt.Sprintf("Codec(%d)", uint8(c))
	}
	return names[c]
}

// EncodedBytes is how many bytes count elements take. The codec must be valid,
// here and below.
func (c Codec) EncodedBytes(count int) int {
	if c == Q8 {
		return count + scaleBytes*((count+Block-1)/Block)
	}
	return 2 * count
}

// Encode writes the encoding of count f32 at src, which is 4·count bytes, to
// the EncodedBytes(count) bytes at dst. The two must not overlap, and may have
// any alignment. Encode does not allocate, lock or block.
func (c Codec) Encode(dst, src unsafe.Pointer, count int) { active.encode(c, dst, src, count) }

// Decode writes the count f32 that are encoded at src, in EncodedBytes(count)
// bytes, to the 4·count bytes at dst. The two must not overlap, and may have
// any alignment. Any bytes decode to something. Decode does not allocate, lock
// or block.
func (c Codec) Decode(dst, src unsafe.Pointer, count int) { active.decode(c, dst, src, count) }
