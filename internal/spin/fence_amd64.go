//go:build !noasm

package spin

// Fence lets no later load start before every earlier instruction is done
// (LFENCE): what follows it is not fetched ahead of time. It orders nothing
// between threads that would not be ordered without it.
//
//go:noescape
func Fence()
