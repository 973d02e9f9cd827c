//go:build !noasm

#include "textflag.h"

// func Fence()
TEXT ·Fence(SB), NOSPLIT, $0-0
	LFENCE              // nothing behind it starts before everything ahead has retired
	RET
