package verbs

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysWatch makes fd non-blocking and returns a copy of it that the runtime's
// poller watches. The copy is the caller's.
func sysWatch(fd int, name string) (*os.File, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dup), name), nil
}

// sysMemlock returns the limit of locked memory, ^0 for none, and how much of
// it devices have pinned, 0 if the kernel does not say.
func sysMemlock() (limit, pinned uint64) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return ^uint64(0), 0
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return r.Cur, 0
	}
	return r.Cur, vmPin(string(status))
}

// vmPin reads the pinned memory of a process from its status, in bytes.
func vmPin(status string) uint64 {
	for l := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(l, "VmPin:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 54)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
