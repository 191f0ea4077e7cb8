//go:build !purego

#include "textflag.h"

//	SI  levels of the tile of 4 vectors    R8, R9  stride, 3 × stride
//	R11 number of the first of the tile    CX  vectors left    DI next hit
//	R12 64 × the number of the 16 rows     DX  dimension k of these
//	R15 dimension k of the tile            R10 dimensions left
//	R13 best   R14 margin                  Y13 1 in lanes of 16 bits
//	Y0 to Y7 sums of 4 vectors (two registers each) with 16 rows
//	Y8, Y9 rows, thresholds

#define VECTOR(addr, a, b) \
	VPBROADCASTD addr, Y10   \
	VPMADDUBSW Y8, Y10, Y11  \
	VPMADDUBSW Y9, Y10, Y12  \
	VPMADDWD Y13, Y11, Y11   \
	VPMADDWD Y13, Y12, Y12   \
	VPADDD Y11, a, a         \
	VPADDD Y12, b, b

// TEST branches to hit if a sum reaches the threshold of its row.
#define TEST(a, b, hit) \
	VPCMPGTD a, Y8, Y11  \
	VPCMPGTD b, Y9, Y12  \
	VPAND Y11, Y12, Y10  \
	VMOVMSKPS Y10, AX    \
	CMPL AX, $0xff       \
	JNE  hit

// HIT notes 16 sums and raises best and thresholds.
#define HIT(n, a, b) \
	VMOVMSKPS Y11, AX          \
	VMOVMSKPS Y12, BX          \
	SHLL $8, BX                \
	ORL  BX, AX                \
	XORL $0xffff, AX           \
	MOVL R12, BX               \
	SHLL $10, BX               \
	ORL  BX, AX                \
	VMOVDQU a, (DI)            \
	VMOVDQU b, 32(DI)          \
	LEAL n(R11), BX            \
	MOVL BX, 64(DI)            \
	MOVL AX, 68(DI)            \
	ADDQ $72, DI               \
	VPMAXSD (R13)(R12*1), a, Y8   \
	VPMAXSD 32(R13)(R12*1), b, Y9 \
	VMOVDQU Y8, (R13)(R12*1)   \
	VMOVDQU Y9, 32(R13)(R12*1) \
	VPSUBD (R14)(R12*1), Y8, Y8   \
	VPSUBD 32(R14)(R12*1), Y9, Y9

// func Filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) (size int)
TEXT ·Filter(SB), NOSPLIT, $0-104
	MOVQ hits_base+0(FP), DI
	MOVQ levels_base+24(FP), SI
	MOVQ stride+48(FP), R8
	LEAQ (R8)(R8*2), R9
	MOVQ first+64(FP), R11
	MOVQ best+72(FP), R13
	MOVQ margin+80(FP), R14
	MOVQ k+88(FP), CX
	VPCMPEQW Y13, Y13, Y13
	VPSRLW $15, Y13, Y13

tile:
	XORL R12, R12

rows:
	MOVQ x+56(FP), DX
	ADDQ R12, DX
	MOVQ SI, R15
	MOVQ R8, R10
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7

dims:
	VMOVDQU (DX), Y8
	VMOVDQU 32(DX), Y9
	VECTOR((R15), Y0, Y1)
	VECTOR((R15)(R8*1), Y2, Y3)
	VECTOR((R15)(R8*2), Y4, Y5)
	VECTOR((R15)(R9*1), Y6, Y7)
	ADDQ $4, R15
	ADDQ $256, DX
	SUBQ $4, R10
	JNZ  dims

	VMOVDQU (R13)(R12*1), Y8
	VMOVDQU 32(R13)(R12*1), Y9
	VPSUBD (R14)(R12*1), Y8, Y8
	VPSUBD 32(R14)(R12*1), Y9, Y9
	TEST(Y0, Y1, hit0)
test1:
	TEST(Y2, Y3, hit1)
test2:
	TEST(Y4, Y5, hit2)
test3:
	TEST(Y6, Y7, hit3)
tested:
	ADDQ $64, R12
	CMPQ R12, $256
	JLT  rows

	SUBQ $4, CX
	JEQ  return
	// The next 4 vectors, or the last 4, some of them again.
	MOVQ $4, AX
	CMPQ CX, AX
	CMOVQLT CX, AX
	ADDQ AX, R11
	IMULQ R8, AX
	ADDQ AX, SI
	CMPQ CX, $4
	JGE  tile
	MOVQ $4, CX
	JMP  tile

return:
	MOVQ hits_base+0(FP), AX
	SUBQ AX, DI
	MOVQ DI, size+96(FP)
	VZEROUPPER
	RET

hit0:
	HIT(0, Y0, Y1)
	JMP test1
hit1:
	HIT(1, Y2, Y3)
	JMP test2
hit2:
	HIT(2, Y4, Y5)
	JMP test3
hit3:
	HIT(3, Y6, Y7)
	JMP tested
