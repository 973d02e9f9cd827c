package codec

import "math"

// q8Block is a block of Q8 as it lies in memory.
type q8Block struct {
	scale float32
	q     [Block]int8
}

const (
	// q8Levels is the greatest number that an element is encoded as.
	q8Levels = 127

	// q8Least is the least magnitude for which a block gets a scale: for it and
	// above, neither the scale nor its inverse leaves the normal numbers, so
	// that rounding is relative and no processor is slow or flushes to zero.
	q8Least = 0x1p-119

	// q8Most is the greatest scale that does not overflow times 127. That of
	// the very greatest f32 would, as it is rounded up.
	q8Most = 0x1.020406p+121

	// q8NaN is the scale of a block that holds an infinity or a NaN.
	q8NaN = 0x7fc0_0000

	infinity = 0x7f80_0000
	absolute = 0x7fff_ffff
)

// nearest, added to a number much smaller, rounds it to a whole one, to nearest
// even, and has it in its low bits.
const nearest = 0x1.8p+23

// encode quantises x. The kernels do the same in the same order; what is
// explicitly converted to float32 may not be fused with the next operation.
func (b *q8Block) encode(x *[Block]float32) {
	// The bits of magnitudes have the order of their values, with infinity
	// and NaN above all of them.
	var bits uint32
	for _, f := range x {
		bits = max(bits, math.Float32bits(f)&absolute)
	}
	most := math.Float32frombits(bits)
	if bits >= infinity || most < q8Least {
		*b = q8Block{}
		if bits >= infinity {
			b.scale = math.Float32frombits(q8NaN)
		}
		return
	}
	b.scale = min(most/q8Levels, q8Most)
	// To multiply by the inverse is not quite to divide, but an element whose
	// quotient is so near to the middle is as well off either way; see MaxError.
	// It cannot reach 127½, so nothing needs to be clamped.
	inverse := q8Levels / most
	for i, f := range x {
		b.q[i] = int8(math.Float32bits(float32(f*inverse)+nearest) - math.Float32bits(nearest))
	}
}

// decode is the way back.
func (b *q8Block) decode(x *[Block]float32) {
	for i, q := range b.q {
		x[i] = float32(q) * b.scale
	}
}
