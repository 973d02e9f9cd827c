package codec

import (
	"math/rand/v2"
	"testing"
)

// FuzzEncode encodes the floats in data with every instruction set, compares
// with the reference, and decodes again.
func FuzzEncode(f *testing.F) {
	for _, c := range codecs {
		f.Add(uint8(c), uint8(0), uint8(1), []byte("\x00\x00\x80\x7f\x00\x00\x80\x3f\x01\x00\x00\x00"))
		f.Add(uint8(c), uint8(3), uint8(0), make([]byte, 4*(Block+1)))
	}
	f.Fuzz(func(t *testing.T, codec, from, to uint8, data []byte) {
		c, x := codecs[int(codec)%len(codecs)], floatsOf(data)
		for _, v := range isas() {
			if err := encodeBoth(v, c, x, int(from), int(to)); err != nil {
				t.Fatalf("%s/%v: %d elements: %v", isaNames[v], c, len(x), err)
			}
		}
	})
}

// FuzzDecode decodes any bytes with every instruction set: none of them may
// do worse than be nonsense.
func FuzzDecode(f *testing.F) {
	for _, c := range codecs {
		f.Add(uint8(c), uint8(0), uint8(1), []byte("\x00\x00\x80\x7f\x00\x80\x7f\xff"))
		f.Add(uint8(c), uint8(3), uint8(0), make([]byte, 2*(Block+5)))
	}
	f.Fuzz(func(t *testing.T, codec, from, to uint8, data []byte) {
		c := codecs[int(codec)%len(codecs)]
		count := len(data)
		for c.EncodedBytes(count) > len(data) {
			count--
		}
		data = data[:c.EncodedBytes(count)]
		for _, v := range isas() {
			if err := decodeOne(v, c, data, count, int(from), int(to)); err != nil {
				t.Fatalf("%s/%v: %d elements: %v", isaNames[v], c, count, err)
			}
		}
	})
}

// FuzzReduce gives every instruction set one reduction and compares with the
// reference. The bytes of data come first in the sources; what they do not
// fill, and where buffers start and coincide, is drawn from seed.
func FuzzReduce(f *testing.F) {
	for i, op := range ops {
		f.Add(uint64(i), uint8(i), uint8(op), uint16(400*i), uint8(i), uint8(i), []byte("\x00\x00\x80\x7f\xff\xff"))
	}
	f.Fuzz(func(t *testing.T, seed uint64, codec, op uint8, count uint16, n, m uint8, data []byte) {
		c, o := codecs[int(codec)%len(codecs)], ops[int(op)%len(ops)]
		r := newReduction(rand.New(rand.NewPCG(seed, 7)), o, c, int(count)%(3*tile), 1+int(n)%10, 1+int(m)%5)
		for _, src := range r.srcs {
			data = data[copy(src, data):]
		}
		s := new(Scratch)
		for _, v := range isas() {
			if err := r.run(v, s); err != nil {
				t.Fatalf("%s: %v: %v", isaNames[v], r, err)
			}
		}
	})
}
