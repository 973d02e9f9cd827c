//go:build !noasm

package move

import "golang.org/x/sys/cpu"

// haveStringMove: the processor promises a fast REP MOVSB.
var haveStringMove = cpu.X86.HasERMS

// stringMove copies n bytes upwards.
//
//go:noescape
func stringMove(dst, src *byte, n int)
