//go:build !noasm && !race

package fence

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), from linux/membarrier.h.
const (
	globalExpedited         = 1 << 1
	registerGlobalExpedited = 1 << 2
)

// register asks that other processes' heavy reaches this one.
func register() bool {
	_, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, registerGlobalExpedited, 0, 0)
	return errno == 0
}

// light stores *word = v with nothing but the order that every store has here.
//
//go:noescape
func light(word *atomic.Uint64, v uint64)

// heavy fails only where register does.
func heavy() { _, _, _ = unix.RawSyscall(unix.SYS_MEMBARRIER, globalExpedited, 0, 0) }
