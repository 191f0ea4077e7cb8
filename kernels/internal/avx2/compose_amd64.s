//go:build !purego

#include "textflag.h"

// func Compose(table *[256][8]uint64, lo, hi *[16][8]uint64)
TEXT ·Compose(SB), NOSPLIT, $0-24
	MOVQ table+0(FP), DI
	MOVQ lo+8(FP), SI
	MOVQ hi+16(FP), R8
	XORL BX, BX

entry:
	MOVL BX, AX
	MOVL BX, CX
	ANDL $15, AX
	SHLL $6, AX
	ANDL $0xf0, CX
	VMOVDQU (SI)(AX*1), Y0
	VMOVDQU 32(SI)(AX*1), Y1
	VPADDQ (R8)(CX*4), Y0, Y0
	VPADDQ 32(R8)(CX*4), Y1, Y1
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	ADDQ $64, DI
	INCL BX
	CMPL BX, $256
	JLT  entry
	VZEROUPPER
	RET
