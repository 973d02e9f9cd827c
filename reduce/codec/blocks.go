package codec

import (
	"unsafe"

	"github.com/tutti-go/tutti/reduce"
)

const (
	rawBytes   = 4 * Block          // of a block as f32
	scaleBytes = 4                  // of the scale of a block of Q8
	q8Bytes    = scaleBytes + Block // of a block of Q8
	halfBytes  = 2 * Block          // of a block of F16 or BF16

	// chunk is how many blocks one call of a kernel covers: the scheduler
	// cannot interrupt assembly.
	chunk = 128
)

// An isa is an instruction set with kernels for every codec, worst first.
type isa uint8

const (
	generic isa = iota // portable Go
	avx2               // with F16C
	avx512
)

// active is what reduce dispatches to, or portable Go where that has kernels
// and this package has not.
var active = func() isa {
	v := map[string]isa{"avx2": avx2, "avx512": avx512}[reduce.ISA()]
	return min(v, best)
}()

// encode is Codec.Encode with the kernels of v.
func (v isa) encode(c Codec, dst, src unsafe.Pointer, count int) {
	whole, size := count/Block, c.EncodedBytes(Block)
	for from := 0; from < whole; from += chunk {
		v.encodeBlocks(c, unsafe.Add(dst, from*size), unsafe.Add(src, from*rawBytes), min(chunk, whole-from))
	}
	if rest := count % Block; rest > 0 {
		// The rest of its block is zeros, which do not change a scale.
		var (
			raw     [Block]float32
			encoded [halfBytes]byte
		)
		copyBytes(unsafe.Pointer(&raw), unsafe.Add(src, whole*rawBytes), 4*rest)
		v.encodeBlocks(c, unsafe.Pointer(&encoded), unsafe.Pointer(&raw), 1)
		copyBytes(unsafe.Add(dst, whole*size), unsafe.Pointer(&encoded), c.EncodedBytes(rest))
	}
}

// decode is Codec.Decode with the kernels of v.
func (v isa) decode(c Codec, dst, src unsafe.Pointer, count int) {
	whole, size := count/Block, c.EncodedBytes(Block)
	for from := 0; from < whole; from += chunk {
		v.decodeBlocks(c, unsafe.Add(dst, from*rawBytes), unsafe.Add(src, from*size), min(chunk, whole-from))
	}
	if rest := count % Block; rest > 0 {
		var (
			raw     [Block]float32
			encoded [halfBytes]byte
		)
		copyBytes(unsafe.Pointer(&encoded), unsafe.Add(src, whole*size), c.EncodedBytes(rest))
		v.decodeBlocks(c, unsafe.Pointer(&raw), unsafe.Pointer(&encoded), 1)
		copyBytes(unsafe.Add(dst, whole*rawBytes), unsafe.Pointer(&raw), 4*rest)
	}
}

// copyBytes copies n bytes.
func copyBytes(dst, src unsafe.Pointer, n int) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}
