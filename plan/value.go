package plan

import "math/bits"

// A value is the symbolic content of a cell: the set of ranks whose
// contribution to one chunk it holds. Values are interned: equal values have
// equal ids, and the union of two is computed once.
//
// A set is enough where the proof needs a multiset: union refuses a
// contribution that is already there. In a barrier there is nothing to count
// and union is plain set union.
type value int32

const unwritten value = -1

type values struct {
	ranks   int
	tokens  bool // barrier: contributions may repeat
	chunk   []int
	set     []string // the bit set of ranks, as a string to be a map key
	ids     map[valueKey]value
	unions  map[[2]value]value
	scratch []byte
}

type valueKey struct {
	chunk int
	set   string
}

func newValues(ranks int, c Collective) *values {
	return &values{
		ranks:   ranks,
		tokens:  c == Barrier,
		ids:     map[valueKey]value{},
		unions:  map[[2]value]value{},
		scratch: make([]byte, (ranks+7)/8),
	}
}

func (v *values) intern(chunk int, set []byte) value {
	if id, ok := v.ids[valueKey{chunk, string(set)}]; ok {
		return id
	}
	id := value(len(v.set))
	s := string(set)
	v.chunk = append(v.chunk, chunk)
	v.set = append(v.set, s)
	v.ids[valueKey{chunk, s}] = id
	return id
}

// input returns the value of chunk c of the rank's In.
func (v *values) input(rank, chunk int) value {
	clear(v.scratch)
	v.scratch[rank/8] = 1 << (rank % 8)
	return v.intern(chunk, v.scratch)
}

// union returns the reduction of a and b, or why there is none.
func (v *values) union(a, b value) (value, string) {
	if id, ok := v.unions[[2]value{a, b}]; ok {
		return id, ""
	}
	if v.chunk[a] != v.chunk[b] {
		return unwritten, "mixes two chunks"
	}
	x, y := v.set[a], v.set[b]
	for i := range v.scratch {
		if x[i]&y[i] != 0 && !v.tokens {
			return unwritten, "takes a contribution twice"
		}
		v.scratch[i] = x[i] | y[i]
	}
	id := v.intern(v.chunk[a], v.scratch)
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

// isFull reports whether a is chunk c of every rank.
func (v *values) isFull(a value, chunk int) bool {
	return a != unwritten && v.chunk[a] == chunk && v.complete(a)
}

// missing returns a rank whose contribution a lacks, or -1.
func (v *values) missing(a value) int {
	if a == unwritten {
		return 0
	}
	for r := range v.ranks {
		if v.set[a][r/8]&(1<<(r%8)) == 0 {
			return r
		}
	}
	return -1
}
