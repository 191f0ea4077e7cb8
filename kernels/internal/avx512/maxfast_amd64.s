//go:build !purego

#include "textflag.h"
#include "lookup_amd64.h"

//	DI  best of the document       R9  rows of S
//	BX  token                      CX  end of the document
//	R13 range                      R15 code
//	Z30, Z31 running maxima of even and odd lanes; Z29 top bits

// func MaxFast(best [][32]int32, ranges [][2]uint32, tables [][256][8]uint64, scores [][8]uint64, codes []byte, codeBytes int, residuals, factors []byte, scales []uint32)
TEXT ·MaxFast(SB), NOSPLIT, $16-200
	MOVL  $0x55555555, AX
	KMOVD AX, K1
	NOTL  AX
	KMOVD AX, K2
	MOVL  $0x80008000, AX
	VPBROADCASTD AX, Z29
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
	VMOVDQU32 (DI), Z30
	VMOVDQU32 64(DI), Z31
	ADDRESS

token:
	CODE(wide, coded)
	SHLQ $6, AX
	PREFETCHT0 (R9)(AX*1)
	MOVQ tables_len+56(FP), DX
	LOOKUP(VPADDW, eight, rest, one, summed)

	MOVQ  scales_base+176(FP), AX
	TESTQ AX, AX
	JEQ   scaled

	// Times the scale in units of 2⁻¹⁶, rounded down; a scale of 1 has 17 bits.
	MOVL (AX)(R15*4), R10
	VPBROADCASTW R10, Z4
	SHRL $16, R10
	NEGL R10
	VPBROADCASTD R10, Z5
	VPMULHUW Z4, Z0, Z4
	VPANDD Z5, Z0, Z0
	VPADDW Z4, Z0, Z0

scaled:
	SHLQ $6, R15
	VPADDW (R9)(R15*1), Z0, Z0

	// Flipping the top bit subtracts 32768. Products with the factor next to 0.
	VPXORD Z29, Z0, Z0
	MOVQ factors_base+152(FP), AX
	VPBROADCASTW.Z (AX)(BX*2), K1, Z4
	VPBROADCASTW.Z (AX)(BX*2), K2, Z5
	VPMADDWD Z4, Z0, Z4
	VPMADDWD Z5, Z0, Z5
	VPMAXSD Z4, Z30, Z30
	VPMAXSD Z5, Z31, Z31

	INCQ BX
	CMPQ BX, CX
	JLT  token
	VMOVDQU32 Z30, (DI)
	VMOVDQU32 Z31, 64(DI)

next:
	ADDQ $128, DI
	ADDQ $8, R13
	JMP  document

return:
	VZEROUPPER
	RET
