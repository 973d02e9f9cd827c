package reduce

import (
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

// tile is how many elements the portable twins combine at a time, in an
// accumulator on the stack. With it a destination may be any of the sources:
// all of them have been read before the first is written.
const tile = 128

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

// portableTable is the portable twin of everything.
func portableTable() *funcTable {
	t := new(funcTable)
	for _, op := range mem.Ops() {
		if op.Supports(mem.F32) {
			t[op][mem.F16] = portableHalf(op, f16)
			t[op][mem.BF16] = portableHalf(op, bf16)
			t[op][mem.F32] = portableFloat[float32](op)
			t[op][mem.F64] = portableFloat[float64](op)
		}
		t[op][mem.I8] = portableInt[int8](op)
		t[op][mem.I16] = portableInt[int16](op)
		t[op][mem.I32] = portableInt[int32](op)
		t[op][mem.I64] = portableInt[int64](op)
		t[op][mem.U8] = portableInt[uint8](op)
		t[op][mem.U16] = portableInt[uint16](op)
		t[op][mem.U32] = portableInt[uint32](op)
		t[op][mem.U64] = portableInt[uint64](op)
	}
	return t
}

func portableInt[T integer](op mem.Op) Func {
	return func(dsts, srcs []unsafe.Pointer, count, divisor int) {
		var acc, spare [tile]T
		for from := 0; from < count; from += tile {
			n := min(tile, count-from)
			load(acc[:n], srcs[0], from)
			for _, src := range srcs[1:] {
				foldInt(op, acc[:n], view(spare[:n], src, from))
			}
			if divisor > 1 {
				divideInt(acc[:n], divisor)
			}
			for _, dst := range dsts {
				store(dst, from, acc[:n])
			}
		}
	}
}

func portableFloat[T float](op mem.Op) Func {
	return func(dsts, srcs []unsafe.Pointer, count, divisor int) {
		var acc, spare [tile]T
		for from := 0; from < count; from += tile {
			n := min(tile, count-from)
			load(acc[:n], srcs[0], from)
			for _, src := range srcs[1:] {
				foldFloat(op, acc[:n], view(spare[:n], src, from))
			}
			if divisor > 1 {
				divideFloat(acc[:n], divisor)
			}
			for _, dst := range dsts {
				store(dst, from, acc[:n])
			}
		}
	}
}

func portableHalf(op mem.Op, h half) Func {
	return func(dsts, srcs []unsafe.Pointer, count, divisor int) {
		var (
			bits      [tile]uint16
			acc, wide [tile]float32
		)
		for from := 0; from < count; from += tile {
			n := min(tile, count-from)
			load(bits[:n], srcs[0], from)
			if len(srcs) > 1 || divisor > 1 { // else a copy, of NaNs too
				h.widen(acc[:n], bits[:n])
				for _, src := range srcs[1:] {
					load(bits[:n], src, from)
					h.widen(wide[:n], bits[:n])
					foldFloat(op, acc[:n], wide[:n])
				}
				if divisor > 1 {
					divideFloat(acc[:n], divisor)
				}
				h.narrow(bits[:n], acc[:n])
			}
			for _, dst := range dsts {
				store(dst, from, bits[:n])
			}
		}
	}
}

// foldInt sets acc to acc op x.
func foldInt[T integer](op mem.Op, acc, x []T) {
	x = x[:len(acc)]
	switch op {
	case mem.Sum, mem.Avg:
		for i := range acc {
			acc[i] += x[i]
		}
	case mem.Prod:
		for i := range acc {
			acc[i] *= x[i]
		}
	case mem.Min:
		for i := range acc {
			acc[i] = min(acc[i], x[i])
		}
	case mem.Max:
		for i := range acc {
			acc[i] = max(acc[i], x[i])
		}
	case mem.Band:
		for i := range acc {
			acc[i] &= x[i]
		}
	case mem.Bor:
		for i := range acc {
			acc[i] |= x[i]
		}
	case mem.Bxor:
		for i := range acc {
			acc[i] ^= x[i]
		}
	}
}

// foldFloat sets acc to acc op x. Go's min and max are those of IEEE 754-2019.
func foldFloat[T float](op mem.Op, acc, x []T) {
	x = x[:len(acc)]
	switch op {
	case mem.Sum, mem.Avg:
		for i := range acc {
			acc[i] += x[i]
		}
	case mem.Prod:
		for i := range acc {
			acc[i] *= x[i]
		}
	case mem.Min:
		for i := range acc {
			acc[i] = min(acc[i], x[i])
		}
	case mem.Max:
		for i := range acc {
			acc[i] = max(acc[i], x[i])
		}
	}
}

func divideFloat[T float](acc []T, divisor int) {
	d := T(divisor)
	for i := range acc {
		acc[i] /= d
	}
}

// divideInt divides in 32 bits where both fit, which is faster, and in 64
// where not: a divisor need not fit in the element type.
func divideInt[T integer](acc []T, divisor int) {
	var zero T
	signed := zero-1 < zero
	narrow := unsafe.Sizeof(zero) < 4 && divisor <= 1<<31-1
	switch {
	case narrow && signed:
		d := int32(divisor)
		for i := range acc {
			acc[i] = T(int32(acc[i]) / d)
		}
	case narrow:
		d := uint32(divisor)
		for i := range acc {
			acc[i] = T(uint32(acc[i]) / d)
		}
	case signed:
		d := int64(divisor)
		for i := range acc {
			acc[i] = T(int64(acc[i]) / d)
		}
	default:
		d := uint64(divisor)
		for i := range acc {
			acc[i] = T(uint64(acc[i]) / d)
		}
	}
}

// load copies elements of p, starting at element from, to the aligned x.
func load[T any](x []T, p unsafe.Pointer, from int) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	copy(bytesOf(x), unsafe.Slice((*byte)(unsafe.Add(p, from*size)), len(x)*size))
}

// store is the way back.
func store[T any](p unsafe.Pointer, from int, x []T) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	copy(unsafe.Slice((*byte)(unsafe.Add(p, from*size)), len(x)*size), bytesOf(x))
}

// view is the elements of p, in place if they are aligned and else copied to
// spare: not every machine that runs this can load an element from anywhere.
func view[T any](spare []T, p unsafe.Pointer, from int) []T {
	var zero T
	q := unsafe.Add(p, from*int(unsafe.Sizeof(zero)))
	if uintptr(q)%unsafe.Alignof(zero) == 0 {
		return unsafe.Slice((*T)(q), len(spare))
	}
	load(spare, p, from)
	return spare
}

func bytesOf[T any](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}
