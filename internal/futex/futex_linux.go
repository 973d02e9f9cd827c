// Package futex sleeps on and wakes a 32-bit word in memory that several
// processes may share (futex(2), without the private flag).
package futex

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	opWait = 0
	opWake = 1
)

// Wait sleeps while *addr equals val: until a Wake, a signal, or timeout. It
// may return early, so callers check their condition again. It goes through
// the scheduler, so other goroutines run meanwhile.
func Wait(addr *atomic.Uint32, val uint32, timeout time.Duration) {
	ts := unix.NsecToTimespec(int64(timeout))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), opWait, uintptr(val), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// Wake wakes every sleeper on addr. It does not block.
func Wake(addr *atomic.Uint32) {
	const everybody = 1<<31 - 1
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), opWake, everybody, 0, 0, 0)
}

// ErrUnavailable says that the kernel, or a seccomp profile, refuses futexes.
var ErrUnavailable = errors.New("futex(2) is refused")

// Probe reports whether futexes work here; the error wraps ErrUnavailable and
// the kernel's own.
func Probe() error {
	var word uint32
	_, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), opWake, 1, 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("%w: %w (a seccomp profile may forbid it)", ErrUnavailable, errno)
	}
	return nil
}
