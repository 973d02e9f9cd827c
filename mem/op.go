package mem

import (
	"fmt"
	"strings"
)

// Op is the operator of a reduction.
type Op uint8

// The operators. Integer sums and products wrap. Avg is the sum divided once
// by the number of ranks, after all of it has been added up; for integers the
// wrapped sum is divided and truncated towards zero. Min and Max propagate
// NaN and order -0 below +0 (IEEE 754-2019 minimum and maximum). Band, Bor and
// Bxor are for integers only.
const (
	Sum Op = iota
	Prod
	Min
	Max
	Avg
	Band
	Bor
	Bxor

	numOps
)

var opNames = [numOps]string{"sum", "prod", "min", "max", "avg", "band", "bor", "bxor"}

// Ops returns every operator, in declaration order.
func Ops() []Op {
	all := make([]Op, numOps)
	for i := range all {
		all[i] = Op(i)
	}
	return all
}

// ParseOp reads an operator by its name. The error lists the names that are
// known.
func ParseOp(s string) (Op, error) {
	for o, name := range opNames {
		if s == name {
			return Op(o), nil
		}
	}
	return 0, fmt.Errorf("unknown reduction operator %q (known: %s)", s, strings.Join(opNames[:], ", "))
}

// Valid reports whether o is one of the declared operators.
func (o Op) Valid() bool { return o < numOps }

// Supports reports whether o is defined on elements of type t: everything is,
// but for the bitwise operators on floating-point types.
func (o Op) Supports(t DType) bool {
	return o.Valid() && t.Valid() && (o < Band || !t.Float())
}

// String is the name ParseOp reads.
func (o Op) String() string {
	if !o.Valid() {
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
	return opNames[o]
}
