// Package float16 converts between f32 and the 16-bit floating-point formats,
// bit for bit as F16C and AVX-512 do: f16 is IEEE 754 binary16, bf16 the upper
// half of a binary32.
package float16

import "math"

// WidenF16 is the float32 with the value of an f16. NaNs become quiet.
func WidenF16(b uint16) float32 {
	sign := uint32(b&0x8000) << 16
	rest := uint32(b & 0x7fff)
	switch {
	case rest >= 0x7c00: // infinity or NaN; NaNs become quiet, as in hardware
		bits := sign | 0x7f80_0000 | rest<<13&0x7f_ffff
		if rest > 0x7c00 {
			bits |= 0x40_0000
		}
		return math.Float32frombits(bits)
	case rest >= 0x400: // normal: the same with another bias
		return math.Float32frombits(sign | (rest<<13 + (127-15)<<23))
	default: // subnormal, a multiple of 2⁻²⁴: exact in a float32
		f := float32(rest) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	}
}

// NarrowF16 is the f16 nearest to f, ties to even; 65520 and more becomes
// infinity. NaNs become quiet and keep their sign and their upper bits.
func NarrowF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	abs := bits & 0x7fff_ffff
	switch {
	case abs > 0x7f80_0000:
		return sign | 0x7e00 | uint16(abs>>13&0x3ff)
	case abs >= 0x477f_f000: // 65520 and more is nearer to infinity
		return sign | 0x7c00
	case abs >= 0x3880_0000: // 2⁻¹⁴ and more: normal
		abs -= (127 - 15) << 23
		abs += 0xfff + abs>>13&1
		return sign | uint16(abs>>13)
	default:
		// Subnormal: adding ½ lets the hardware round at 2⁻²⁴, the last place
		// of a float32 in [½,1), and leaves the multiple in the low bits.
		g := math.Float32frombits(abs) + 0.5
		return sign | uint16(math.Float32bits(g)-math.Float32bits(0.5))
	}
}

// WidenBF16 is the float32 with the value of a bf16.
func WidenBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// NarrowBF16 is the bf16 nearest to f, ties to even. NaNs become quiet and keep
// their sign and the rest of their upper half.
func NarrowBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fff_ffff > 0x7f80_0000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
