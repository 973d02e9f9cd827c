package codec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/reduce"
)

// TestMaxError holds every codec to its bound, for blocks of every size of
// number, and the bound to the truth: some block comes near to it.
func TestMaxError(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range codecs {
		var x, y [Block]float32
		var code [halfBytes]byte
		nearest := 0.0
		for exponent := -149; exponent < 128; exponent++ {
			for range 20 {
				most := float32(math.Ldexp(1+0.5*rng.Float64()*rng.Float64(), exponent))
				if rng.IntN(8) == 0 {
					most = math.Nextafter32(float32(math.Ldexp(2, exponent)), 0)
				}
				for i := range x {
					x[i] = (2*rng.Float32() - 1) * most
				}
				x[rng.IntN(Block)] = most
				c.Encode(unsafe.Pointer(&code), unsafe.Pointer(&x), Block)
				c.Decode(unsafe.Pointer(&y), unsafe.Pointer(&code), Block)
				bound := c.MaxError(float64(most))
				for i, f := range x {
					lost := math.Abs(float64(y[i]) - float64(f))
					if !(lost <= bound) {
						t.Fatalf("%v: %v in a block of up to %v becomes %v: %v lost, the bound is %v", c, f, most, y[i], lost, bound)
					}
					nearest = max(nearest, lost/bound)
				}
			}
		}
		if nearest < 0.99 {
			t.Errorf("%v: no loss comes nearer to its bound than %v of it", c, nearest)
		}
	}
}

func TestMaxErrorTable(t *testing.T) {
	inf := math.Inf(1)
	for _, test := range []struct {
		c          Codec
		most, want float64
	}{
		{F16, 0, 0}, {F16, 1, 0x1p-11}, {F16, 0x1p-20, 0x1p-25}, {F16, 0x1p-26, 0x1p-26}, {F16, 65519, 65519 * 0x1p-11}, {F16, 65520, inf},
		{BF16, 0, 0}, {BF16, 1, 0x1p-8}, {BF16, 0x1p-149, 0x1p-149}, {BF16, 0x1p-130, 0x1p-134}, {BF16, math.MaxFloat32, inf},
		{Q8, 0, 0}, {Q8, 254, 1 + 0x1p-13}, {Q8, 0x1p-120, 0x1p-120}, {Q8, 0x1p-118, 0x1p-119}, {Q8, math.MaxFloat32, math.MaxFloat32 / 254 * (1 + 0x1p-13)},
		{F16, inf, inf}, {BF16, inf, inf}, {Q8, inf, inf}, {Q8, math.NaN(), inf},
	} {
		if got := test.c.MaxError(test.most); math.Abs(got-test.want) > 1e-12*test.want {
			t.Errorf("%v: the bound of %v is %v, want %v", test.c, test.most, got, test.want)
		}
	}
	// Finite up to the last value that does not become infinity.
	for c, last := range map[Codec]float32{F16: math.Nextafter32(65520, 0), BF16: math.Float32frombits(0x7f7f7fff), Q8: math.MaxFloat32} {
		var code [4 * 4]byte
		for _, f := range []float32{last, math.Nextafter32(last, float32(math.Inf(1)))} {
			var back float32
			c.Encode(unsafe.Pointer(&code), unsafe.Pointer(&f), 1)
			c.Decode(unsafe.Pointer(&back), unsafe.Pointer(&code), 1)
			finite := !math.IsInf(float64(back), 0) && back == back
			if finite != (f == last) || finite == math.IsInf(c.MaxError(float64(f)), 0) {
				t.Errorf("%v: %v becomes %v, the bound is %v", c, f, back, c.MaxError(float64(f)))
			}
		}
	}
}

// TestTwoHopError reduces contributions of n ranks as they would, once with
// that of the reducing rank raw, and compares with the exact sum. Where all
// ranks contribute the same, errors add up and come near to half the bound, or
// more: what has been rounded once may need no second rounding.
func TestTwoHopError(t *testing.T) {
	const count = 4 * Block
	rng := rand.New(rand.NewPCG(5, 6))
	scratch := new(Scratch)
	kernel, err := reduce.Lookup(mem.Sum, mem.F32)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range codecs {
		for _, ranks := range []int{1, 2, 3, 8, 64} {
			t.Run(fmt.Sprintf("%v/%d", c, ranks), func(t *testing.T) {
				nearest := 0.0
				for round := range 12 {
					equal, raw, divisor := round%2 == 0, round%3 == 0, 1
					if round%4 > 1 {
						divisor = ranks
					}
					most := float32(math.Ldexp(1.0625, rng.IntN(12)-6)) // just above where places are widest
					exact, got := make([]float64, count), make([]float32, count)
					var srcs []Operand
					x := make([]float32, count)
					for rank := range ranks {
						if rank == 0 || !equal {
							x = make([]float32, count)
							for i := range x {
								x[i] = (2*rng.Float32() - 1) * most
							}
						}
						for i, f := range x {
							exact[i] += float64(f) / float64(divisor)
						}
						if rank == 0 && raw {
							srcs = append(srcs, Operand{unsafe.Pointer(&x[0]), false})
							continue
						}
						code := make([]byte, c.EncodedBytes(count))
						c.Encode(unsafe.Pointer(&code[0]), unsafe.Pointer(&x[0]), count)
						srcs = append(srcs, Operand{unsafe.Pointer(&code[0]), true})
					}
					c.Reduce(kernel, []Operand{{unsafe.Pointer(&got[0]), false}}, srcs, count, divisor, scratch)
					bound := c.TwoHopError(ranks, float64(most), divisor)
					for i, f := range got {
						lost := math.Abs(float64(f) - exact[i])
						if !(lost <= bound) {
							t.Fatalf("element %d is %v, exactly %v: %v lost, the bound is %v", i, f, exact[i], lost, bound)
						}
						nearest = max(nearest, lost/bound)
					}
				}
				if nearest < 0.4 {
					t.Errorf("no loss comes nearer to its bound than %v of it", nearest)
				}
			})
		}
	}
}
