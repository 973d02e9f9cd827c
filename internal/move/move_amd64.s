//go:build !noasm

#include "textflag.h"

// func stringMove(dst, src *byte, n int)
TEXT ·stringMove(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI  // to
	MOVQ src+8(FP), SI  // from
	MOVQ n+16(FP), CX   // bytes
	REP; MOVSB          // the direction flag is clear, as the ABI has it
	RET
