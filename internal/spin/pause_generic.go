//go:build (!amd64 && !arm64) || noasm

package spin

// Pause rests for n short turns of an empty loop, n at least 1.
func Pause(n uint32) {
	for range n {
		rest()
	}
}

//go:noinline
func rest() {}
