package reduce

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

var halves = map[mem.DType]half{mem.F16: f16, mem.BF16: bf16}

// TestWidenAndNarrow goes through all values of both formats: widened they are
// what the reference says, narrowed again they are themselves, and so are they
// after every kernel that adds zero.
func TestWidenAndNarrow(t *testing.T) {
	const all = 1 << 16
	for dt, h := range halves {
		bits, wide, back := make([]uint16, all), make([]float32, all), make([]uint16, all)
		for i := range bits {
			bits[i] = uint16(i)
		}
		h.widen(wide, bits)
		h.narrow(back, wide)
		for i, b := range bits {
			want := refDecode(dt, uint64(b))
			if math.IsNaN(want) {
				if wide[i] == wide[i] || !isNaN(dt, uint64(back[i])) {
					t.Errorf("%v %#x is a NaN: widened to %v, and back to %#x", dt, b, wide[i], back[i])
				}
				continue
			}
			if float64(wide[i]) != want || back[i] != b {
				t.Errorf("%v %#x: widened to %v instead of %v, and back to %#x", dt, b, wide[i], want, back[i])
			}
		}

		minusZeros := make([]uint16, all)
		for i := range minusZeros {
			minusZeros[i] = 0x8000 // x + -0 is x, for x = +0 too
		}
		for _, s := range isas {
			clear(back)
			s.funcs[mem.Sum][dt]([]unsafe.Pointer{unsafe.Pointer(&back[0])},
				[]unsafe.Pointer{unsafe.Pointer(&bits[0]), unsafe.Pointer(&minusZeros[0])}, all, 1)
			for i, b := range bits {
				if isNaN(dt, uint64(b)) {
					if !isNaN(dt, uint64(back[i])) {
						t.Errorf("%s: %v %#x is a NaN, plus zero is %#x", s.name, dt, b, back[i])
					}
				} else if back[i] != b {
					t.Errorf("%s: %v %#x plus zero is %#x", s.name, dt, b, back[i])
				}
			}
		}
	}
}

// TestNarrowRounds looks where rounding turns: at the values halfway between
// neighbours, and next to them.
func TestNarrowRounds(t *testing.T) {
	for dt, h := range halves {
		check := func(f float32) {
			var got [1]uint16
			h.narrow(got[:], []float32{f})
			want := refEncode(dt, float64(f))
			if uint64(got[0]) != want && !(f != f && isNaN(dt, uint64(got[0]))) {
				t.Fatalf("%v: %v (%#x) is narrowed to %#x, want %#x", dt, f, math.Float32bits(f), got[0], want)
			}
		}
		for b := range uint16(0x7f80) {
			low, high := refDecode(dt, uint64(b)), refDecode(dt, uint64(b+1))
			if math.IsNaN(low) || math.IsNaN(high) || math.IsInf(low, 0) {
				continue
			}
			if math.IsInf(high, 0) {
				high = 2*low - refDecode(dt, uint64(b-1))
			}
			middle := float32((low + high) / 2)
			for _, f := range []float32{math.Nextafter32(middle, 0), middle, math.Nextafter32(middle, float32(math.Inf(1)))} {
				check(f)
				check(-f)
			}
		}
		rng := rand.New(rand.NewPCG(1, uint64(dt)))
		for range 1 << 18 {
			check(math.Float32frombits(rng.Uint32()))
		}
	}
}
