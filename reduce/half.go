package reduce

import "github.com/tutti-go/tutti/internal/float16"

// half is a 16-bit floating-point format.
type half bool

const (
	f16  half = false // IEEE 754 binary16
	bf16 half = true  // the upper half of a binary32
)

// widen converts x to wide, exactly.
func (h half) widen(wide []float32, x []uint16) {
	wide = wide[:len(x)]
	if h == bf16 {
		for i, b := range x {
			wide[i] = float16.WidenBF16(b)
		}
		return
	}
	for i, b := range x {
		wide[i] = float16.WidenF16(b)
	}
}

// narrow rounds wide to the nearest values of the format, ties to even.
func (h half) narrow(x []uint16, wide []float32) {
	wide = wide[:len(x)]
	if h == bf16 {
		for i, f := range wide {
			x[i] = float16.NarrowBF16(f)
		}
		return
	}
	for i, f := range wide {
		x[i] = float16.NarrowF16(f)
	}
}
