package spin

import "github.com/klauspost/cpuid/v2"

var hasAux = cpuid.CPU.Supports(cpuid.RDTSCP)

// Core is the number of the core that this thread runs on, or -1 where that is
// not known. A moment later it may run on another.
func Core() int {
	if hasAux {
		return int(cpuid.CPU.Ia32TscAux() & 0xfff) // Linux keeps it there, its node above
	}
	return getcpu()
}
