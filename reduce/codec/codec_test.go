package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"
)

func TestNames(t *testing.T) {
	for _, c := range codecs {
		got, err := Parse(c.String())
		if err != nil || got != c || !c.Valid() {
			t.Errorf("Parse(%q) is %v, %v; valid: %v", c.String(), got, err, c.Valid())
		}
	}
	for _, s := range []string{"", "f32", "Q8", "Codec(0)"} {
		if c, err := Parse(s); err == nil || !strings.Contains(err.Error(), "f16, bf16, q8") {
			t.Errorf("Parse(%q) is %v, %v", s, c, err)
		}
	}
	for _, c := range []Codec{0, Q8 + 1, 255} {
		if want := fmt.Sprintf("Codec(%d)", c); c.Valid() || c.String() != want {
			t.Errorf("%v: valid: %v, want %s", c, c.Valid(), want)
		}
	}
}

func TestEncodedBytes(t *testing.T) {
	for _, test := range []struct{ count, half, q8 int }{
		{0, 0, 0}, {1, 2, 5}, {255, 510, 259}, {256, 512, 260}, {257, 514, 265}, {512, 1024, 520}, {1 << 30, 1 << 31, 1<<30 + 1<<24},
	} {
		for c, want := range map[Codec]int{F16: test.half, BF16: test.half, Q8: test.q8} {
			if got := c.EncodedBytes(test.count); got != want {
				t.Errorf("%v: %d elements take %d bytes, want %d", c, test.count, got, want)
			}
		}
	}
}

// encodeBoth encodes x with v at the given offsets and compares with the
// reference, then decodes that and compares again.
func encodeBoth(v isa, c Codec, x []float32, from, to int) error {
	src, dst := bufferOf(bytesOf(x), from), newBuffer(c.EncodedBytes(len(x)), to)
	v.encode(c, dst.pointer(), src.pointer(), len(x))
	if want := refEncode(c, x); !bytes.Equal(dst.bytes, want) {
		for i := range want {
			if dst.bytes[i] != want[i] {
				return fmt.Errorf("byte %d of the encoding is %#x, want %#x", i, dst.bytes[i], want[i])
			}
		}
	}
	if !bytes.Equal(src.bytes, bytesOf(x)) {
		return fmt.Errorf("the source was written")
	}
	if err := dst.check(); err != nil {
		return err
	}
	return decodeOne(v, c, dst.bytes, len(x), to, from)
}

// decodeOne decodes code with v and compares with the reference, and bit for
// bit with the portable twin.
func decodeOne(v isa, c Codec, code []byte, count, from, to int) error {
	src, dst, twin := bufferOf(code, from), newBuffer(4*count, to), newBuffer(4*count, to)
	v.decode(c, dst.pointer(), src.pointer(), count)
	generic.decode(c, twin.pointer(), src.pointer(), count)
	want := refDecode(c, code, count)
	for i, got := range floatsOf(dst.bytes) {
		if !same(got, want[i]) {
			return fmt.Errorf("element %d is decoded to %v, want %v", i, got, want[i])
		}
	}
	if !bytes.Equal(dst.bytes, twin.bytes) {
		return fmt.Errorf("decoded not as the portable twin does")
	}
	if !bytes.Equal(src.bytes, code) {
		return fmt.Errorf("the source was written")
	}
	return dst.check()
}

// TestAgainstReference gives every kernel counts around blocks and chunks, at
// aligned and other addresses.
func TestAgainstReference(t *testing.T) {
	counts := []int{0, 1, 2, 7, 31, 100, 255, 256, 257, 511, 512, 513, 1000, 1024, 3000, chunk*Block - 1, chunk*Block + 1, 2*chunk*Block + 300}
	for _, v := range isas() {
		for _, c := range codecs {
			t.Run(fmt.Sprintf("%s/%v", isaNames[v], c), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(uint64(v), uint64(c)))
				for _, count := range counts {
					for round := range max(2, min(60, 20000/(count+1))) {
						x := make([]float32, count)
						for from := 0; from < count; from += Block {
							draw(rng, x[from:min(from+Block, count)])
						}
						from, to := rng.IntN(64)*min(round, 1), rng.IntN(64)*min(round, 1)
						if err := encodeBoth(v, c, x, from, to); err != nil {
							t.Fatalf("%d elements from offset %d to offset %d: %v", count, from, to, err)
						}
					}
				}
			})
		}
	}
}

// TestHalvesExhaustively goes through all 16-bit values, and the values of f32
// halfway between neighbours and next to them, where rounding turns.
func TestHalvesExhaustively(t *testing.T) {
	var code []byte
	for b := range 1 << 16 {
		code = binary.NativeEndian.AppendUint16(code, uint16(b))
	}
	for _, v := range isas() {
		for _, c := range []Codec{F16, BF16} {
			if err := decodeOne(v, c, code, 1<<16, 0, 0); err != nil {
				t.Errorf("%s/%v: %v", isaNames[v], c, err)
			}
			values := refDecode(c, code, 1<<16)
			var x []float32
			for i, f := range values[:1<<16-1] {
				middle := float32((float64(f) + float64(values[i+1])) / 2)
				x = append(x, f, math.Nextafter32(middle, f), middle, math.Nextafter32(middle, values[i+1]))
			}
			if err := encodeBoth(v, c, x, 0, 0); err != nil {
				t.Errorf("%s/%v: %v", isaNames[v], c, err)
			}
		}
	}
}

// TestQ8Blocks has blocks whose encoding can be told by looking at them.
func TestQ8Blocks(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	greatest := float32(math.MaxFloat32)
	for _, test := range []struct {
		x     []float32
		scale float32
		q     []int8
	}{
		{[]float32{0, 0, float32(math.Copysign(0, -1))}, 0, []int8{0, 0, 0}},
		{[]float32{127, 1, 0.5, 1.5, 2.5, -0.5, -1.5, 0.501}, 1, []int8{127, 1, 0, 2, 2, 0, -2, 1}},
		{[]float32{-254, 3, 253}, 2, []int8{-127, 2, 126}},
		{[]float32{0x1p-119, -0x1p-119}, 0x1p-119 / 127, []int8{127, -127}},
		{[]float32{math.Nextafter32(0x1p-119, 0)}, 0, []int8{0}},
		{[]float32{greatest, -greatest, greatest / 2}, q8Most, []int8{127, -127, 64}},
		{[]float32{1, nan, 3}, nan, []int8{0, 0, 0}},
		{[]float32{1, 2, -inf}, nan, []int8{0, 0, 0}},
	} {
		for _, v := range isas() {
			for _, at := range []int{0, 250} { // in the last, partial block, or in a whole one
				x := make([]float32, at+len(test.x))
				if at > 0 {
					x = make([]float32, Block)
				}
				copy(x[at:], test.x)
				n := Q8.EncodedBytes(len(x))
				code, back := make([]byte, n), make([]float32, len(x))
				copy(x[at:], test.x[:min(len(test.x), len(x)-at)])
				v.encode(Q8, unsafe.Pointer(&code[0]), unsafe.Pointer(&x[0]), len(x))
				scale := math.Float32frombits(binary.NativeEndian.Uint32(code))
				if !same(scale, test.scale) {
					t.Errorf("%s: the scale of %v is %v, want %v", isaNames[v], test.x, scale, test.scale)
				}
				for i, want := range test.q[:min(len(test.q), len(x)-at)] {
					if got := int8(code[4+at+i]); got != want {
						t.Errorf("%s: %v in %v is %d, want %d", isaNames[v], test.x[i], test.x, got, want)
					}
				}
				v.decode(Q8, unsafe.Pointer(&back[0]), unsafe.Pointer(&code[0]), len(x))
				for i, f := range back {
					if (f != f) != (test.scale != test.scale) || math.IsInf(float64(f), 0) {
						t.Errorf("%s: element %d of %v is decoded to %v", isaNames[v], i, test.x, f)
					}
				}
			}
		}
	}
}

// TestRangesAreApart encodes a buffer in ranges of whole blocks and finds the
// same bytes as of the whole.
func TestRangesAreApart(t *testing.T) {
	x := make([]float32, 5*Block+77)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for _, c := range codecs {
		whole, parts := make([]byte, c.EncodedBytes(len(x))), make([]byte, c.EncodedBytes(len(x)))
		c.Encode(unsafe.Pointer(&whole[0]), unsafe.Pointer(&x[0]), len(x))
		for _, r := range [][2]int{{0, 2 * Block}, {2 * Block, 3 * Block}, {3 * Block, len(x)}} {
			c.Encode(unsafe.Pointer(&parts[c.EncodedBytes(r[0])]), unsafe.Pointer(&x[r[0]]), r[1]-r[0])
		}
		if !bytes.Equal(whole, parts) {
			t.Errorf("%v: ranges are encoded differently from the whole", c)
		}
	}
}
