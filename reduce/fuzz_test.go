package reduce

import (
	"math/rand/v2"
	"testing"

	"github.com/tutti-go/tutti/mem"
)

// FuzzKernels gives every instruction set one reduction and compares all with
// the reference. The bytes of data come first in the sources; what they do not
// fill, and where buffers start and coincide, is drawn from seed.
func FuzzKernels(f *testing.F) {
	for op := range numOps {
		f.Add(uint64(op), uint8(op), uint8(op), uint16(100*op), uint8(op), uint8(op), []byte("\x00\x7e\x00\x7c\xff\xff"))
	}
	f.Fuzz(func(t *testing.T, seed uint64, op, dt uint8, count uint16, n, m uint8, data []byte) {
		o, d := mem.Op(int(op)%numOps), mem.DType(int(dt)%numTypes)
		if !o.Supports(d) {
			t.Skip()
		}
		rng := rand.New(rand.NewPCG(seed, 5))
		r := newReduction(rng, o, d, int(count)%2048, 1+int(n)%9, 1+int(m)%9)
		for _, src := range r.srcs {
			data = data[copy(src, data):]
		}
		for _, s := range isas {
			if err := r.run(s.funcs[o][d]); err != nil {
				t.Fatalf("%s: %v: %v", s.name, r, err)
			}
		}
	})
}
