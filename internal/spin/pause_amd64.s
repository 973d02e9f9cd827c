//go:build !noasm

#include "textflag.h"

// func Pause(n uint32)
TEXT ·Pause(SB), NOSPLIT, $0-4
	MOVL n+0(FP), CX    // count
again:
	PAUSE               // tells the core that this is a polling loop
	SUBL $1, CX
	JNZ  again
	RET
