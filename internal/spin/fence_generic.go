//go:build !amd64 || noasm

package spin

// Fence does nothing here: it is only ever a hint.
func Fence() {}
