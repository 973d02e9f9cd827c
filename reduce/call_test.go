package reduce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

// guard is the bytes on both sides of a buffer that nobody may write.
const guard = 128

// buffer is memory at a chosen offset from a cache line, between guards.
type buffer struct {
	whole []byte
	at    int
	bytes []byte
}

func newBuffer(size, offset int) *buffer {
	whole := make([]byte, size+2*guard+128)
	for i := range whole {
		whole[i] = byte(0xa5 ^ i)
	}
	at := guard + offset
	at += -int(uintptr(unsafe.Pointer(&whole[guard]))) & 63
	return &buffer{whole, at, whole[at : at+size : at+size]}
}

func (b *buffer) pointer() unsafe.Pointer { return unsafe.Pointer(&b.whole[b.at]) }

// check fails if a guard byte changed.
func (b *buffer) check() error {
	for i, c := range b.whole {
		if (i < b.at || i >= b.at+len(b.bytes)) && c != byte(0xa5^i) {
			return fmt.Errorf("byte %d of a buffer of %d was written", i-b.at, len(b.bytes))
		}
	}
	return nil
}

// reduction is one call of a kernel.
type reduction struct {
	op      mem.Op
	t       mem.DType
	count   int
	divisor int
	srcs    [][]byte
	offsets []int // of the sources, then of the destinations, from a cache line
	alias   []int // for each destination the source it is, or -1
}

// run reduces with f and compares with the reference.
func (r *reduction) run(f Func) error {
	size := r.t.Size()
	var srcs, dsts []*buffer
	var srcAt, dstAt []unsafe.Pointer
	for i, s := range r.srcs {
		b := newBuffer(len(s), r.offsets[i])
		copy(b.bytes, s)
		srcs, srcAt = append(srcs, b), append(srcAt, b.pointer())
	}
	overwritten := make(map[int]bool)
	for j, alias := range r.alias {
		var b *buffer
		if alias >= 0 {
			b = srcs[alias]
			overwritten[alias] = true
		} else {
			b = newBuffer(r.count*size, r.offsets[len(srcs)+j])
		}
		dsts, dstAt = append(dsts, b), append(dstAt, b.pointer())
	}

	f(dstAt, srcAt, r.count, r.divisor)

	for i, b := range srcs {
		if err := b.check(); err != nil {
			return fmt.Errorf("source %d: %w", i, err)
		}
		if !overwritten[i] && !bytes.Equal(b.bytes, r.srcs[i]) {
			return fmt.Errorf("source %d was written", i)
		}
	}
	for j, b := range dsts {
		if err := b.check(); err != nil {
			return fmt.Errorf("destination %d: %w", j, err)
		}
	}
	for i := range r.count {
		want := refElement(r.op, r.t, r.srcs, i, r.divisor)
		for j, b := range dsts {
			var e [8]byte
			copy(e[:], b.bytes[i*size:(i+1)*size])
			got := binary.LittleEndian.Uint64(e[:])
			if isNaN(r.t, want) && isNaN(r.t, got) {
				continue
			}
			if got != want {
				return fmt.Errorf("element %d of destination %d: %#x, want %#x", i, j, got, want)
			}
		}
	}
	return nil
}

func (r *reduction) String() string {
	return fmt.Sprintf("%v of %v, %d elements, divisor %d, %d sources, offsets %v, aliases %v", r.op, r.t, r.count, r.divisor, len(r.srcs), r.offsets, r.alias)
}

// newReduction draws offsets, aliases, divisor and values.
func newReduction(rng *rand.Rand, op mem.Op, t mem.DType, count, n, m int) *reduction {
	r := &reduction{op: op, t: t, count: count, divisor: 1}
	if divides(op) {
		r.divisor = []int{0, 1, n, 300}[rng.IntN(4)]
	}
	free := rng.Perm(n)
	aligned := rng.IntN(4) == 0
	for range n + m {
		offset := rng.IntN(64)
		if aligned {
			offset = 0
		}
		r.offsets = append(r.offsets, offset)
	}
	for range m {
		alias := -1
		if len(free) > 0 && rng.IntN(2) == 0 {
			alias, free = free[0], free[1:]
		}
		r.alias = append(r.alias, alias)
	}
	for range n {
		s := make([]byte, count*t.Size())
		fill(rng, t, s)
		r.srcs = append(r.srcs, s)
	}
	return r
}

// specials are the bits of values where floats differ from numbers: zeros,
// ones, least and greatest subnormal and normal, infinities, NaNs (quiet,
// negative and signalling), halfway cases of sums.
var specials = map[mem.DType][]uint64{
	mem.F16: {
		0, 0x8000, 0x3c00, 0xbc00, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff,
		0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7d00, 0x6800, 0x6801, 0x1000, 0x5000,
	},
	mem.BF16: {
		0, 0x8000, 0x3f80, 0xbf80, 1, 0x8001, 0x7f, 0x80, 0x7f7f, 0xff7f,
		0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0x4380, 0x4381, 0x3b80, 0x3b81,
	},
	mem.F32: {
		0, 1 << 31, 0x3f800000, 0xbf800000, 1, 0x80000001, 0x7fffff, 0x800000, 0x7f7fffff, 0xff7fffff,
		0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7fa00000, 0x4b800000, 0x4b800001, 0x33800000,
	},
	mem.F64: {
		0, 1 << 63, 0x3ff0000000000000, 0xbff0000000000000, 1, 1<<63 | 1, 1<<52 - 1, 1 << 52, 0x7fefffffffffffff,
		0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000000001, 0x7ff4000000000000,
		0x4340000000000000, 0x4340000000000001, 0x3ca0000000000000,
	},
}

// fill draws values: bits at random, specials, and for floats also numbers of
// similar size, whose sums round.
func fill(rng *rand.Rand, t mem.DType, b []byte) {
	size := t.Size()
	style := rng.IntN(3)
	for i := 0; i < len(b); i += size {
		bits := rng.Uint64()
		if special := specials[t]; special != nil {
			switch {
			case style == 0 || rng.IntN(16) == 0:
				bits = special[rng.IntN(len(special))]
			case style == 1:
				bits = rng.Uint64()>>3&(1<<(8*size-6)-1) ^ special[2+rng.IntN(2)]
			}
		}
		var e [8]byte
		binary.LittleEndian.PutUint64(e[:], bits)
		copy(b[i:i+size], e[:])
	}
}

// eachKernel runs a subtest for every instruction set of this CPU, operator
// and type.
func eachKernel(t *testing.T, test func(t *testing.T, f Func, op mem.Op, dt mem.DType)) {
	for _, s := range isas {
		for _, op := range mem.Ops() {
			for _, dt := range mem.DTypes() {
				if op.Supports(dt) {
					t.Run(fmt.Sprintf("%s/%v/%v", s.name, op, dt), func(t *testing.T) {
						t.Parallel()
						test(t, s.funcs[op][dt], op, dt)
					})
				}
			}
		}
	}
}
