package main

import "github.com/tutti-go/tutti/engine"

// coding is what it costs to send elements in fewer bits, as package
// reduce/codec states it. Each contribution is coded once, and the sum once
// more; what the additions between the two lose, approximation knows.
type coding struct {
	relative float64 // of the magnitude that counts
	least    float64 // where magnitudes end
	// blocks: the magnitude that counts is the greatest one of a block, not
	// the element's own.
	blocks bool
}

var codings = map[engine.Wire]*coding{
	engine.WireF16:  {0x1p-11, 0x1p-25, false},
	engine.WireBF16: {0x1p-8, 0x1p-134, false},
	engine.WireQ8:   {(1 + 0x1p-13) / 254, 0x1p-119, true},
}

// greatest is above every magnitude in the data for sums.
const greatest = 2

// over says in what form elements travel. A rank that is alone sends none.
func (a *approximation) over(w engine.Wire) {
	if a.ranks > 1 {
		a.coding = codings[w]
	}
}

// bound is how far off the coding may put an element whose contributions have
// the given sum of magnitudes, and magnitude of the sum.
func (c *coding) bound(ranks, magnitudes, sum float64, avg bool) float64 {
	if c.blocks {
		magnitudes, sum = ranks*greatest, ranks*greatest
	}
	const roundings = 1 + 1e-3 // of the additions, on what the coding has put off
	first := (c.relative*magnitudes + ranks*c.least) * roundings
	sum += first
	if avg {
		first, sum = first/ranks, sum/ranks
	}
	return first + c.relative*sum*roundings + c.least
}
