// Package reduce combines buffers: every source into every destination, in
// one pass over memory.
//
// A reduction step of a collective reads what n ranks contributed and writes
// the result to m places. Doing both at once matters: an in-place allreduce of
// two ranks over shared memory is a = b = a+b, and a kernel that takes both
// destinations reads and writes each line once.
//
// Every kernel exists twice: as a portable twin in Go and, where the machine
// has them, in vector instructions. The two agree bit for bit, but for the
// payload of NaNs. See ISA for what is dispatched to.
package reduce

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/mem"
)

// Func combines count elements of every source, in the order of srcs, and
// writes the result to every destination in one pass:
//
//	dsts[j][i] = (srcs[0][i] op srcs[1][i]) op …
//
// There is at least one source and one destination; a single source is copied.
// Any destination may be exactly one of the sources. Otherwise buffers must
// not overlap. They may have any alignment.
//
// With divisor > 1 the combination is divided once at the end: floats truly,
// integers (after the sum has wrapped) truncating towards zero. Only the
// functions for sum and avg divide. Otherwise divisor is 1.
//
// 16-bit floats are combined in 32 bits over all sources, divided there, and
// rounded once, to nearest even.
//
// A Func does not allocate, lock or block, and keeps none of its arguments.
type Func func(dsts, srcs []unsafe.Pointer, count, divisor int)

// UnsupportedError says that an operator is not defined on a type. It matches
// errors.ErrUnsupported.
type UnsupportedError struct {
	Op   mem.Op
	Type mem.DType
}

// Error names the operator and the type.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("reduce: no %v of %v", e.Op, e.Type)
}

// Is makes errors.Is(err, errors.ErrUnsupported) true.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// Table sizes. The last operator and the last type are named because mem does
// not export how many there are; a test compares them with mem's lists.
const (
	numOps   = int(mem.Bxor) + 1
	numTypes = int(mem.U64) + 1
)

// A funcTable has a Func for every supported pair and nil for the others.
type funcTable [numOps][numTypes]Func

// Lookup returns the function for op on elements of type t. The error is an
// *UnsupportedError.
func Lookup(op mem.Op, t mem.DType) (Func, error) {
	if !op.Supports(t) {
		return nil, &UnsupportedError{Op: op, Type: t}
	}
	return active.funcs[op][t], nil
}

// ISA names the instruction set that Lookup dispatches to: "avx512" or "avx2"
// on amd64, "neon" on arm64, or "generic", which is portable Go and all there
// is on other machines and with the build tag noasm.
//
// The environment variable TUTTI_SIMD, read once at the start, chooses a lesser
// one. A name that is not available here means the best available below it, and
// an unknown name the best there is.
func ISA() string { return active.name }
