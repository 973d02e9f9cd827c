package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"
)

// codecs is all of them.
var codecs = []Codec{F16, BF16, Q8}

// isaNames is for the names of subtests.
var isaNames = map[isa]string{generic: "generic", avx2: "avx2", avx512: "avx512"}

// isas is what this machine can run: an instruction set comes with those below.
func isas() []isa {
	var all []isa
	for v := generic; v <= active; v++ {
		all = append(all, v)
	}
	return all
}

// guard is the bytes on both sides of a buffer that nobody may write.
const guard = 128

// buffer is memory at a chosen offset from a cache line, between guards.
type buffer struct {
	whole []byte
	at    int
	bytes []byte
}

func newBuffer(size, offset int) *buffer {
	whole := make([]byte, size+2*guard+128)
	for i := range whole {
		whole[i] = byte(0xa5 ^ i)
	}
	at := guard + offset%64
	at += -int(uintptr(unsafe.Pointer(&whole[guard]))) & 63
	return &buffer{whole, at, whole[at : at+size : at+size]}
}

// bufferOf has the contents of b.
func bufferOf(b []byte, offset int) *buffer {
	n := newBuffer(len(b), offset)
	copy(n.bytes, b)
	return n
}

func (b *buffer) pointer() unsafe.Pointer { return unsafe.Pointer(&b.whole[b.at]) }

// check fails if a guard byte changed.
func (b *buffer) check() error {
	for i, c := range b.whole {
		if (i < b.at || i >= b.at+len(b.bytes)) && c != byte(0xa5^i) {
			return fmt.Errorf("byte %d of a buffer of %d was written", i-b.at, len(b.bytes))
		}
	}
	return nil
}

// bytesOf is x as it lies in memory.
func bytesOf(x []float32) []byte {
	var b []byte
	for _, f := range x {
		b = binary.NativeEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// floatsOf is the way back; what is less than a float is dropped.
func floatsOf(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return x
}

// specials are the bits of f32 where encodings turn: zeros, ones, least and
// greatest subnormal and normal, infinities, NaNs, values halfway between
// neighbours in both formats, and blocks' least and greatest scales.
var specials = []uint32{
	0, 1 << 31, 0x3f800000, 0xbf800000, 1, 0x80000001, 0x7fffff, 0x800000, 0x7f7fffff, 0xff7fffff,
	0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7fa00000, 0x7f800001, 0xffbfffff,
	0x477fefff, 0x477ff000, 0x477fe000, 0x38800000, 0x387fffff, 0x33000000, 0x33000001, 0x33800000, 0x33c00000,
	0x3f801000, 0x3f803000, 0x3f808000, 0x3f818000, 0x7f7f7fff, 0x7f7f8000, 0x04000000, 0x03ffffff, 0x42fe0000,
}

// draw fills x in one of several styles.
func draw(rng *rand.Rand, x []float32) {
	style, scale := rng.IntN(5), math.Ldexp(1, rng.IntN(60)-30)
	for i := range x {
		switch style {
		case 0: // any bits
			x[i] = math.Float32frombits(rng.Uint32())
		case 1:
			x[i] = math.Float32frombits(specials[rng.IntN(len(specials))])
		case 2: // finite, of any size
			x[i] = math.Float32frombits(rng.Uint32() &^ 0x40000000)
		case 3: // halves of a step of Q8
			x[i] = float32(scale * float64(rng.IntN(509)-254) / 2)
		default:
			x[i] = float32(scale * rng.NormFloat64())
		}
	}
	if style > 2 && rng.IntN(8) == 0 && len(x) > 0 {
		x[rng.IntN(len(x))] = math.Float32frombits(specials[rng.IntN(len(specials))])
	}
}
