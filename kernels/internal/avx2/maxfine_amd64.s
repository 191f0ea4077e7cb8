//go:build !purego

#include "textflag.h"
#include "lookup_amd64.h"

//	DI  best of the document       R9  S, from the first of the query tokens on
//	BX  token                      CX  end of the document
//	R13 range                      R15 code
//	Y8, Y9 running maxima; Y10, Y11 lanes in use; Y12 top bits; Y13 1

DATA lanes<>+0(SB)/8, $0x0000000100000000
DATA lanes<>+8(SB)/8, $0x0000000300000002
DATA lanes<>+16(SB)/8, $0x0000000500000004
DATA lanes<>+24(SB)/8, $0x0000000700000006
DATA lanes<>+32(SB)/8, $0x0000000900000008
DATA lanes<>+40(SB)/8, $0x0000000b0000000a
DATA lanes<>+48(SB)/8, $0x0000000d0000000c
DATA lanes<>+56(SB)/8, $0x0000000f0000000e
GLOBL lanes<>(SB), RODATA|NOPTR, $64

// func MaxFine(best [][16]float32, ranges [][2]uint32, tables [][256][8]uint64, scores []float32, codes []byte, codeBytes int, residuals, factors []byte, scales []float32, stride, n int, mid, unit *[16]float32)
TEXT ·MaxFine(SB), NOSPLIT, $16-232
	MOVQ  n+208(FP), AX
	VMOVD AX, X12
	VPBROADCASTD X12, Y12
	VPCMPGTD lanes<>+0(SB), Y12, Y10
	VPCMPGTD lanes<>+32(SB), Y12, Y11
	MOVL  $0x80000000, AX
	VMOVD AX, X12
	VPBROADCASTD X12, Y12
	MOVL  $0x3f800000, AX
	VMOVD AX, X13
	VPBROADCASTD X13, Y13
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
	VMOVUPS (DI), Y8
	VMOVUPS 32(DI), Y9
	ADDRESS

token:
	CODE(wide, coded)
	IMULQ stride+200(FP), AX
	PREFETCHT0 (R9)(AX*4)
	MOVQ tables_len+56(FP), DX
	LOOKUP(VPADDD, eight, rest, one, summed)

	VMOVAPS Y13, Y7
	MOVQ  scales_base+176(FP), AX
	TESTQ AX, AX
	JEQ   scaled
	VBROADCASTSS (AX)(R15*4), Y7

scaled:
	// factor · (S + a · (mid + unit · sum)), each operation rounded.
	VPXOR Y12, Y0, Y0
	VPXOR Y12, Y1, Y1
	VCVTDQ2PS Y0, Y0
	VCVTDQ2PS Y1, Y1
	MOVQ unit+224(FP), AX
	VMULPS (AX), Y0, Y0
	VMULPS 32(AX), Y1, Y1
	MOVQ mid+216(FP), AX
	VADDPS (AX), Y0, Y0
	VADDPS 32(AX), Y1, Y1
	VMULPS Y7, Y0, Y0
	VMULPS Y7, Y1, Y1
	IMULQ stride+200(FP), R15
	VMASKMOVPS (R9)(R15*4), Y10, Y4
	VMASKMOVPS 32(R9)(R15*4), Y11, Y5
	VADDPS Y4, Y0, Y0
	VADDPS Y5, Y1, Y1
	MOVQ factors_base+152(FP), AX
	MOVWLSX (AX)(BX*2), AX
	VMOVD AX, X4
	VPBROADCASTD X4, Y4
	VCVTDQ2PS Y4, Y4
	VMULPS Y4, Y0, Y0
	VMULPS Y4, Y1, Y1
	VMAXPS Y8, Y0, Y8
	VMAXPS Y9, Y1, Y9

	INCQ BX
	CMPQ BX, CX
	JLT  token
	VMOVUPS Y8, (DI)
	VMOVUPS Y9, 32(DI)

next:
	ADDQ $64, DI
	ADDQ $8, R13
	JMP  document

return:
	VZEROUPPER
	RET
