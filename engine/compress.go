package engine

import (
	"fmt"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// Wire is the form in which the elements of a call travel between ranks.
type Wire uint8

// The forms: as they are, or, for allreduce of f32 on request, in fewer bits.
const (
	WireFull Wire = iota
	WireF16
	WireBF16
	WireQ8 // 8 bits, with a scale for each block of 256 elements

	numWires
)

var wireNames = [numWires]string{"full", "f16", "bf16", "q8"}

// String is the name that ParseWire reads.
func (w Wire) String() string {
	if w < numWires {
		return wireNames[w]
	}
	return fmt.Sprintf("Wire(%d)", uint8(w))
}

// ParseWire reads a form by its name: full, f16, bf16, q8.
func ParseWire(s string) (Wire, error) {
	for w, name := range wireNames {
		if s == name {
			return Wire(w), nil
		}
	}
	return 0, fmt.Errorf("unknown wire format %q (known: %v)", s, wireNames)
}

// check refuses a form for calls that it does not suit.
func (w Wire) check(k *call) error {
	switch {
	case w == WireFull:
		return nil
	case w >= numWires:
		return k.bad("unknown wire format %v", w)
	case k.collective != plan.AllReduce || k.dtype != mem.F32 || k.op != mem.Sum && k.op != mem.Avg:
		return k.bad("only sums and averages of f32 by allreduce are compressed, not %v of %v by %v", k.op, k.dtype, k.collective)
	}
	return nil
}

// performCoded is the work of one action where elements travel in a shorter
// form. (Until the codec is there.)
func (c *Comm) performCoded(k *call, a *action, bytes, divisor int) { panic("not yet") }
