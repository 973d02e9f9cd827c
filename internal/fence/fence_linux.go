package fence

import "golang.org/x/sys/unix"

// Commands of membarrier(2), from linux/membarrier.h.
const (
	globalExpedited         = 1 << 1
	registerGlobalExpedited = 1 << 2
)

func membarrier(command uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
	return errno == 0
}

// heavy is the same in every build, also one that has no Light: the other side
// may be another.
func heavy() { membarrier(globalExpedited) }
