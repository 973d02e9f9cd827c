package codec

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/reduce"
)

// BenchmarkCodec gives the rates of every instruction set in bytes of f32: of
// the buffer that is encoded or decoded, and of one of the two sources, both
// encoded, that are reduced into an encoded and a raw destination. The smaller
// count stays in the second-level cache.
func BenchmarkCodec(b *testing.B) {
	kernel, err := reduce.Lookup(mem.Sum, mem.F32)
	if err != nil {
		b.Fatal(err)
	}
	for _, count := range []int{32 << 10, 4 << 20} {
		x, back := make([]float32, count), make([]float32, count)
		for i := range x {
			x[i] = float32(i%1000) - 500
		}
		raw, out := unsafe.Pointer(&x[0]), unsafe.Pointer(&back[0])
		first, second, third := make([]byte, 2*count), make([]byte, 2*count), make([]byte, 2*count)
		code, other, sum := unsafe.Pointer(&first[0]), unsafe.Pointer(&second[0]), unsafe.Pointer(&third[0])
		scratch := new(Scratch)
		for _, v := range isas() {
			for _, c := range codecs {
				srcs := []Operand{{code, true}, {other, true}}
				dsts := []Operand{{sum, true}, {out, false}}
				for _, step := range []struct {
					name string
					call func()
				}{
					{"encode", func() { v.encode(c, code, raw, count) }},
					{"decode", func() { v.decode(c, out, code, count) }},
					{"reduce", func() { v.reduce(c, kernel, dsts, srcs, count, 1, scratch) }},
				} {
					b.Run(fmt.Sprintf("%dKiB/%s/%v/%s", count>>8, isaNames[v], c, step.name), func(b *testing.B) {
						v.encode(c, code, raw, count)
						v.encode(c, other, raw, count)
						b.SetBytes(4 * int64(count))
						b.ReportAllocs()
						for b.Loop() {
							step.call()
						}
					})
				}
			}
		}
	}
}
