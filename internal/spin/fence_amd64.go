//go:build !noasm

package spin

// Fence lets no later load start before every earlier load and locked
// instruction is done (LFENCE), so that what follows is not fetched ahead of
// time. It does not wait for plain stores to become visible, and orders nothing
// between threads that would not be ordered without it.
//
//go:noescape
func Fence()
