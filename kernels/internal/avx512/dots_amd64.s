//go:build !purego

#include "textflag.h"

//	AX, BX, CX  dimension k of rows 0, 4 and 8 of the tile
//	R8, R9      bytes of a row, of three rows
//	DX          dimension k of the queries
//	R10         dimensions left
//	R15         what to prefetch
//	Z0 to Z23   products of 12 rows with two vectors of queries

// ROUNDED adds to the products x and y of a row, and rounds product and sum.
#define ROUNDED(addr, x, y) \
	VBROADCASTSS addr, Z26  \
	VMULPS Z24, Z26, Z27    \
	VMULPS Z25, Z26, Z28    \
	VADDPS Z27, x, x        \
	VADDPS Z28, y, y

// FUSED rounds the sum only.
#define FUSED(addr, x, y) \
	VBROADCASTSS addr, Z26  \
	VFMADD231PS Z24, Z26, x \
	VFMADD231PS Z25, Z26, y

// STORE writes a row of products and widens the ranges: v < lo ? v : lo.
#define STORE(x, y) \
	VMOVUPS x, K1, (DI)     \
	VMOVUPS y, K2, 64(DI)   \
	VMINPS Z24, x, Z24      \
	VMINPS Z25, y, Z25      \
	VMAXPS Z26, x, Z26      \
	VMAXPS Z27, y, Z27      \
	ADDQ R12, DI

#define LOADRANGE \
	MOVQ lo+104(FP), AX     \
	VMOVUPS (AX), Z24       \
	VMOVUPS 64(AX), Z25     \
	MOVQ hi+112(FP), AX     \
	VMOVUPS (AX), Z26       \
	VMOVUPS 64(AX), Z27

#define STORERANGE \
	MOVQ lo+104(FP), AX     \
	VMOVUPS Z24, (AX)       \
	VMOVUPS Z25, 64(AX)     \
	MOVQ hi+112(FP), AX     \
	VMOVUPS Z26, (AX)       \
	VMOVUPS Z27, 64(AX)

// AHEAD prefetches, once for each dimension, some bytes of the next rows, so that all of
// them are in the cache when the products of the current rows are done.
#define AHEAD \
	PREFETCHT0 (R15)        \
	ADDQ step+128(FP), R15

#define NONE

// DOTS is the body of Dots and DotsFused.
#define DOTS(ROW, NEXT) \
	MOVQ n+96(FP), CX \
	MOVL $1, AX \
	SHLQ CX, AX \
	DECQ AX \
	KMOVW AX, K1 \
	SHRQ $16, AX \
	KMOVW AX, K2 \
	MOVQ dst_base+0(FP), DI \
	MOVQ stride+24(FP), R12 \
	SHLQ $2, R12 \
	MOVQ rows_base+32(FP), SI \
	MOVQ m+56(FP), R13 \
	MOVQ dim+64(FP), R8 \
	SHLQ $2, R8 \
	LEAQ (R8)(R8*2), R9 \
	CMPQ R13, $12 \
	JLT  single \
tile: \
	MOVQ SI, AX \
	LEAQ (SI)(R8*4), BX \
	LEAQ (SI)(R8*8), CX \
	MOVQ queries_base+72(FP), DX \
	MOVQ dim+64(FP), R10 \
	VPXORD Z0, Z0, Z0 \
	VPXORD Z1, Z1, Z1 \
	VPXORD Z2, Z2, Z2 \
	VPXORD Z3, Z3, Z3 \
	VPXORD Z4, Z4, Z4 \
	VPXORD Z5, Z5, Z5 \
	VPXORD Z6, Z6, Z6 \
	VPXORD Z7, Z7, Z7 \
	VPXORD Z8, Z8, Z8 \
	VPXORD Z9, Z9, Z9 \
	VPXORD Z10, Z10, Z10 \
	VPXORD Z11, Z11, Z11 \
	VPXORD Z12, Z12, Z12 \
	VPXORD Z13, Z13, Z13 \
	VPXORD Z14, Z14, Z14 \
	VPXORD Z15, Z15, Z15 \
	VPXORD Z16, Z16, Z16 \
	VPXORD Z17, Z17, Z17 \
	VPXORD Z18, Z18, Z18 \
	VPXORD Z19, Z19, Z19 \
	VPXORD Z20, Z20, Z20 \
	VPXORD Z21, Z21, Z21 \
	VPXORD Z22, Z22, Z22 \
	VPXORD Z23, Z23, Z23 \
tiledim: \
	VMOVUPS (DX), Z24 \
	VMOVUPS 64(DX), Z25 \
	NEXT \
	ROW((AX), Z0, Z1) \
	ROW((AX)(R8*1), Z2, Z3) \
	ROW((AX)(R8*2), Z4, Z5) \
	ROW((AX)(R9*1), Z6, Z7) \
	ROW((BX), Z8, Z9) \
	ROW((BX)(R8*1), Z10, Z11) \
	ROW((BX)(R8*2), Z12, Z13) \
	ROW((BX)(R9*1), Z14, Z15) \
	ROW((CX), Z16, Z17) \
	ROW((CX)(R8*1), Z18, Z19) \
	ROW((CX)(R8*2), Z20, Z21) \
	ROW((CX)(R9*1), Z22, Z23) \
	ADDQ $4, AX \
	ADDQ $4, BX \
	ADDQ $4, CX \
	ADDQ $128, DX \
	DECQ R10 \
	JNZ  tiledim \
	LOADRANGE \
	MOVQ DI, R11 \
	STORE(Z0, Z1) \
	STORE(Z2, Z3) \
	STORE(Z4, Z5) \
	STORE(Z6, Z7) \
	STORE(Z8, Z9) \
	STORE(Z10, Z11) \
	STORE(Z12, Z13) \
	STORE(Z14, Z15) \
	STORE(Z16, Z17) \
	STORE(Z18, Z19) \
	STORE(Z20, Z21) \
	STORE(Z22, Z23) \
	STORERANGE \
	SUBQ $12, R13 \
	JEQ  return \
	MOVQ $12, AX \
	CMPQ R13, AX \
	CMOVQLT R13, AX \
	MOVQ AX, BX \
	IMULQ R8, BX \
	ADDQ BX, SI \
	IMULQ R12, AX \
	LEAQ (R11)(AX*1), DI \
	CMPQ R13, $12 \
	JGE  tile \
	MOVQ $12, R13 \
	JMP  tile \
single: \
	TESTQ R13, R13 \
	JEQ  return \
row: \
	MOVQ SI, AX \
	MOVQ queries_base+72(FP), DX \
	MOVQ dim+64(FP), R10 \
	VPXORD Z0, Z0, Z0 \
	VPXORD Z1, Z1, Z1 \
rowdim: \
	VMOVUPS (DX), Z24 \
	VMOVUPS 64(DX), Z25 \
	ROW((AX), Z0, Z1) \
	ADDQ $4, AX \
	ADDQ $128, DX \
	DECQ R10 \
	JNZ  rowdim \
	LOADRANGE \
	STORE(Z0, Z1) \
	STORERANGE \
	ADDQ R8, SI \
	DECQ R13 \
	JNZ  row \
return: \
	VZEROUPPER \
	RET

// func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)
TEXT ·Dots(SB), NOSPLIT, $0-120
	DOTS(ROUNDED, NONE)

// func DotsFused(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32, ahead *byte, step int)
TEXT ·DotsFused(SB), NOSPLIT, $0-136
	MOVQ ahead+120(FP), R15
	DOTS(FUSED, AHEAD)
