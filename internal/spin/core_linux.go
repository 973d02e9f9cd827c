package spin

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// getcpu asks the kernel which core this is (getcpu(2)), or returns -1.
func getcpu() int {
	var core uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0); errno != 0 {
		return -1
	}
	return int(core)
}
