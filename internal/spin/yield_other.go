//go:build !linux

package spin

import "runtime"

// Yield lets another goroutine have this core; there is no portable way to
// offer it to another process.
func Yield() { runtime.Gosched() }
