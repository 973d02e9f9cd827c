//go:build linux && !amd64

package spin

// Core is the number of the core that this thread runs on, or -1 where that is
// not known. A moment later it may run on another.
func Core() int { return getcpu() }
