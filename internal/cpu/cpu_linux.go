package cpu

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Usable lists the cores of this process's affinity mask.
func Usable() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var cores []int
	for core, n := 0, set.Count(); len(cores) < n; core++ {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// Pin moves every thread of this process, and so every later one, to the given
// cores.
func Pin(cores ...int) error {
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	// A thread inherits the mask of the one that starts it, so once a pass
	// finds no new thread, none is left that could start an unpinned one.
	pinned := map[int]bool{}
	for {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("pin to cores %v: %w: %w", cores, ErrUnknown, err)
		}
		fresh := false
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || pinned[id] {
				continue
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("pin to cores %v: %w", cores, err)
			}
			pinned[id], fresh = true, true
		}
		if !fresh {
			return nil
		}
	}
}
