package plan

import "math/bits"

// A value is the symbolic content of a cell: which contributions to one
// chunk it holds, and the expression that combined them. Values are
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
	chunk  []int    // by value
	set    [][]byte // by value: bit set of ranks
	inputs map[[2]int]value
	unions map[[2]value]value
}

func newValues(ranks int, c Collective) *values {
	return &values{
		ranks:  ranks,
		tokens: c == Barrier,
		inputs: map[[2]int]value{},
		unions: map[[2]value]value{},
	}
}

func (v *values) add(chunk int, set []byte) value {
	v.chunk = append(v.chunk, chunk)
	v.set = append(v.set, set)
	return value(len(v.set) - 1)
}

// input returns the value of chunk c of the rank's In.
func (v *values) input(rank, chunk int) value {
	id, ok := v.inputs[[2]int{rank, chunk}]
	if !ok {
		set := make([]byte, (v.ranks+7)/8)
		set[rank/8] = 1 << (rank % 8)
		id = v.add(chunk, set)
		v.inputs[[2]int{rank, chunk}] = id
	}
	return id
}

// union returns the reduction of a and b, in this order, or why there is
// none.
func (v *values) union(a, b value) (value, string) {
	if id, ok := v.unions[[2]value{a, b}]; ok {
		return id, ""
	}
	if v.chunk[a] != v.chunk[b] {
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
	id := v.add(v.chunk[a], set)
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
