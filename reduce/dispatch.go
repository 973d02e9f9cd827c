package reduce

// An isa is an instruction set with a function for everything.
type isa struct {
	name  string
	funcs *funcTable
}

// isas is what this machine can run, best first; the last is generic.
var isas = append(vectorISAs(), isa{"generic", portableTable()})

// active is what Lookup dispatches to.
var active = choose(isas)

func choose(isas []isa) isa { return isas[0] }

func vectorISAs() []isa { return nil }
