package reduce

import (
	"encoding/binary"
	"math"

	"github.com/tutti-go/tutti/mem"
)

// The reference says what kernels compute, an element at a time and in other
// words than the package: values instead of bit tricks.

// refElement reduces element i of all sources and returns its bits.
func refElement(op mem.Op, t mem.DType, srcs [][]byte, i, divisor int) uint64 {
	divisor = max(divisor, 1)
	size := t.Size()
	var operands []uint64
	for _, s := range srcs {
		var b [8]byte
		copy(b[:], s[i*size:(i+1)*size])
		operands = append(operands, binary.LittleEndian.Uint64(b[:]))
	}
	switch {
	case t == mem.F64:
		acc := math.Float64frombits(operands[0])
		for _, x := range operands[1:] {
			acc = refFloat(op, acc, math.Float64frombits(x))
		}
		return math.Float64bits(acc / float64(divisor))
	case t.Float():
		acc := refDecode(t, operands[0])
		for _, x := range operands[1:] {
			// Two float32 added or multiplied as float64 and rounded: sums and
			// products of 24-bit significands survive the double rounding.
			acc = float64(float32(refFloat(op, acc, refDecode(t, x))))
		}
		return refEncode(t, float64(float32(acc/float64(divisor))))
	}
	return refInteger(op, t, operands, divisor)
}

// divides tells of the operators that use the divisor.
func divides(op mem.Op) bool { return op == mem.Sum || op == mem.Avg }

func refFloat(op mem.Op, a, b float64) float64 {
	switch op {
	case mem.Sum, mem.Avg:
		return a + b
	case mem.Prod:
		return a * b
	}
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	if a == 0 && b == 0 {
		if math.Signbit(a) == (op == mem.Min) {
			return a
		}
		return b
	}
	if (a < b) == (op == mem.Min) {
		return a
	}
	return b
}

// refDecode is the value of a 16- or 32-bit float.
func refDecode(t mem.DType, bits uint64) float64 {
	switch t {
	case mem.F32:
		return float64(math.Float32frombits(uint32(bits)))
	case mem.BF16:
		return float64(math.Float32frombits(uint32(bits) << 16))
	}
	sign := 1 - 2*float64(bits>>15&1)
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	switch {
	case exponent == 0x1f && fraction != 0:
		return math.NaN()
	case exponent == 0x1f:
		return math.Inf(int(sign))
	case exponent == 0:
		return math.Copysign(fraction*0x1p-24, sign)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// refEncode rounds v to a 16- or 32-bit float, to nearest even.
func refEncode(t mem.DType, v float64) uint64 {
	if t == mem.F32 {
		return uint64(math.Float32bits(float32(v)))
	}
	precision, least, inf := 11, -24, uint64(0x7c00) // bits, exponent of the least subnormal
	if t == mem.BF16 {
		precision, least, inf = 8, -133, 0x7f80
	}
	var sign uint64
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	switch {
	case math.IsNaN(v):
		return sign | inf | (inf & -inf >> 1)
	case math.IsInf(v, 0):
		return sign | inf
	case v == 0:
		return sign
	}
	_, e := math.Frexp(v)
	unit := max(e-precision, least)
	n := uint64(math.RoundToEven(math.Ldexp(v, -unit)))
	// n counts units in the last place. Counting on from 0 through all finite
	// numbers gives the bits: each binade above the subnormals has 2^(precision-1).
	bits := n + uint64(unit-least)<<(precision-1)
	return sign | min(bits, inf)
}

func refInteger(op mem.Op, t mem.DType, operands []uint64, divisor int) uint64 {
	acc := operands[0]
	for _, x := range operands[1:] {
		switch op {
		case mem.Sum, mem.Avg:
			acc += x
		case mem.Prod:
			acc *= x
		case mem.Band:
			acc &= x
		case mem.Bor:
			acc |= x
		case mem.Bxor:
			acc ^= x
		default:
			xLess := x < acc
			if t.Signed() {
				xLess = refSigned(t, x) < refSigned(t, acc)
			}
			if xLess == (op == mem.Min) {
				acc = x
			}
		}
	}
	acc = acc << (64 - 8*t.Size()) >> (64 - 8*t.Size())
	switch {
	case divisor == 1:
	case t.Signed():
		acc = uint64(refSigned(t, acc) / int64(divisor))
	default:
		acc /= uint64(divisor)
	}
	return acc << (64 - 8*t.Size()) >> (64 - 8*t.Size())
}

func refSigned(t mem.DType, bits uint64) int64 {
	unused := 64 - 8*t.Size()
	return int64(bits<<unused) >> unused
}

// isNaN tells of the bits of an element.
func isNaN(t mem.DType, bits uint64) bool {
	switch t {
	case mem.F64:
		return math.IsNaN(math.Float64frombits(bits))
	case mem.F16, mem.BF16, mem.F32:
		return math.IsNaN(refDecode(t, bits))
	}
	return false
}
