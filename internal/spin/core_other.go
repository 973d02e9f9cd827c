//go:build !linux

package spin

// Core is -1: it is not known here which core a thread runs on.
func Core() int { return -1 }
