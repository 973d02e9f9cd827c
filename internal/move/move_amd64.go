//go:build !noasm

package move

import "golang.org/x/sys/cpu"

// haveStringMove: the processor promises a fast REP MOVSB.
var haveStringMove = cpu.X86.HasERMS

// stringMove copies n bytes upwards.
//
//go:noescape
func stringMove(dst, src *byte, n int)

const haveStreamLines = true

// streamLines copies whole lines to dst, which begins on one, past the cache.
// What it wrote is visible before any later store.
//
//go:noescape
func streamLines(dst, src *byte, lines int)
