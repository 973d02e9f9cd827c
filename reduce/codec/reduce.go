package codec

import (
	"unsafe"

	"github.com/tutti-go/tutti/reduce"
)

const (
	// tile is how many elements Reduce finishes at a time, a whole number of
	// blocks.
	tile = 4 * Block

	// lanes is how many sources one call of the kernel combines. With it and
	// tile, all that a tile touches stays in a first-level cache of 32 KiB.
	lanes = 4
)

// An Operand is a source or a destination of Reduce: f32, or their encoding.
type Operand struct {
	P       unsafe.Pointer
	Encoded bool
}

// Scratch is the memory that Reduce works in: some 22 KiB, of which nothing
// outlives a call. The zero value is ready. One Scratch serves one Reduce at a
// time, and is best kept, so that it is in the cache.
type Scratch struct {
	in  [lanes]unsafe.Pointer
	out [1]unsafe.Pointer

	// From a cache line on: the combination, the decoded sources, and the
	// encoding. Go does not say where a Scratch starts, and lets one that it
	// allocates start 8 bytes into a line; then every vector lies in two.
	memory [line + (1+lanes)*tileBytes + 2*tile]byte
}

const (
	line      = 64
	tileBytes = 4 * tile
)

// accumulator is where the combination of a tile is.
func (s *Scratch) accumulator() unsafe.Pointer {
	p := unsafe.Pointer(&s.memory)
	return unsafe.Add(p, -uintptr(p)%line)
}

// decoded is where the i-th of the sources that are combined is, if decoded.
func (s *Scratch) decoded(i int) unsafe.Pointer {
	return unsafe.Add(s.accumulator(), (1+i)*tileBytes)
}

// encoded is where the encoding of a tile is that nobody wants.
func (s *Scratch) encoded() unsafe.Pointer { return s.decoded(lanes) }

// Reduce is the middle of a compressed allreduce of two hops. It decodes the
// encoded sources, combines all of them with kernel, in the order of srcs, and
// encodes the result, once. An encoded destination gets that encoding and any
// other what it decodes to, so that whoever has either has the same bits.
//
// kernel is reduce.Lookup's for an operator on f32, and divisor is what it
// takes: more than 1 to divide the combination at the end, before it is
// encoded, which only sum and avg do. There is at least one source and one
// destination, each of count elements.
//
// Any destination may be exactly one of the sources that is encoded if it is.
// Otherwise buffers, and scratch, must not overlap. They may have any
// alignment. Reduce does not allocate, lock or block, and keeps none of its
// arguments.
//
// Results agree bit for bit between instruction sets, but for the payload of
// NaNs that kernel makes or meets.
func (c Codec) Reduce(kernel reduce.Func, dsts, srcs []Operand, count, divisor int, scratch *Scratch) {
	active.reduce(c, kernel, dsts, srcs, count, divisor, scratch)
}

// reduce is Codec.Reduce with the kernels of v.
func (v isa) reduce(c Codec, kernel reduce.Func, dsts, srcs []Operand, count, divisor int, s *Scratch) {
	for from := 0; from < count; from += tile {
		n, raw, encoded := min(tile, count-from), 4*from, c.EncodedBytes(from)
		v.combine(c, kernel, srcs, raw, encoded, n, divisor, s)

		// All sources have been read, so destinations may be written.
		var code unsafe.Pointer
		for _, d := range dsts {
			switch {
			case !d.Encoded:
			case code == nil:
				code = unsafe.Add(d.P, encoded)
				v.encode(c, code, s.accumulator(), n)
			default:
				copyBytes(unsafe.Add(d.P, encoded), code, c.EncodedBytes(n))
			}
		}
		if code == nil {
			code = s.encoded()
			v.encode(c, code, s.accumulator(), n)
		}
		for _, d := range dsts {
			if !d.Encoded {
				v.decode(c, unsafe.Add(d.P, raw), code, n)
			}
		}
	}
	clear(s.in[:])
	clear(s.out[:])
}

// combine reduces n elements of every source, which are raw or encoded bytes
// from its start, into the accumulator: as many sources at a time as there are lanes, of
// which the first is what there is so far.
func (v isa) combine(c Codec, kernel reduce.Func, srcs []Operand, raw, encoded, n, divisor int, s *Scratch) {
	acc := s.accumulator()
	s.out[0] = acc
	used := 0
	for i, src := range srcs {
		if src.Encoded {
			s.in[used] = s.decoded(used)
			v.decode(c, s.in[used], unsafe.Add(src.P, encoded), n)
		} else {
			s.in[used] = unsafe.Add(src.P, raw)
		}
		used++
		last := i == len(srcs)-1
		if used < lanes && !last {
			continue
		}
		if last {
			kernel(s.out[:], s.in[:used], n, divisor)
		} else {
			kernel(s.out[:], s.in[:used], n, 1)
		}
		s.in[0], used = acc, 1
	}
}
