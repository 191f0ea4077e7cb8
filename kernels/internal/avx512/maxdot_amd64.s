//go:build !purego

#include "textflag.h"

//	AX, BX, CX  dimension k of rows 0, 4 and 8 of the tile
//	R8, R9      bytes of a row, of three rows
//	DX          dimension k of the panel      R10 dimensions left
//	SI          rows of the tile              R13 rows left
//	R11         number of the first row       R12 scales of the tile, or 0
//	DI          address to prefetch in the next tile, 48 bytes for each dimension: rows
//	            are too far apart for the processor's own prefetching
//	Z0 to Z23   products of 12 rows with two vectors of columns

#define ROW(addr, x, y) \
	VBROADCASTSS addr, Z26     \
	VFMADD231PS Z24, Z26, x    \
	VFMADD231PS Z25, Z26, y

#define HALFROW(addr, x) \
	VFMADD231PS.BCST addr, Z24, x

#define SCALE(n, x, y) \
	VBROADCASTSS (n*4)(R12), Z28 \
	VMULPS Z28, x, x             \
	VMULPS Z28, y, y

// RAISE raises the maxima by a row of products; Z28 is the number of the row in all
// lanes, Z29 −1.
#define RAISE(x, y) \
	VCMPPS $30, Z24, x, K1    \
	VCMPPS $30, Z25, y, K2    \
	VMOVAPS x, K1, Z24        \
	VMOVDQA32 Z28, K1, Z26    \
	VMOVAPS y, K2, Z25        \
	VMOVDQA32 Z28, K2, Z27    \
	VPSUBD Z29, Z28, Z28

#define HALFRAISE(x) \
	VCMPPS $30, Z24, x, K1    \
	VMOVAPS x, K1, Z24        \
	VMOVDQA32 Z28, K1, Z26    \
	VPSUBD Z29, Z28, Z28

#define POINTERS \
	MOVQ SI, AX             \
	LEAQ (SI)(R8*4), BX     \
	LEAQ (SI)(R8*8), CX     \
	MOVQ panel_base+64(FP), DX \
	LEAQ (SI)(R9*4), DI     \
	MOVQ dim+48(FP), R10

#define ADVANCE \
	PREFETCHT0 (DI)         \
	ADDQ $48, DI            \
	ADDQ $4, AX             \
	ADDQ $4, BX             \
	ADDQ $4, CX             \
	ADDQ $128, DX           \
	DECQ R10

// NEXT advances to the next 12 rows, or to the last 12, some of which are multiplied again.
#define NEXT(tile, done) \
	SUBQ $12, R13           \
	JEQ  done               \
	MOVQ $12, R10           \
	CMPQ R13, R10           \
	CMOVQLT R13, R10        \
	ADDQ R10, R11           \
	MOVQ R10, AX            \
	IMULQ R8, AX            \
	ADDQ AX, SI             \
	SHLQ $2, R10            \
	XORL AX, AX             \
	TESTQ R12, R12          \
	CMOVQEQ AX, R10         \
	ADDQ R10, R12           \
	CMPQ R13, $12           \
	JGE  tile               \
	MOVQ $12, R13           \
	JMP  tile

// func MaxDot(best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32)
TEXT ·MaxDot(SB), NOSPLIT, $0-120
	MOVQ rows_base+16(FP), SI
	MOVQ m+40(FP), R13
	MOVQ dim+48(FP), R8
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R9
	MOVQ first+56(FP), R11
	MOVQ scales_base+96(FP), R12
	VPTERNLOGD $0xff, Z29, Z29, Z29
	CMPQ n+88(FP), $16
	JLE  half

tile:
	POINTERS
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
	VMOVUPS (DX), Z24
	VMOVUPS 64(DX), Z25
	ROW((AX), Z0, Z1)
	ROW((AX)(R8*1), Z2, Z3)
	ROW((AX)(R8*2), Z4, Z5)
	ROW((AX)(R9*1), Z6, Z7)
	ROW((BX), Z8, Z9)
	ROW((BX)(R8*1), Z10, Z11)
	ROW((BX)(R8*2), Z12, Z13)
	ROW((BX)(R9*1), Z14, Z15)
	ROW((CX), Z16, Z17)
	ROW((CX)(R8*1), Z18, Z19)
	ROW((CX)(R8*2), Z20, Z21)
	ROW((CX)(R9*1), Z22, Z23)
	ADVANCE
	JNZ  dims

	TESTQ R12, R12
	JEQ  scaled
	SCALE(0, Z0, Z1)
	SCALE(1, Z2, Z3)
	SCALE(2, Z4, Z5)
	SCALE(3, Z6, Z7)
	SCALE(4, Z8, Z9)
	SCALE(5, Z10, Z11)
	SCALE(6, Z12, Z13)
	SCALE(7, Z14, Z15)
	SCALE(8, Z16, Z17)
	SCALE(9, Z18, Z19)
	SCALE(10, Z20, Z21)
	SCALE(11, Z22, Z23)

scaled:
	MOVQ best+0(FP), DI
	MOVQ arg+8(FP), DX
	VMOVUPS (DI), Z24
	VMOVUPS 64(DI), Z25
	VMOVDQU32 (DX), Z26
	VMOVDQU32 64(DX), Z27
	VPBROADCASTD R11, Z28
	RAISE(Z0, Z1)
	RAISE(Z2, Z3)
	RAISE(Z4, Z5)
	RAISE(Z6, Z7)
	RAISE(Z8, Z9)
	RAISE(Z10, Z11)
	RAISE(Z12, Z13)
	RAISE(Z14, Z15)
	RAISE(Z16, Z17)
	RAISE(Z18, Z19)
	RAISE(Z20, Z21)
	RAISE(Z22, Z23)
	VMOVUPS Z24, (DI)
	VMOVUPS Z25, 64(DI)
	VMOVDQU32 Z26, (DX)
	VMOVDQU32 Z27, 64(DX)
	NEXT(tile, done)

done:
	VZEROUPPER
	RET

	// At most 16 columns.
half:
	POINTERS
	VPXORD Z0, Z0, Z0
	VPXORD Z2, Z2, Z2
	VPXORD Z4, Z4, Z4
	VPXORD Z6, Z6, Z6
	VPXORD Z8, Z8, Z8
	VPXORD Z10, Z10, Z10
	VPXORD Z12, Z12, Z12
	VPXORD Z14, Z14, Z14
	VPXORD Z16, Z16, Z16
	VPXORD Z18, Z18, Z18
	VPXORD Z20, Z20, Z20
	VPXORD Z22, Z22, Z22

halfdims:
	VMOVUPS (DX), Z24
	HALFROW((AX), Z0)
	HALFROW((AX)(R8*1), Z2)
	HALFROW((AX)(R8*2), Z4)
	HALFROW((AX)(R9*1), Z6)
	HALFROW((BX), Z8)
	HALFROW((BX)(R8*1), Z10)
	HALFROW((BX)(R8*2), Z12)
	HALFROW((BX)(R9*1), Z14)
	HALFROW((CX), Z16)
	HALFROW((CX)(R8*1), Z18)
	HALFROW((CX)(R8*2), Z20)
	HALFROW((CX)(R9*1), Z22)
	ADVANCE
	JNZ  halfdims

	TESTQ R12, R12
	JEQ  halfscaled
	SCALE(0, Z0, Z1)
	SCALE(1, Z2, Z1)
	SCALE(2, Z4, Z1)
	SCALE(3, Z6, Z1)
	SCALE(4, Z8, Z1)
	SCALE(5, Z10, Z1)
	SCALE(6, Z12, Z1)
	SCALE(7, Z14, Z1)
	SCALE(8, Z16, Z1)
	SCALE(9, Z18, Z1)
	SCALE(10, Z20, Z1)
	SCALE(11, Z22, Z1)

halfscaled:
	MOVQ best+0(FP), DI
	MOVQ arg+8(FP), DX
	VMOVUPS (DI), Z24
	VMOVDQU32 (DX), Z26
	VPBROADCASTD R11, Z28
	HALFRAISE(Z0)
	HALFRAISE(Z2)
	HALFRAISE(Z4)
	HALFRAISE(Z6)
	HALFRAISE(Z8)
	HALFRAISE(Z10)
	HALFRAISE(Z12)
	HALFRAISE(Z14)
	HALFRAISE(Z16)
	HALFRAISE(Z18)
	HALFRAISE(Z20)
	HALFRAISE(Z22)
	VMOVUPS Z24, (DI)
	VMOVDQU32 Z26, (DX)
	NEXT(half, halfdone)

halfdone:
	VZEROUPPER
	RET
