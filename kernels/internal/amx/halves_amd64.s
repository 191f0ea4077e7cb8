//go:build !purego

#include "textflag.h"
#include "tiles_amd64.h"

// AHEAD fetches 64 bytes of four rows of the next 32.
#define AHEAD \
	PREFETCHT0 (R11)         \
	PREFETCHT0 (R11)(BX*1)   \
	PREFETCHT0 (R11)(BX*2)   \
	PREFETCHT0 (R11)(R10*1)  \
	LEAQ       (R11)(BX*4), R11

//	tiles 0 to 3  products of 16 rows and the next 16 with 16 columns and the next 16
//	4, 5          32 dimensions of the rows      6, 7 of the columns
//	R8, R9        the current 32 rows, and their products
//	R14           which row the second 16 begin with
//	R13           rows left                      R12 factors of the rows, or 0
//	BX, R10       bytes of a row, of three rows
//	Z24, Z25      maxima

// func halves(dst *[32]float32, most *[32]float32, rows *byte, n, stride int, panel *byte, factors *float32, config *[64]byte)
TEXT ·halves(SB), NOSPLIT, $0-64
	MOVQ config+56(FP), AX
	LDTILECFG_AX
	MOVQ dst+0(FP), R9
	MOVQ rows+16(FP), R8
	MOVQ n+24(FP), R13
	MOVQ stride+32(FP), BX
	LEAQ (BX)(BX*2), R10
	MOVQ factors+48(FP), R12
	MOVQ most+8(FP), AX
	VMOVUPS (AX), Z24
	VMOVUPS 64(AX), Z25
	MOVQ $16, R14
	CMPQ R13, $32
	JGE  block
	LEAQ -16(R13), R14

block:
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)
	MOVQ R8, SI
	MOVQ R14, DI
	IMULQ BX, DI
	ADDQ R8, DI
	MOVQ panel+40(FP), DX
	MOVQ $128, CX
	MOVQ BX, R15
	SHRQ $6, R15
	MOVQ BX, R11
	SHLQ $5, R11
	ADDQ R8, R11

step:
	LOAD_SI_BX(4)
	LOAD_DX_CX(6, 0)
	TDPBF16PS(0, 4, 6)
	LOAD_DI_BX(5, 0)
	TDPBF16PS(2, 5, 6)
	LOAD_DX_CX(7, 64)
	TDPBF16PS(1, 4, 7)
	TDPBF16PS(3, 5, 7)
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	AHEAD
	MOVQ BX, AX
	SHLQ $5, AX
	SUBQ AX, R11
	ADDQ $64, R11
	ADDQ $64, SI
	ADDQ $64, DI
	ADDQ $2048, DX
	DECQ R15
	JNZ  step

	MOVQ R9, DI
	MOVQ $128, AX
	STORE_DI_AX(0, 0)
	STORE_DI_AX(1, 64)
	MOVQ R14, DX
	SHLQ $7, DX
	ADDQ DX, DI
	STORE_DI_AX(2, 0)
	STORE_DI_AX(3, 64)

	LEAQ 16(R14), DX
	MOVQ R9, DI
	TESTQ R12, R12
	JNE  factors

plain:
	VMAXPS (DI), Z24, Z24
	VMAXPS 64(DI), Z25, Z25
	ADDQ $128, DI
	DECQ DX
	JNZ  plain
	JMP  next

factors:
	MOVQ R12, SI

scale:
	VBROADCASTSS (SI), Z0
	VMULPS (DI), Z0, Z1
	VMULPS 64(DI), Z0, Z2
	VMOVUPS Z1, (DI)
	VMOVUPS Z2, 64(DI)
	VMAXPS Z1, Z24, Z24
	VMAXPS Z2, Z25, Z25
	ADDQ $4, SI
	ADDQ $128, DI
	DECQ DX
	JNZ  scale

	// The next 32 rows, or the last 32, some of them again.
next:
	SUBQ $32, R13
	JLE  return
	MOVQ $32, AX
	CMPQ R13, AX
	CMOVQLT R13, AX
	MOVQ AX, DX
	IMULQ BX, DX
	ADDQ DX, R8
	TESTQ R12, R12
	JEQ  advance
	LEAQ (R12)(AX*4), R12

advance:
	SHLQ $7, AX
	ADDQ AX, R9
	CMPQ R13, $32
	JGE  block
	MOVQ $32, R13
	JMP  block

return:
	MOVQ most+8(FP), AX
	VMOVUPS Z24, (AX)
	VMOVUPS Z25, 64(AX)
	TILERELEASE
	VZEROUPPER
	RET
