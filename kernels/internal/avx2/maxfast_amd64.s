//go:build !purego

#include "textflag.h"
#include "lookup_amd64.h"

//	DI  best of the document       R9  rows of S
//	BX  token                      CX  end of the document
//	R13 range                      R15 code
//	Y8, Y9 running maxima of even lanes; Y10, Y11 of odd ones; Y12 top bits;
//	Y13 even lanes

// func MaxFast(best [][32]int32, ranges [][2]uint32, tables [][256][8]uint64, scores [][8]uint64, codes []byte, codeBytes int, residuals, factors []byte, scales []uint32)
TEXT ·MaxFast(SB), NOSPLIT, $16-200
	MOVL  $0x80008000, AX
	VMOVD AX, X12
	VPBROADCASTD X12, Y12
	VPCMPEQD Y13, Y13, Y13
	VPSRLD $16, Y13, Y13
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
	VMOVDQU (DI), Y8
	VMOVDQU 32(DI), Y9
	VMOVDQU 64(DI), Y10
	VMOVDQU 96(DI), Y11
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
	VMOVD R10, X4
	VPBROADCASTW X4, Y4
	SHRL $16, R10
	NEGL R10
	VMOVD R10, X5
	VPBROADCASTD X5, Y5
	VPMULHUW Y4, Y0, Y6
	VPMULHUW Y4, Y1, Y7
	VPAND Y5, Y0, Y0
	VPAND Y5, Y1, Y1
	VPADDW Y6, Y0, Y0
	VPADDW Y7, Y1, Y1

scaled:
	SHLQ $6, R15
	VPADDW (R9)(R15*1), Y0, Y0
	VPADDW 32(R9)(R15*1), Y1, Y1

	// Flipping the top bit subtracts 32768. Products with the factor next to 0.
	VPXOR Y12, Y0, Y0
	VPXOR Y12, Y1, Y1
	MOVQ factors_base+152(FP), AX
	VPBROADCASTW (AX)(BX*2), Y5
	VPAND Y13, Y5, Y4
	VPSLLD $16, Y5, Y5
	VPMADDWD Y4, Y0, Y2
	VPMADDWD Y4, Y1, Y3
	VPMADDWD Y5, Y0, Y6
	VPMADDWD Y5, Y1, Y7
	VPMAXSD Y2, Y8, Y8
	VPMAXSD Y3, Y9, Y9
	VPMAXSD Y6, Y10, Y10
	VPMAXSD Y7, Y11, Y11

	INCQ BX
	CMPQ BX, CX
	JLT  token
	VMOVDQU Y8, (DI)
	VMOVDQU Y9, 32(DI)
	VMOVDQU Y10, 64(DI)
	VMOVDQU Y11, 96(DI)

next:
	ADDQ $128, DI
	ADDQ $8, R13
	JMP  document

return:
	VZEROUPPER
	RET
