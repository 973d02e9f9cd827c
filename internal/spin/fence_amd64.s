//go:build !noasm

#include "textflag.h"

// func Fence()
TEXT ·Fence(SB), NOSPLIT, $0-0
	LFENCE              // nothing behind it is dispatched before everything ahead has completed
	RET
