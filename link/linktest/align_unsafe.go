package linktest

import (
	"unsafe"

	"github.com/tutti-go/tutti/link"
)

// address is where b lies.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// offsetToLine is how far into b the next cache line starts.
func offsetToLine(b []byte) int { return int(-address(b) & (link.LineBytes - 1)) }
