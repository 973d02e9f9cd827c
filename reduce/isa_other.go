//go:build (!amd64 && !arm64) || noasm

package reduce

// vectorISAs is empty: the portable twins are all there is.
func vectorISAs() []isa { return nil }
