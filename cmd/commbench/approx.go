package main

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tutti-go/tutti/mem"
)

// approximation judges sums, products and averages of floats, whose last bits
// depend on the order of reduction. The reference is computed with twice the
// precision, and a result may be off by what n-1 roundings in any order can
// amount to: gamma(n-1) times the sum of magnitudes, gamma(k) = ku/(1-ku)
// (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). An
// average is rounded once more. A 16-bit type adds up in 32 bits and is rounded
// to its own width at the end, and before every rank that a partial result is
// passed on to. Near zero a rounding is not relative: it is off by up to half
// the least number. The data keeps all but the last one away from there.
type approximation struct {
	t     mem.DType
	op    mem.Op
	ranks float64

	spread  float64 // of the sum of magnitudes (of the product, for products)
	last    float64 // of the result's magnitude: the roundings at the end
	quantum float64 // half the least number of t
	coding  *coding // of the elements on their way; nil where they travel as they are

	count int
	// The reference is hi+lo; lo stays 0 where hi's 53 bits are plenty.
	hi, lo, magnitude, x [checkTile / 2]float64
}

func gamma(k int, u float64) float64 { return float64(k) * u / (1 - float64(k)*u) }

// unit is the most that one rounding to t is off, relatively, and near zero.
func unit(t mem.DType) (relative, absolute float64) {
	mantissa, bias := floatFormat(t)
	return math.Ldexp(1, -mantissa-1), max(math.Ldexp(1, -bias-mantissa), math.SmallestNonzeroFloat64)
}

// newApproximation judges the results of an algorithm that reduces all ranks'
// inputs in one pass, or passes partial results on.
func newApproximation(t mem.DType, op mem.Op, ranks int, onePass bool) *approximation {
	accumulator := t
	if t.Size() == 2 {
		accumulator = mem.F32
	}
	u, _ := unit(accumulator)
	own, quantum := unit(t)
	a := &approximation{t: t, op: op, ranks: float64(ranks)}
	if ranks == 1 { // nothing is reduced, nothing is rounded
		return a
	}
	step := u
	if accumulator != t {
		a.last = own
		if !onePass {
			step += own * (1 + u)
		}
	}
	a.spread, a.quantum = gamma(ranks-1, step), quantum
	if t != mem.F64 {
		double, _ := unit(mem.F64)
		a.spread += gamma(ranks-1, double) // the reference's own
	}
	if op == mem.Avg {
		a.last += u
	}
	// The bound is itself computed with roundings.
	a.spread *= 1 + 1e-9
	a.last *= 1 + 1e-9
	return a
}

// reset begins a tile of count elements.
func (a *approximation) reset(count int) {
	a.count = count
	one := 0.0
	if a.op == mem.Prod {
		one = 1
	}
	for i := range count {
		a.hi[i], a.lo[i], a.magnitude[i] = one, 0, 0
	}
}

// add takes one rank's input of the tile.
func (a *approximation) add(input []byte) {
	x, hi := a.x[:a.count], a.hi[:a.count]
	decode(a.t, input, x)
	lo, magnitude := a.lo[:len(x)], a.magnitude[:len(x)]
	switch {
	case a.op == mem.Prod && a.t == mem.F64:
		for i, f := range x {
			p := hi[i] * f
			lo[i] = lo[i]*f + math.FMA(hi[i], f, -p)
			hi[i] = p
		}
	case a.op == mem.Prod:
		for i, f := range x {
			hi[i] *= f
		}
	case a.t == mem.F64:
		for i, f := range x { // two-sum: what s lost is known exactly
			s := hi[i] + f
			b := s - hi[i]
			lo[i] += (hi[i] - (s - b)) + (f - b)
			hi[i] = s
			magnitude[i] += math.Abs(f)
		}
	default:
		for i, f := range x {
			hi[i] += f
			magnitude[i] += math.Abs(f)
		}
	}
}

// miss is an element that is off by more than it may be.
type miss struct {
	index            int
	got, want, bound float64
}

func (m miss) String() string { return fmt.Sprintf("%g, not %g within %.2g", m.got, m.want, m.bound) }

// compare counts the elements that are wrong and returns the first.
func (a *approximation) compare(got []byte) (wrong int, first miss) {
	x := a.x[:a.count]
	decode(a.t, got, x)
	for i, g := range x {
		hi, lo, magnitude := a.hi[i], a.lo[i], a.magnitude[i]
		coded := 0.0
		if a.coding != nil {
			coded = a.coding.bound(a.ranks, magnitude, math.Abs(hi), a.op == mem.Avg)
		}
		if a.op == mem.Prod {
			magnitude = math.Abs(hi)
		}
		if a.op == mem.Avg {
			q := hi / a.ranks
			lo = (math.FMA(-q, a.ranks, hi) + lo) / a.ranks
			hi, magnitude = q, magnitude/a.ranks
		}
		off := a.spread * magnitude
		bound := off + a.last*(math.Abs(hi)+off) + a.quantum + coded
		if e := math.Abs((g - hi) - lo); !(e <= bound) { // a NaN is wrong as well
			if wrong == 0 {
				first = miss{i, g, hi + lo, bound}
			}
			wrong++
		}
	}
	return wrong, first
}

// decode reads len(x) floats of type t.
func decode(t mem.DType, b []byte, x []float64) {
	switch t {
	case mem.F16:
		for i := range x {
			x[i] = fromF16(binary.NativeEndian.Uint16(b[2*i:]))
		}
	case mem.BF16:
		for i := range x {
			x[i] = float64(math.Float32frombits(uint32(binary.NativeEndian.Uint16(b[2*i:])) << 16))
		}
	case mem.F32:
		for i := range x {
			x[i] = float64(math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:])))
		}
	default:
		for i := range x {
			x[i] = math.Float64frombits(binary.NativeEndian.Uint64(b[8*i:]))
		}
	}
}

// fromF16 widens: the bits become a binary32's whose exponent is 112 too low,
// and a multiplication puts that right, for subnormal numbers too. A branch on
// the sign would be predicted wrong every other time.
func fromF16(h uint16) float64 {
	bits := uint32(h&0x8000)<<16 | uint32(h&0x7fff)<<13
	if h&0x7c00 == 0x7c00 { // infinity or NaN
		return float64(math.Float32frombits(bits | 0x7f800000))
	}
	return float64(math.Float32frombits(bits) * 0x1p112)
}
