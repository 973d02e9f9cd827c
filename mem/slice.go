package mem

import "unsafe"

// Element is the Go side of the element types that Go has a type for. F16
// and BF16 travel as uint16 bit patterns through the byte-level calls.
type Element interface {
	~float32 | ~float64 |
		~int8 | ~int16 | ~int32 | ~int64 |
		~uint8 | ~uint16 | ~uint32 | ~uint64
}

// TypeOf returns the element type of T.
func TypeOf[T Element]() DType {
	var zero T
	var (
		size   = unsafe.Sizeof(zero)
		signed = T(0)-T(1) < T(0)
		half   = T(1) / T(2) // zero for integers only
	)
	if half != 0 {
		if size == 4 {
			return F32
		}
		return F64
	}
	kinds := [...]DType{1: U8, 2: U16, 4: U32, 8: U64}
	if signed {
		kinds = [...]DType{1: I8, 2: I16, 4: I32, 8: I64}
	}
	return kinds[size]
}

// Bytes returns the memory of s as bytes; it shares s's memory and its
// lifetime.
func Bytes[T Element](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// Slice returns the whole elements in b as a []T that shares b's memory. b
// must be aligned for T, as every Buffer is.
func Slice[T Element](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}
