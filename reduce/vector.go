//go:build (amd64 || arm64) && !noasm

package reduce

import (
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

// A kernel combines the bytes from ≤ i < to of ns sources into nd destinations,
// whose addresses are in the arrays srcs and dsts. The range is a number of
// elements, and not less than one. It divides floats if divisor > 1 and
// ignores the divisor of integers.
type kernel func(dsts, srcs *uintptr, nd, ns, from, to, divisor int)

// A kernelTable has the kernel of every supported pair.
type kernelTable [numOps][numTypes]kernel

const (
	// chunk is how many bytes of each buffer one call of a kernel covers. The
	// scheduler cannot interrupt assembly, and a garbage collection that waits
	// for it stops all goroutines.
	chunk = 128 << 10

	// divideTile is chunk where integers are divided in a second pass, which
	// is to find them in the first-level cache.
	divideTile = 4 << 10
)

// vectorTable makes functions of kernels.
func vectorTable(kernels *kernelTable) *funcTable {
	t := new(funcTable)
	for _, op := range mem.Ops() {
		for _, d := range mem.DTypes() {
			k := kernels[op][d]
			switch {
			case k == nil:
			case d.Float() || op != mem.Sum && op != mem.Avg:
				t[op][d] = vector(k, d.Size())
			default:
				t[op][d] = vectorDividing(k, d)
			}
		}
	}
	return t
}

// vector is the function of a kernel that needs no help.
func vector(k kernel, size int) Func {
	return func(dsts, srcs []unsafe.Pointer, count, divisor int) {
		if len(srcs) == 1 && divisor <= 1 {
			copyTo(dsts, srcs[0], count*size)
			return
		}
		d, s := addresses(dsts), addresses(srcs)
		for from, end := 0, count*size; from < end; from += chunk {
			k(d, s, len(dsts), len(srcs), from, min(from+chunk, end), divisor)
		}
	}
}

// vectorDividing is the function of a kernel of integers that may have to be
// divided, for which there are no vector instructions.
func vectorDividing(k kernel, t mem.DType) Func {
	plain, size, divide := vector(k, t.Size()), t.Size(), divideBytes(t)
	return func(dsts, srcs []unsafe.Pointer, count, divisor int) {
		if divisor <= 1 {
			plain(dsts, srcs, count, divisor)
			return
		}
		d, s := addresses(dsts), addresses(srcs)
		for from, end := 0, count*size; from < end; from += divideTile {
			to := min(from+divideTile, end)
			// Only the first destination, and the others from there: it is
			// divided in place, when the sources have been read.
			k(d, s, 1, len(srcs), from, to, 1)
			first := unsafe.Slice((*byte)(unsafe.Add(dsts[0], from)), to-from)
			divide(first, divisor)
			for _, dst := range dsts[1:] {
				copy(unsafe.Slice((*byte)(unsafe.Add(dst, from)), to-from), first)
			}
		}
	}
}

// addresses is the array behind a slice of pointers, as kernels take it. They
// do not keep it, and the slice keeps what it points to alive.
func addresses(p []unsafe.Pointer) *uintptr {
	return (*uintptr)(unsafe.Pointer(unsafe.SliceData(p)))
}

// copyTo copies n bytes to every destination.
func copyTo(dsts []unsafe.Pointer, src unsafe.Pointer, n int) {
	for from := 0; from < n; from += chunk {
		size := min(chunk, n-from)
		for _, dst := range dsts {
			copy(unsafe.Slice((*byte)(unsafe.Add(dst, from)), size), unsafe.Slice((*byte)(unsafe.Add(src, from)), size))
		}
	}
}

// divideBytes returns the function that divides the integers in a slice.
func divideBytes(t mem.DType) func(x []byte, divisor int) {
	return [numTypes]func([]byte, int){
		mem.I8: divideIn[int8], mem.I16: divideIn[int16], mem.I32: divideIn[int32], mem.I64: divideIn[int64],
		mem.U8: divideIn[uint8], mem.U16: divideIn[uint16], mem.U32: divideIn[uint32], mem.U64: divideIn[uint64],
	}[t]
}

// divideIn divides the integers in x, whatever the alignment of x.
func divideIn[T integer](x []byte, divisor int) {
	var (
		zero  T
		spare [tile]T
		p     = unsafe.Pointer(unsafe.SliceData(x))
		count = len(x) / int(unsafe.Sizeof(zero))
	)
	for from := 0; from < count; from += tile {
		n := min(tile, count-from)
		v := view(spare[:n], p, from)
		divideInt(v, divisor)
		if &v[0] == &spare[0] {
			store(p, from, v)
		}
	}
}
