package plan

import "math/bits"

// A value is the symbolic content of a cell: which contributions to one
// datum it holds, and the expression that combined them. Values are
// interned: equal expressions have equal ids, so that two ranks hold the
// same bits if they hold the same value, even where the operator is not
// associative.
//
// The contributions are a set where the proof needs a multiset: union
// refuses one that is already there. In a barrier there is nothing to count
// and union is plain set union.
type value int32

const unwritten value = -1

type values struct {
	ranks  int
	tokens bool     // barrier: contributions may repeat
	datum  []datum  // by value
	set    [][]byte // by value: bit set of ranks
	inputs map[input]value
	unions map[[2]value]value
}

// An input is a rank's contribution of a datum.
type input struct {
	rank int
	datum
}

func newValues(ranks int, c Collective) *values {
	return &values{
		ranks:  ranks,
		tokens: c == Barrier,
		inputs: map[input]value{},
		unions: map[[2]value]value{},
	}
}

func (v *values) add(d datum, set []byte) value {
	v.datum = append(v.datum, d)
	v.set = append(v.set, set)
	return value(len(v.set) - 1)
}

// input returns the value of a datum as the rank contributes it.
func (v *values) input(rank int, d datum) value {
	id, ok := v.inputs[input{rank, d}]
	if !ok {
		set := make([]byte, (v.ranks+7)/8)
		set[rank/8] = 1 << (rank % 8)
		id = v.add(d, set)
		v.inputs[input{rank, d}] = id
	}
	return id
}

// union returns the reduction of a and b, in this order, or why there is
// none.
func (v *values) union(a, b value) (value, string) {
	if id, ok := v.unions[[2]value{a, b}]; ok {
		return id, ""
	}
	if v.datum[a] != v.datum[b] {
		return unwritten, "mixes two chunks"
	}
	set := make([]byte, len(v.set[a]))
	for i, x := range v.set[a] {
		y := v.set[b][i]
		if x&y != 0 && !v.tokens {
			return unwritten, "takes a contribution twice"
		}
		set[i] = x | y
	}
	id := v.add(v.datum[a], set)
	v.unions[[2]value{a, b}] = id
	return id, ""
}

// complete reports whether a holds the contribution of every rank.
func (v *values) complete(a value) bool {
	n := 0
	for i := range len(v.set[a]) {
		n += bits.OnesCount8(v.set[a][i])
	}
	return n == v.ranks
}

// missing returns a rank whose contribution a lacks, or -1.
func (v *values) missing(a value) int {
	for r := range v.ranks {
		if v.set[a][r/8]&(1<<(r%8)) == 0 {
			return r
		}
	}
	return -1
}
