package engine_test

import "golang.org/x/sys/unix"

// pinThread keeps this thread on one core until the returned function is
// called, so that two ranks of a benchmark never share one.
func pinThread(core int) (unpin func()) {
	var before, only unix.CPUSet
	if unix.SchedGetaffinity(0, &before) != nil || !before.IsSet(core) {
		return func() {}
	}
	only.Set(core)
	_ = unix.SchedSetaffinity(0, &only)
	return func() { _ = unix.SchedSetaffinity(0, &before) }
}
