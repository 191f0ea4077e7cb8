//go:build !purego

#include "textflag.h"

// func Above(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int
TEXT ·Above(SB), NOSPLIT, $0-80
	MOVQ rows_base+0(FP), DI
	MOVQ rows_len+8(FP), CX
	MOVQ scores_base+24(FP), SI
	MOVQ stride+48(FP), R8
	SHLQ $2, R8
	MOVQ n+56(FP), DX
	SHLQ $2, DX
	MOVQ limits+64(FP), R9
	XORL R10, R10 // row
	XORL R11, R11 // rows found

row:
	CMPQ R10, CX
	JGE  return
	VXORPS Y1, Y1, Y1
	XORL BX, BX // 4 × column

strip: // the stride is a multiple of 8
	VMOVUPS (SI)(BX*1), Y0
	VCMPPS  $0x1e, (R9)(BX*1), Y0, Y2
	VORPS   Y2, Y1, Y1
	ADDQ $32, BX
	CMPQ BX, DX
	JLT  strip

	VMOVMSKPS Y1, AX
	MOVL R10, (DI)(R11*4) // to stay, or to be overwritten
	LEAQ 1(R11), BX
	TESTL AX, AX
	CMOVQNE BX, R11
	ADDQ R8, SI
	INCQ R10
	JMP  row

return:
	MOVQ R11, ret+72(FP)
	VZEROUPPER
	RET
