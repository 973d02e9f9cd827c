package mem

import (
	"fmt"
	"strings"
)

// DType is the type of one element of a buffer.
type DType uint8

// The element types. F16 is IEEE 754 binary16, BF16 the upper half of a
// binary32; both accumulate in binary32 and round once. All elements are in
// the machine's byte order.
const (
	F16 DType = iota
	BF16
	F32
	F64
	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64

	numDTypes
)

var dtypes = [numDTypes]struct {
	name  string
	alias string // the spelling of nccl-tests and numpy
	size  int
}{
	F16:  {"f16", "half", 2},
	BF16: {"bf16", "bfloat16", 2},
	F32:  {"f32", "float", 4},
	F64:  {"f64", "double", 8},
	I8:   {"i8", "int8", 1},
	I16:  {"i16", "int16", 2},
	I32:  {"i32", "int32", 4},
	I64:  {"i64", "int64", 8},
	U8:   {"u8", "uint8", 1},
	U16:  {"u16", "uint16", 2},
	U32:  {"u32", "uint32", 4},
	U64:  {"u64", "uint64", 8},
}

// DTypes returns every element type, in declaration order.
func DTypes() []DType {
	all := make([]DType, numDTypes)
	for i := range all {
		all[i] = DType(i)
	}
	return all
}

// ParseDType reads a type by its name (f32) or the name nccl-tests gives it
// (float). The error lists the names that are known.
func ParseDType(s string) (DType, error) {
	names := make([]string, 0, numDTypes)
	for t, d := range dtypes {
		if s == d.name || s == d.alias {
			return DType(t), nil
		}
		names = append(names, d.name)
	}
	return 0, fmt.Errorf("unknown element type %q (known: %s)", s, strings.Join(names, ", "))
}

// Valid reports whether t is one of the declared types.
func (t DType) Valid() bool { return t < numDTypes }

// Size is the width of one element in bytes.
func (t DType) Size() int { return dtypes[t].size }

// Float reports whether t is a floating-point type.
func (t DType) Float() bool { return t <= F64 }

// Signed reports whether t is a signed integer type.
func (t DType) Signed() bool { return t >= I8 && t <= I64 }

// String is the name ParseDType reads.
func (t DType) String() string {
	if !t.Valid() {
		return fmt.Sprintf("DType(%d)", uint8(t))
	}
	return dtypes[t].name
}
