package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// newNamespace makes a network namespace, which lives for as long as the file
// is open or a process is in it.
func newNamespace() (*os.File, error) {
	type result struct {
		ns  *os.File
		err error
	}
	done := make(chan result)
	go func() {
		// A namespace is a thread's; one that cannot go back is not let loose,
		// and ends with this goroutine.
		runtime.LockOSThread()
		ns, back, err := unshareThread()
		if back {
			runtime.UnlockOSThread()
		}
		done <- result{ns, err}
	}()
	r := <-done
	return r.ns, r.err
}

// unshareThread takes the calling thread into a new network namespace and back.
func unshareThread() (ns *os.File, back bool, err error) {
	const own = "/proc/thread-self/ns/net"
	before, err := os.Open(own)
	if err != nil {
		return nil, true, err
	}
	defer before.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, true, fmt.Errorf("unshare: %w", err)
	}
	ns, err = os.Open(own)
	if e := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); e != nil {
		return ns, false, err
	}
	return ns, true, err
}
