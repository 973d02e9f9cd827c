//go:build !amd64 || noasm

package codec

import "unsafe"

// best is portable Go: there are no other kernels.
const best = generic

// encodeBlocks encodes a number of whole blocks.
func (isa) encodeBlocks(c Codec, dst, src unsafe.Pointer, blocks int) {
	encodePortable(c, dst, src, blocks)
}

// decodeBlocks is the way back.
func (isa) decodeBlocks(c Codec, dst, src unsafe.Pointer, blocks int) {
	decodePortable(c, dst, src, blocks)
}
