//go:build !purego

#include "textflag.h"
#include "lookup_amd64.h"

//	DI  best of the document       R9  S, from the first of the query tokens on
//	BX  token                      CX  end of the document
//	R13 range                      R15 code
//	Z31 running maxima; Z30 top bits; Z29 unit; Z28 mid; Z27 1; K1 lanes in use

// func MaxFine(best [][16]float32, ranges [][2]uint32, tables [][256][8]uint64, scores []float32, codes []byte, codeBytes int, residuals, factors []byte, scales []float32, stride, n int, mid, unit *[16]float32)
TEXT ·MaxFine(SB), NOSPLIT, $16-232
	MOVL  $1, AX
	MOVQ  n+208(FP), CX
	SHLL  CX, AX
	DECL  AX
	KMOVW AX, K1
	MOVQ  mid+216(FP), AX
	VMOVUPS (AX), Z28
	MOVQ  unit+224(FP), AX
	VMOVUPS (AX), Z29
	MOVL  $0x80000000, AX
	VPBROADCASTD AX, Z30
	MOVL  $0x3f800000, AX
	VPBROADCASTD AX, Z27
	MOVQ best_base+0(FP), DI
	MOVQ ranges_base+24(FP), R13
	MOVQ ranges_len+32(FP), AX
	LEAQ (R13)(AX*8), AX
	MOVQ AX, end-8(SP)
	MOVQ tables_base+48(FP), R8
	MOVQ scores_base+72(FP), R9

document:
	CMPQ R13, end-8(SP)
	JEQ  return
	MOVL 0(R13), BX
	MOVL 4(R13), CX
	CMPQ BX, CX
	JGE  next
	FETCH(fetched)
	VMOVUPS (DI), Z31
	ADDRESS

token:
	CODE(wide, coded)
	IMULQ stride+200(FP), AX
	PREFETCHT0 (R9)(AX*4)
	MOVQ tables_len+56(FP), DX
	LOOKUP(VPADDD, eight, rest, one, summed)

	VMOVAPS Z27, Z5
	MOVQ  scales_base+176(FP), AX
	TESTQ AX, AX
	JEQ   scaled
	VBROADCASTSS (AX)(R15*4), Z5

scaled:
	// factor · (S + a · (mid + unit · sum)), each operation rounded.
	VPXORD Z30, Z0, Z0
	VCVTDQ2PS Z0, Z0
	VMULPS Z29, Z0, Z0
	VADDPS Z28, Z0, Z0
	VMULPS Z5, Z0, Z0
	IMULQ stride+200(FP), R15
	VMOVUPS.Z (R9)(R15*4), K1, Z4
	VADDPS Z4, Z0, Z0
	MOVQ factors_base+152(FP), AX
	MOVWLSX (AX)(BX*2), AX
	VPBROADCASTD AX, Z4
	VCVTDQ2PS Z4, Z4
	VMULPS Z4, Z0, Z0
	VMAXPS Z31, Z0, Z31

	INCQ BX
	CMPQ BX, CX
	JLT  token
	VMOVUPS Z31, (DI)

next:
	ADDQ $64, DI
	ADDQ $8, R13
	JMP  document

return:
	VZEROUPPER
	RET
