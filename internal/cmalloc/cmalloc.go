//go:build cgo

package cmalloc

// #include <stdlib.h>
import "C"

import "unsafe"

// Malloc returns so many bytes from malloc, or nil. They are to go to Free.
func Malloc(bytes int) []byte { return slice(C.malloc(C.size_t(bytes)), bytes) }

// Calloc returns so many bytes from calloc, which should be zero, or nil. They
// are to go to Free.
func Calloc(bytes int) []byte { return slice(C.calloc(C.size_t(bytes), 1), bytes) }

// Realloc changes the size of what Malloc or Calloc returned, and may move it.
func Realloc(b []byte, bytes int) []byte {
	return slice(C.realloc(unsafe.Pointer(unsafe.SliceData(b)), C.size_t(bytes)), bytes)
}

// Free gives memory back to C.
func Free(b []byte) { C.free(unsafe.Pointer(unsafe.SliceData(b))) }

func slice(p unsafe.Pointer, bytes int) []byte {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(p), bytes)
}
