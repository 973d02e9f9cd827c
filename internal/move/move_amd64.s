//go:build !noasm

#include "textflag.h"

// func stringMove(dst, src *byte, n int)
TEXT ·stringMove(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI  // to
	MOVQ src+8(FP), SI  // from
	MOVQ n+16(FP), CX   // bytes
	REP; MOVSB          // the direction flag is clear, as the ABI has it
	RET

// func streamLines(dst, src *byte, lines int)
TEXT ·streamLines(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI  // to, on a line
	MOVQ src+8(FP), SI  // from
	MOVQ lines+16(FP), CX
	TESTQ CX, CX
	JZ   done
again:
	MOVOU (SI), X0      // a line from the cache or from memory
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVNTO X0, (DI)     // and past the cache: four parts that leave as one line
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $1, CX
	JNZ  again
	SFENCE              // these stores are not ordered with later ones otherwise
done:
	RET
