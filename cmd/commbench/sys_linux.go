package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newShared makes memory without a name that ranks inherit.
func newShared(bytes int) (*os.File, error) {
	fd, err := unix.MemfdCreate("commbench", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("shared memory for the roofline: memfd_create: %w (a seccomp profile may forbid it)", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:commbench")
	if err := f.Truncate(int64(bytes)); err != nil {
		f.Close()
		return nil, fmt.Errorf("shared memory for the roofline: %w", err)
	}
	return f, nil
}

// mapShared maps the first bytes of f, and faults them in.
func mapShared(f *os.File, bytes int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("shared memory for the roofline: mmap: %w", err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // as Comm.Alloc does; refusing is no error
	if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != nil && !errors.Is(err, unix.EINVAL) {
		_ = unix.Munmap(b)
		return nil, fmt.Errorf("shared memory for the roofline: not enough memory: %w", err)
	}
	return b, nil
}

// mapPrivate makes memory that no other rank sees. Where there is none it says
// so, while make would end the process.
func mapPrivate(bytes int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("a buffer of %s: mmap: %w", formatBytes(uint64(bytes)), err)
	}
	return b, nil
}

func unmapShared(b []byte) error { return unix.Munmap(b) }

// sinceBoot is a clock that all processes of the machine share.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
