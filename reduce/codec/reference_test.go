package codec

import (
	"encoding/binary"
	"math"

	"github.com/tutti-go/tutti/mem"
)

// The reference is as plain as can be: one element at a time, in float64, whose
// one rounding to float32 after a product or a quotient of two of those is
// the rounding of the exact result.

// refEncode is the encoding of x.
func refEncode(c Codec, x []float32) []byte {
	var code []byte
	for len(x) > 0 {
		block := x[:min(Block, len(x))]
		x = x[len(block):]
		if c == Q8 {
			code = append(code, refQuantise(block)...)
			continue
		}
		for _, f := range block {
			code = binary.NativeEndian.AppendUint16(code, refNarrow(c, f))
		}
	}
	return code
}

func refQuantise(block []float32) []byte {
	most := 0.0
	for _, f := range block {
		most = max(most, math.Abs(float64(f))) // NaN if one is
	}
	code := make([]byte, 4+len(block))
	put := func(f float32) { binary.NativeEndian.PutUint32(code, math.Float32bits(f)) }
	if math.IsNaN(most) || math.IsInf(most, 0) {
		put(math.Float32frombits(0x7fc00000))
		return code
	}
	if most < math.Pow(2, -119) {
		return code
	}
	scale := float32(most / 127)
	if float64(float32(float64(scale)*127)) > math.MaxFloat32 {
		scale = math.Nextafter32(scale, 0)
	}
	put(scale)
	inverse := float32(127 / most)
	for i, f := range block {
		q := math.RoundToEven(float64(float32(float64(f) * float64(inverse))))
		code[4+i] = byte(int8(max(-127, min(127, q))))
	}
	return code
}

// refNarrow rounds f to a 16-bit float, to nearest even.
func refNarrow(c Codec, f float32) uint16 {
	precision, least, inf := 11, -24, uint16(0x7c00) // bits, exponent of the least subnormal
	if c == BF16 {
		precision, least, inf = 8, -133, 0x7f80
	}
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	v := math.Abs(float64(f))
	switch {
	case math.IsNaN(v):
		quiet := inf &^ (inf << 1) >> 1
		return sign | inf | quiet | uint16(bits>>(24-precision))&(quiet<<1-1)
	case v == 0:
		return sign
	case math.IsInf(v, 0):
		return sign | inf
	}
	_, e := math.Frexp(v)
	unit := max(e-precision, least)
	n := uint64(math.RoundToEven(math.Ldexp(v, -unit)))
	// n counts units in the last place. Counting on from 0 through all finite
	// numbers gives the bits: each binade above the subnormals has 2^(precision-1).
	return sign | uint16(min(n+uint64(unit-least)<<(precision-1), uint64(inf)))
}

// refDecode is the count elements that code encodes.
func refDecode(c Codec, code []byte, count int) []float32 {
	x := make([]float32, count)
	for i := range x {
		if c == Q8 {
			block := code[i/Block*(4+Block):]
			scale := math.Float32frombits(binary.NativeEndian.Uint32(block))
			x[i] = float32(float64(int8(block[4+i%Block])) * float64(scale))
			continue
		}
		x[i] = refWiden(c, binary.NativeEndian.Uint16(code[2*i:]))
	}
	return x
}

// refWiden is the value of a 16-bit float. NaNs of F16 are not exact.
func refWiden(c Codec, bits uint16) float32 {
	if c == BF16 {
		return math.Float32frombits(uint32(bits) << 16)
	}
	sign := 1 - 2*float64(bits>>15)
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	switch {
	case exponent == 0x1f && fraction != 0:
		return float32(math.NaN())
	case exponent == 0x1f:
		return float32(math.Inf(int(sign)))
	case exponent == 0:
		return float32(math.Copysign(fraction*0x1p-24, sign))
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}

// refReduce is what Reduce encodes, of sources that are decoded.
func refReduce(op mem.Op, srcs [][]float32, divisor int) []float32 {
	acc := append([]float32(nil), srcs[0]...)
	for _, src := range srcs[1:] {
		for i, f := range src {
			switch op {
			case mem.Prod:
				acc[i] *= f
			case mem.Min:
				acc[i] = min(acc[i], f)
			case mem.Max:
				acc[i] = max(acc[i], f)
			default:
				acc[i] += f
			}
		}
	}
	if divisor > 1 {
		for i := range acc {
			acc[i] /= float32(divisor)
		}
	}
	return acc
}

// same says that two floats have the same bits, or are both NaN.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}
