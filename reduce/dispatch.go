package reduce

import (
	"os"
	"slices"
)

// simdVariable is the environment variable that chooses a lesser ISA.
const simdVariable = "TUTTI_SIMD"

// ranking is every name ISA may return, best first.
var ranking = []string{"avx512", "avx2", "neon", "generic"}

// An isa is an instruction set with a function for everything.
type isa struct {
	name  string
	funcs *funcTable
}

// isas is what this machine can run, best first; the last is generic.
var isas = append(vectorISAs(), isa{"generic", portableTable()})

// active is what Lookup dispatches to.
var active = choose(isas, os.Getenv(simdVariable))

// choose returns the first of isas that is not better than the named one; no
// name, or one that is not in the ranking, limits nothing.
func choose(isas []isa, name string) isa {
	limit := slices.Index(ranking, name)
	for _, i := range isas {
		if slices.Index(ranking, i.name) >= limit {
			return i
		}
	}
	return isas[len(isas)-1]
}
