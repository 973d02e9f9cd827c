//go:build (amd64 || arm64) && !noasm

package spin

// Pause rests the core for n of its spin-loop hints, n at least 1: some tens
// of nanoseconds each on most x86 cores, less elsewhere.
//
//go:noescape
func Pause(n uint32)
