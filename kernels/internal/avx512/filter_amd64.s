//go:build !purego

#include "textflag.h"

//	AX, BX  dimension k of centroids 0 and 3 of the tile    R8 stride
//	DX      dimension k of the rows                         R10 dimensions left / 4
//	SI      levels of the tile                              CX centroids left
//	R11     number of the first of the tile                 DI next hit
//	Z0 to Z23 sums of 6 centroids (four registers each) with 64 rows

#define CENTROID(addr, z, a, b, c, d) \
	VPBROADCASTD addr, z \
	VPDPBUSD Z24, z, a   \
	VPDPBUSD Z25, z, b   \
	VPDPBUSD Z26, z, c   \
	VPDPBUSD Z27, z, d

// TEST branches to hit if a sum of a centroid reaches the threshold of its row.
#define TEST(a, b, c, d, hit) \
	VPCMPD $5, Z24, a, K1 \
	VPCMPD $5, Z25, b, K2 \
	VPCMPD $5, Z26, c, K3 \
	VPCMPD $5, Z27, d, K4 \
	KORW K1, K2, K5       \
	KORW K3, K4, K6       \
	KORTESTW K5, K6       \
	JNE  hit

// RECORD notes 16 sums if one of them is a hit, and raises best and threshold.
#define RECORD(n, g, a, thr, mask, skip) \
	KMOVW mask, AX             \
	TESTL AX, AX               \
	JEQ   skip                 \
	VMOVDQU32 a, (DI)          \
	LEAL  n(R11), BX           \
	MOVL  BX, 64(DI)           \
	ORL   $(g<<16), AX         \
	MOVL  AX, 68(DI)           \
	ADDQ  $72, DI              \
	MOVQ  best+72(FP), AX      \
	VPMAXSD (g*64)(AX), a, thr \
	VMOVDQU32 thr, (g*64)(AX)  \
	MOVQ  margin+80(FP), AX    \
	VPSUBD (g*64)(AX), thr, thr \
skip:

#define HIT(n, a, b, c, d, s0, s1, s2, s3) \
	RECORD(n, 0, a, Z24, K1, s0) \
	RECORD(n, 1, b, Z25, K2, s1) \
	RECORD(n, 2, c, Z26, K3, s2) \
	RECORD(n, 3, d, Z27, K4, s3)

// func Filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) (size int)
TEXT ·Filter(SB), NOSPLIT, $0-104
	MOVQ hits_base+0(FP), DI
	MOVQ levels_base+24(FP), SI
	MOVQ stride+48(FP), R8
	MOVQ k+88(FP), CX
	MOVQ first+64(FP), R11

tile:
	MOVQ SI, AX
	LEAQ (R8)(R8*2), BX
	ADDQ SI, BX
	MOVQ x+56(FP), DX
	MOVQ R8, R10
	SHRQ $2, R10
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	VPXORD Z12, Z12, Z12
	VPXORD Z13, Z13, Z13
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15
	VPXORD Z16, Z16, Z16
	VPXORD Z17, Z17, Z17
	VPXORD Z18, Z18, Z18
	VPXORD Z19, Z19, Z19
	VPXORD Z20, Z20, Z20
	VPXORD Z21, Z21, Z21
	VPXORD Z22, Z22, Z22
	VPXORD Z23, Z23, Z23

dims:
	VMOVDQU32 (DX), Z24
	VMOVDQU32 64(DX), Z25
	VMOVDQU32 128(DX), Z26
	VMOVDQU32 192(DX), Z27
	CENTROID((AX), Z28, Z0, Z1, Z2, Z3)
	CENTROID((AX)(R8*1), Z29, Z4, Z5, Z6, Z7)
	CENTROID((AX)(R8*2), Z30, Z8, Z9, Z10, Z11)
	CENTROID((BX), Z31, Z12, Z13, Z14, Z15)
	CENTROID((BX)(R8*1), Z28, Z16, Z17, Z18, Z19)
	CENTROID((BX)(R8*2), Z29, Z20, Z21, Z22, Z23)
	ADDQ $4, AX
	ADDQ $4, BX
	ADDQ $256, DX
	DECQ R10
	JNZ  dims

	MOVQ best+72(FP), AX
	MOVQ margin+80(FP), BX
	VMOVDQU32 (AX), Z24
	VMOVDQU32 64(AX), Z25
	VMOVDQU32 128(AX), Z26
	VMOVDQU32 192(AX), Z27
	VPSUBD (BX), Z24, Z24
	VPSUBD 64(BX), Z25, Z25
	VPSUBD 128(BX), Z26, Z26
	VPSUBD 192(BX), Z27, Z27
	TEST(Z0, Z1, Z2, Z3, hit0)
test1:
	TEST(Z4, Z5, Z6, Z7, hit1)
test2:
	TEST(Z8, Z9, Z10, Z11, hit2)
test3:
	TEST(Z12, Z13, Z14, Z15, hit3)
test4:
	TEST(Z16, Z17, Z18, Z19, hit4)
test5:
	TEST(Z20, Z21, Z22, Z23, hit5)
tested:

	SUBQ $6, CX
	JEQ  return
	// The next 6 centroids, or the last 6, some of them again.
	MOVQ $6, AX
	CMPQ CX, AX
	CMOVQLT CX, AX
	ADDQ AX, R11
	IMULQ R8, AX
	ADDQ AX, SI
	CMPQ CX, $6
	JGE  tile
	MOVQ $6, CX
	JMP  tile

return:
	MOVQ hits_base+0(FP), AX
	SUBQ AX, DI
	MOVQ DI, size+96(FP)
	VZEROUPPER
	RET

hit0:
	HIT(0, Z0, Z1, Z2, Z3, a0, a1, a2, a3)
	JMP test1
hit1:
	HIT(1, Z4, Z5, Z6, Z7, b0, b1, b2, b3)
	JMP test2
hit2:
	HIT(2, Z8, Z9, Z10, Z11, c0, c1, c2, c3)
	JMP test3
hit3:
	HIT(3, Z12, Z13, Z14, Z15, d0, d1, d2, d3)
	JMP test4
hit4:
	HIT(4, Z16, Z17, Z18, Z19, e0, e1, e2, e3)
	JMP test5
hit5:
	HIT(5, Z20, Z21, Z22, Z23, f0, f1, f2, f3)
	JMP tested
