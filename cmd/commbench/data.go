package main

import (
	"encoding/binary"

	"github.com/tutti-go/tutti/mem"
)

// Every rank's input is a function of seed, rank and place, so that each rank
// can compute what any other brought. It is made in words of 64 bits, one hash
// a word, and shaped by two masks into elements that no sum or product
// overflows: that is fast enough to be free beside the memory.

// source makes the input of one rank.
type source struct {
	key, and, or uint64
}

const (
	mulA = 0x9e3779b97f4a7c15
	mulB = 0xd6e8feb86659fd93
)

func mix(x uint64) uint64 {
	x *= mulA
	x ^= x >> 32
	x *= mulB
	return x ^ x>>29
}

// newSource is the input of a rank in a job of the given number of ranks.
func newSource(seed uint64, rank, ranks int, t mem.DType, op mem.Op) source {
	lane := laneOf(t, op, ranks)
	s := source{key: mix(mix(seed) ^ uint64(rank+1)*mulB)}
	for shift := 0; shift < 64; shift += 8 * t.Size() {
		s.and |= lane.and << shift
		s.or |= lane.or << shift
	}
	return s
}

// word is the input's word of the given number.
func (s source) word(i int) uint64 {
	x := (uint64(i) ^ s.key) * mulA
	x ^= x >> 32
	x *= mulB
	return (x^x>>29)&s.and | s.or
}

// fill writes the words from the given number on.
func (s source) fill(dst []uint64, first int) {
	for i := range dst {
		dst[i] = s.word(first + i)
	}
}

// fillBytes writes the whole input of a buffer.
func (s source) fillBytes(dst []byte) {
	words := mem.Slice[uint64](dst)
	s.fill(words, 0)
	s.tail(dst[len(words)*8:], len(words))
}

// part writes so many bytes from an offset on, with all of the words that they
// lie in, to dst, and returns them.
func (s source) part(dst []uint64, from, bytes int) []byte {
	dst = dst[:(from%8+bytes+7)/8]
	s.fill(dst, from/8)
	return mem.Bytes(dst)[from%8:][:bytes]
}

// tail writes the bytes of a word that the buffer ends in.
func (s source) tail(dst []byte, number int) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], s.word(number))
	copy(dst, b[:])
}

// lane shapes the random bits of one element: value = bits & and | or.
type lane struct{ and, or uint64 }

// laneOf keeps products and sums within range: floats for sums have magnitudes
// from 1/8 to 2, floats for products from 1 to a little more, so that all
// ranks' product stays below 64, and integers for products are odd, so that
// no factor wipes out the others' low bits. All other integers are any.
func laneOf(t mem.DType, op mem.Op, ranks int) lane {
	bits := 8 * t.Size()
	all := ^uint64(0) >> (64 - bits)
	if !t.Float() {
		if op == mem.Prod {
			return lane{all &^ 1, 1}
		}
		return lane{all, 0}
	}
	mantissa, bias := floatFormat(t)
	sign := uint64(1) << (bits - 1)
	if op == mem.Prod {
		// Factors below 1+4/ranks: their product is below e⁴. The largest
		// mantissa is a power of two, so that it is a mask.
		width := mantissa
		for r := 4; r < ranks && width > 0; r *= 2 {
			width--
		}
		return lane{sign | (1<<width - 1), uint64(bias) << mantissa}
	}
	// bias-3 ends in two zero bits in every format: the random bits choose
	// among four exponents.
	return lane{sign | 3<<mantissa | (1<<mantissa - 1), uint64(bias-3) << mantissa}
}

// floatFormat is the number of mantissa bits that are stored, and the bias of
// the exponent.
func floatFormat(t mem.DType) (mantissa, bias int) {
	switch t {
	case mem.F16:
		return 10, 15
	case mem.BF16:
		return 7, 127
	case mem.F32:
		return 23, 127
	}
	return 52, 1023
}
