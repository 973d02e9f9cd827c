package main

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

// exactness reduces where there is one right answer: integers, and min and
// max of floats, whose bits, read as integers, are ordered as they are but for
// the sign.
type exactness struct {
	combine func(acc, x []uint64)
	finish  func(acc []uint64) // may be nil
}

func exactFor(t mem.DType, op mem.Op, ranks int) exactness {
	if t.Float() {
		switch t.Size() {
		case 2:
			return extremes[int16](op)
		case 4:
			return extremes[int32](op)
		}
		return extremes[int64](op)
	}
	switch t {
	case mem.I8:
		return integers[int8](op, ranks)
	case mem.I16:
		return integers[int16](op, ranks)
	case mem.I32:
		return integers[int32](op, ranks)
	case mem.I64:
		return integers[int64](op, ranks)
	case mem.U8:
		return integers[uint8](op, ranks)
	case mem.U16:
		return integers[uint16](op, ranks)
	case mem.U32:
		return integers[uint32](op, ranks)
	}
	return integers[uint64](op, ranks)
}

// integer are the element types that are integers.
type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// elements reads words as elements.
func elements[T integer](words []uint64) []T { return mem.Slice[T](mem.Bytes(words)) }

func integers[T integer](op mem.Op, ranks int) exactness {
	// Each operator has a loop of its own: a call for each element would cost
	// more than the work.
	loops := map[mem.Op]func(a, b []T){
		mem.Sum: func(a, b []T) {
			for i, x := range b {
				a[i] += x
			}
		},
		mem.Prod: func(a, b []T) {
			for i, x := range b {
				a[i] *= x
			}
		},
		mem.Min: func(a, b []T) {
			for i, x := range b {
				a[i] = min(a[i], x)
			}
		},
		mem.Max: func(a, b []T) {
			for i, x := range b {
				a[i] = max(a[i], x)
			}
		},
		mem.Band: func(a, b []T) {
			for i, x := range b {
				a[i] &= x
			}
		},
		mem.Bor: func(a, b []T) {
			for i, x := range b {
				a[i] |= x
			}
		},
		mem.Bxor: func(a, b []T) {
			for i, x := range b {
				a[i] ^= x
			}
		},
	}
	loops[mem.Avg] = loops[mem.Sum]
	e := exactness{combine: func(acc, x []uint64) { loops[op](elements[T](acc), elements[T](x)) }}
	if op == mem.Avg {
		e.finish = func(acc []uint64) {
			for i, x := range elements[T](acc) {
				// The number of ranks need not fit in T.
				if zero := T(0); zero-1 < zero {
					elements[T](acc)[i] = T(int64(x) / int64(ranks))
				} else {
					elements[T](acc)[i] = T(uint64(x) / uint64(ranks))
				}
			}
		}
	}
	return e
}

// extremes is min and max of floats with the width of T; there are no NaNs.
func extremes[T int16 | int32 | int64](op mem.Op) exactness {
	asIntegers := integers[T](op, 1).combine
	return exactness{combine: func(acc, x []uint64) {
		turn[T](acc)
		turn[T](x)
		asIntegers(acc, x)
		turn[T](acc)
	}}
}

// turn makes integers of floats that compare as they do, and floats of those
// again: the larger a negative float's magnitude, the less it is, so the bits
// below its sign are turned over.
func turn[T int16 | int32 | int64](words []uint64) {
	x := elements[T](words)
	width := 8 * unsafe.Sizeof(T(0))
	for i, bits := range x {
		x[i] = bits ^ bits>>(width-1)&^(-1<<(width-1))
	}
}

// show prints one element.
func show(t mem.DType, b []byte) string {
	switch t {
	case mem.I8:
		return fmt.Sprint(int8(b[0]))
	case mem.I16:
		return fmt.Sprint(int16(binary.NativeEndian.Uint16(b)))
	case mem.I32:
		return fmt.Sprint(int32(binary.NativeEndian.Uint32(b)))
	case mem.I64:
		return fmt.Sprint(int64(binary.NativeEndian.Uint64(b)))
	case mem.U8:
		return fmt.Sprint(b[0])
	case mem.U16:
		return fmt.Sprint(binary.NativeEndian.Uint16(b))
	case mem.U32:
		return fmt.Sprint(binary.NativeEndian.Uint32(b))
	case mem.U64:
		return fmt.Sprint(binary.NativeEndian.Uint64(b))
	}
	var x [1]float64
	decode(t, b, x[:])
	return fmt.Sprint(x[0])
}
