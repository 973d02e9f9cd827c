//go:build amd64 && !noasm

package spin

// Fence keeps the core from reading ahead.
//
//go:noescape
func Fence()
