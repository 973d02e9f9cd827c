package reduce

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

// BenchmarkKernels gives the rate of every kernel of the instruction set in
// use: the bytes of two sources, in the first-level cache, and their sum in
// both of them, as a direct allreduce of two ranks has it.
func BenchmarkKernels(b *testing.B) {
	const size = 8 << 10
	x, y := alignedFloats(size/4), alignedFloats(size/4)
	at := []unsafe.Pointer{unsafe.Pointer(&x[0]), unsafe.Pointer(&y[0])}
	for _, op := range mem.Ops() {
		for _, dt := range mem.DTypes() {
			if !op.Supports(dt) {
				continue
			}
			b.Run(fmt.Sprintf("%v/%v", op, dt), func(b *testing.B) {
				kernel, err := Lookup(op, dt)
				if err != nil {
					b.Fatal(err)
				}
				divisor := 1
				if op == mem.Avg {
					divisor = 2
				}
				b.SetBytes(2 * size)
				for b.Loop() {
					kernel(at, at, size/dt.Size(), divisor)
				}
			})
		}
	}
}

// BenchmarkTiny is the cost of a call that has next to nothing to do.
func BenchmarkTiny(b *testing.B) {
	var x, y [2]float32
	at := []unsafe.Pointer{unsafe.Pointer(&x), unsafe.Pointer(&y)}
	for _, s := range isas {
		b.Run(s.name, func(b *testing.B) {
			kernel := s.funcs[mem.Sum][mem.F32]
			for b.Loop() {
				kernel(at[:1], at, 2, 1)
			}
		})
	}
}

// alignedFloats is n floats from the start of a page.
func alignedFloats(n int) []float32 {
	f := make([]float32, n+1024)
	skip := int(-uintptr(unsafe.Pointer(&f[0]))&4095) / 4
	f = f[skip : skip+n]
	for i := range f {
		f[i] = float32(i % 7)
	}
	return f
}
