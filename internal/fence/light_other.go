//go:build !linux || !amd64 || noasm || race

package fence

import "sync/atomic"

// register is false: an atomic store costs no more here, is what the race
// detector understands, or is all there is.
func register() bool { return false }

func light(word *atomic.Uint64, v uint64) { word.Store(v) }
