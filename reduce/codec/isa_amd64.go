//go:build !noasm

package codec

import "unsafe"

// best is the best instruction set that there are kernels for. Whether the
// machine has it is for reduce to say.
const best = avx512

// encodeBlocks encodes a number of whole blocks, at least one. It does not let
// its arguments escape, which calls through a table of kernels would.
func (v isa) encodeBlocks(c Codec, dst, src unsafe.Pointer, blocks int) {
	d, s := (*byte)(dst), (*byte)(src)
	switch v {
	case avx512:
		switch c {
		case F16:
			encodeF16AVX512(d, s, blocks)
		case BF16:
			encodeBF16AVX512(d, s, blocks)
		default:
			encodeQ8AVX512(d, s, blocks)
		}
	case avx2:
		switch c {
		case F16:
			encodeF16AVX2(d, s, blocks)
		case BF16:
			encodeBF16AVX2(d, s, blocks)
		default:
			encodeQ8AVX2(d, s, blocks)
		}
	default:
		encodePortable(c, dst, src, blocks)
	}
}

// decodeBlocks is the way back.
func (v isa) decodeBlocks(c Codec, dst, src unsafe.Pointer, blocks int) {
	d, s := (*byte)(dst), (*byte)(src)
	switch v {
	case avx512:
		switch c {
		case F16:
			decodeF16AVX512(d, s, blocks)
		case BF16:
			decodeBF16AVX512(d, s, blocks)
		default:
			decodeQ8AVX512(d, s, blocks)
		}
	case avx2:
		switch c {
		case F16:
			decodeF16AVX2(d, s, blocks)
		case BF16:
			decodeBF16AVX2(d, s, blocks)
		default:
			decodeQ8AVX2(d, s, blocks)
		}
	default:
		decodePortable(c, dst, src, blocks)
	}
}
