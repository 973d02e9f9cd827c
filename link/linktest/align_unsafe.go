package linktest

import (
	"unsafe"

	"github.com/tutti-go/tutti/link"
)

// offsetToLine is how far into b the next cache line starts.
func offsetToLine(b []byte) int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return int(-at & (link.LineBytes - 1))
}
