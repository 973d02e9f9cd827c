package codec

import "math"

// unit is the unit roundoff of f32: the largest relative error of one rounding
// to nearest.
const unit = 0x1p-24

// MaxError bounds what an encoding loses: |decoded - x| of every element x of
// a block of finite elements, none of them of greater magnitude than most.
//
//   - F16: 2⁻¹¹·most, half a unit in the last of 11 places, or 2⁻²⁵ where
//     places end. Infinite from 65520, which becomes infinity.
//   - BF16: 2⁻⁸·most, half a unit in the last of 8 places, or 2⁻¹³⁴ where
//     places end. Infinite where BF16 rounds to infinity.
//   - Q8: most/254, half a step, and 2⁻¹³ of that for the roundings of scale,
//     inverse and product; or 2⁻¹¹⁹ where blocks become zero.
//
// It is never more than most where zero is what remains, nor decreases with
// most. It is infinite for a magnitude that is infinite or NaN.
func (c Codec) MaxError(most float64) float64 {
	relative, least, overflow := 0x1p-11, 0x1p-25, 65520.0
	switch c {
	case BF16:
		relative, least, overflow = 0x1p-8, 0x1p-134, 0x1.ffp127
	case Q8:
		relative, least, overflow = (1+0x1p-13)/254, q8Least, math.MaxFloat32*(1+unit/2)
	}
	if !(most < overflow) {
		return math.Inf(1)
	}
	return max(relative*most, min(most, least))
}

// TwoHopError bounds the error of an allreduce of two hops with Sum or Avg:
// the contributions of ranks ranks are encoded, summed in f32 in some order,
// divided by divisor if that is more than 1, and the result is encoded once
// more. No element of a contribution is of greater magnitude than most. The
// error is the distance from the exact sum, over divisor, of what went in.
//
// It is the first hop's error ranks times (a rank that adds its own
// contribution raw does better), what f32 loses in ranks-1 additions and a
// division, and the second hop's error on the largest sum there can be. With
// Min and Max it is no more than MaxError(most) twice.
func (c Codec) TwoHopError(ranks int, most float64, divisor int) float64 {
	n, d := float64(ranks), float64(max(divisor, 1))
	first := n * c.MaxError(most)
	// Higham, Accuracy and Stability of Numerical Algorithms, 2002, (4.4).
	additions := (n - 1) * unit / (1 - (n-1)*unit) * (n*most + first)
	sum := (n*most + first + additions) / d
	loss := (first + additions) / d
	if d > 1 {
		// Relative, or half the least f32.
		division := max(unit*sum, 0x1p-150)
		sum, loss = sum+division, loss+division
	}
	return loss + c.MaxError(sum)
}
