//go:build !linux

// Package futex sleeps on and wakes a 32-bit word in memory that several
// processes may share. Without futex(2) it naps and looks again.
package futex

import (
	"errors"
	"sync/atomic"
	"time"
)

const nap = 50 * time.Microsecond

// Wait naps while *addr equals val, until timeout has passed.
func Wait(addr *atomic.Uint32, val uint32, timeout time.Duration) {
	for end := time.Now().Add(timeout); addr.Load() == val && time.Now().Before(end); {
		time.Sleep(nap)
	}
}

// Wake does nothing: sleepers look by themselves.
func Wake(*atomic.Uint32) {}

// ErrUnavailable says that the kernel refuses futexes.
var ErrUnavailable = errors.New("futex(2) is refused")

// Probe always succeeds.
func Probe() error { return nil }
