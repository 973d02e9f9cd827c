//go:build !noasm

package reduce

import "github.com/klauspost/cpuid/v2"

// vectorISAs is what the processor can run of the kernels.
func vectorISAs() []isa {
	if cpuid.CPU.Supports(cpuid.ASIMD) {
		return []isa{{"neon", vectorTable(&kernelsNEON)}}
	}
	return nil
}
