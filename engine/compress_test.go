package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tutti-go/tutti/engine"
	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/reduce/codec"
)

// TestCompressed: sums over a shorter form are bitwise the same on all ranks
// and from run to run, and no farther from the exact ones than the codec says.
func TestCompressed(t *testing.T) {
	forms := map[engine.Wire]codec.Codec{engine.WireF16: codec.F16, engine.WireBF16: codec.BF16, engine.WireQ8: codec.Q8}
	for _, m := range media {
		for wire, form := range forms {
			for _, n := range []int{1, 2, 3, 5} {
				t.Run(fmt.Sprintf("%s/%v/%d", m.name, wire, n), func(t *testing.T) {
					j := open(t, m, n, "", nil, 1)
					for _, elements := range []int{0, 1, 2, 255, 256, 257, 1000, 5000, 70_001} {
						for _, op := range []mem.Op{mem.Sum, mem.Avg} {
							checkCompressed(t, j, wire, form, op, elements)
						}
					}
				})
			}
		}
	}
}

func checkCompressed(t *testing.T, j job, wire engine.Wire, form codec.Codec, op mem.Op, elements int) {
	t.Helper()
	n := len(j)
	in, out := j.buffers(t, 4*elements, true), j.buffers(t, 4*elements, false)
	exact := make([]float64, elements)
	rng := rand.New(rand.NewPCG(uint64(elements), uint64(n)))
	const most = 3.0
	for r := range in {
		mine := mem.Slice[float32](in[r])
		for i := range mine {
			x := float32(rng.Float64()*2*most - most)
			mine[i] = x
			exact[i] += float64(x)
		}
	}
	divisor := 1
	if op == mem.Avg {
		divisor = n
	}
	bound := form.TwoHopError(n, most, divisor)
	if n == 1 {
		bound = 0
	}
	var first []float32
	for round := range 2 {
		onEveryRank(t, n, func(r int) error { return j[r].AllReduceOver(t.Context(), wire, in[r], out[r], op) })
		for r := range out {
			for i, got := range mem.Slice[float32](out[r]) {
				if off := math.Abs(float64(got) - exact[i]/float64(divisor)); !(off <= bound) {
					t.Fatalf("%d elements, %v: rank %d is off by %g at %d, bound %g", elements, op, r, off, i, bound)
				}
			}
			got := mem.Slice[float32](out[r])
			if first == nil {
				first = append([]float32{}, got...)
			}
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(first[i]) {
					t.Fatalf("%d elements, %v, round %d: rank %d differs from rank 0 at %d", elements, op, round, r, i)
				}
			}
		}
	}
}

// TestCompressedRefuses what it has no code for.
func TestCompressedRefuses(t *testing.T) {
	j := open(t, media[0], 1, "", nil, 1)
	b := make([]byte, 64)
	if err := j[0].AllReduceOver(t.Context(), engine.WireF16, b, b, mem.Max); err == nil {
		t.Error("a maximum is compressed")
	}
	if err := j[0].AllReduceOver(t.Context(), engine.Wire(99), b, b, mem.Sum); err == nil {
		t.Error("an unknown form is taken")
	}
}
