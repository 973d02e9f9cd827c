package codec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/reduce"
)

// ops are the operators that f32 has.
var ops = []mem.Op{mem.Sum, mem.Avg, mem.Prod, mem.Min, mem.Max}

// reduction is one call of Reduce.
type reduction struct {
	op      mem.Op
	c       Codec
	count   int
	divisor int
	srcs    [][]byte
	encoded []bool // of the sources, then of the destinations
	alias   []int  // for each destination the source it is, or -1
	offsets []int  // from a cache line, as encoded
}

// newReduction draws one of n sources and m destinations.
func newReduction(rng *rand.Rand, op mem.Op, c Codec, count, n, m int) *reduction {
	r := &reduction{op: op, c: c, count: count, divisor: 1}
	if op == mem.Avg {
		r.divisor = n
	}
	for range n + m {
		r.encoded = append(r.encoded, rng.IntN(2) == 0)
		r.offsets = append(r.offsets, rng.IntN(64)*rng.IntN(2))
	}
	for i := range n {
		x := make([]float32, count)
		draw(rng, x)
		if r.encoded[i] {
			r.srcs = append(r.srcs, refEncode(c, x))
		} else {
			r.srcs = append(r.srcs, bytesOf(x))
		}
	}
	free := rng.Perm(n)
	for j := range m {
		alias := -1
		if len(free) > 0 && rng.IntN(2) == 0 {
			alias, free = free[0], free[1:]
			r.encoded[n+j] = r.encoded[alias]
		}
		r.alias = append(r.alias, alias)
	}
	return r
}

func (r *reduction) String() string {
	return fmt.Sprintf("%v of %v, %d elements, divisor %d, %d sources, encoded %v, aliases %v, offsets %v",
		r.op, r.c, r.count, r.divisor, len(r.srcs), r.encoded, r.alias, r.offsets)
}

// run reduces with v and compares with the reference, and the destinations
// with each other.
func (r *reduction) run(v isa, s *Scratch) error {
	kernel, err := reduce.Lookup(r.op, mem.F32)
	if err != nil {
		return err
	}
	var (
		n          = len(r.srcs)
		buffers    []*buffer
		srcs, dsts []Operand
		values     [][]float32
		written    = make([]bool, n)
	)
	for i, b := range r.srcs {
		buffers = append(buffers, bufferOf(b, r.offsets[i]))
		srcs = append(srcs, Operand{buffers[i].pointer(), r.encoded[i]})
		if r.encoded[i] {
			values = append(values, refDecode(r.c, b, r.count))
		} else {
			values = append(values, floatsOf(b))
		}
	}
	for j, alias := range r.alias {
		var b *buffer
		switch {
		case alias >= 0:
			b, written[alias] = buffers[alias], true
		case r.encoded[n+j]:
			b = newBuffer(r.c.EncodedBytes(r.count), r.offsets[n+j])
		default:
			b = newBuffer(4*r.count, r.offsets[n+j])
		}
		buffers = append(buffers, b)
		dsts = append(dsts, Operand{b.pointer(), r.encoded[n+j]})
	}

	v.reduce(r.c, kernel, dsts, srcs, r.count, r.divisor, s)

	for i, b := range buffers {
		if err := b.check(); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		if i < n && !written[i] && !bytes.Equal(b.bytes, r.srcs[i]) {
			return fmt.Errorf("source %d was written", i)
		}
	}
	want := refDecode(r.c, refEncode(r.c, refReduce(r.op, values, r.divisor)), r.count)
	var decoded []byte
	for j, b := range buffers[n:] {
		got := b.bytes
		if r.encoded[n+j] {
			x := newBuffer(4*r.count, 0)
			r.c.Decode(x.pointer(), b.pointer(), r.count)
			got = x.bytes
		}
		for i, f := range floatsOf(got) {
			if !same(f, want[i]) {
				return fmt.Errorf("element %d of destination %d is %v, want %v", i, j, f, want[i])
			}
		}
		if j > 0 && !bytes.Equal(got, decoded) {
			return fmt.Errorf("destination %d is not what destination 0 is", j)
		}
		decoded = got
	}
	return nil
}

func TestReduce(t *testing.T) {
	var s Scratch
	for _, v := range isas() {
		for _, c := range codecs {
			for _, op := range ops {
				rng := rand.New(rand.NewPCG(uint64(c), uint64(op)))
				for _, count := range []int{0, 1, 17, 255, 256, 300, tile, tile + 1, 2*tile + 3*Block, 3*tile + 5} {
					for range max(1, min(20, 4000/(count+1))) {
						r := newReduction(rng, op, c, count, 1+rng.IntN(2*lanes+2), 1+rng.IntN(4))
						if err := r.run(v, &s); err != nil {
							t.Fatalf("%s: %v: %v", isaNames[v], r, err)
						}
					}
				}
			}
		}
	}
	if s.in != [lanes]unsafe.Pointer{} || s.out[0] != nil {
		t.Error("the scratch still points to operands")
	}
}

// TestNoAllocations holds the hot paths to what they promise, with rests of
// blocks too.
func TestNoAllocations(t *testing.T) {
	const count = 3*tile + 9
	kernel, err := reduce.Lookup(mem.Sum, mem.F32)
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, count), make([]byte, 2*count)
	s := new(Scratch)
	raw, code := unsafe.Pointer(&x[0]), unsafe.Pointer(&y[0])
	for _, v := range isas() {
		for _, c := range codecs {
			v.encode(c, code, raw, count)
			got := testing.AllocsPerRun(10, func() {
				v.encode(c, code, raw, count)
				v.decode(c, raw, code, count)
				srcs := [...]Operand{{raw, false}, {code, true}}
				v.reduce(c, kernel, srcs[:], srcs[:], count, 2, s)
			})
			if got != 0 {
				t.Errorf("%s/%v: %v allocations", isaNames[v], c, got)
			}
		}
	}
}
