//go:build !noasm

package reduce

import "github.com/klauspost/cpuid/v2"

// vectorISAs is what the processor, and the operating system that has to save
// its registers, can run of the kernels, best first.
func vectorISAs() []isa {
	var all []isa
	if cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.BMI2) {
		all = append(all, isa{"avx512", vectorTable(&kernelsAVX512)})
	}
	if cpuid.CPU.Supports(cpuid.AVX2, cpuid.F16C) {
		all = append(all, isa{"avx2", vectorTable(&kernelsAVX2)})
	}
	return all
}
