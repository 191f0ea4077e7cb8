//go:build !purego

#include "textflag.h"

//	AX, BX  dimension k of rows 0 and 3 of the tile
//	R8      bytes of a row
//	DX      dimension k of 16 queries    R10 dimensions left
//	DI      products    R12 bytes from row to row of them
//	R11     lo          CX  hi
//	Y0 to Y11 products of 6 rows with two vectors of queries

DATA lanes<>+0(SB)/8, $0x0000000100000000
DATA lanes<>+8(SB)/8, $0x0000000300000002
DATA lanes<>+16(SB)/8, $0x0000000500000004
DATA lanes<>+24(SB)/8, $0x0000000700000006
DATA lanes<>+32(SB)/8, $0x0000000900000008
DATA lanes<>+40(SB)/8, $0x0000000b0000000a
DATA lanes<>+48(SB)/8, $0x0000000d0000000c
DATA lanes<>+56(SB)/8, $0x0000000f0000000e
GLOBL lanes<>(SB), RODATA|NOPTR, $64

// ROUNDED adds to the products x and y of a row, and rounds product and sum.
#define ROUNDED(addr, x, y) \
	VBROADCASTSS addr, Y14  \
	VMULPS Y12, Y14, Y15    \
	VMULPS Y13, Y14, Y14    \
	VADDPS Y15, x, x        \
	VADDPS Y14, y, y

// FUSED rounds the sum only.
#define FUSED(addr, x, y) \
	VBROADCASTSS addr, Y14  \
	VFMADD231PS Y12, Y14, x \
	VFMADD231PS Y13, Y14, y

#define MASKS \
	MOVQ n+96(FP), AX       \
	VMOVD AX, X12           \
	VPBROADCASTD X12, Y12   \
	VPCMPGTD lanes<>+32(SB), Y12, Y13 \
	VPCMPGTD lanes<>+0(SB), Y12, Y12

// STORE writes a row of products and widens the ranges: v < lo ? v : lo.
#define STORE(x, y) \
	VMASKMOVPS x, Y12, (DI)   \
	VMASKMOVPS y, Y13, 32(DI) \
	VMINPS (R11), x, Y14      \
	VMOVUPS Y14, (R11)        \
	VMINPS 32(R11), y, Y14    \
	VMOVUPS Y14, 32(R11)      \
	VMAXPS (CX), x, Y14       \
	VMOVUPS Y14, (CX)         \
	VMAXPS 32(CX), y, Y14     \
	VMOVUPS Y14, 32(CX)       \
	ADDQ R12, DI

// DOTS is the body of Dots and DotsFused.
#define DOTS(ROW) \
	MOVQ dst_base+0(FP), DI \
	MOVQ stride+24(FP), R12 \
	SHLQ $2, R12 \
	MOVQ rows_base+32(FP), SI \
	MOVQ m+56(FP), R13 \
	MOVQ dim+64(FP), R8 \
	SHLQ $2, R8 \
	MOVQ lo+104(FP), R11 \
	MOVQ hi+112(FP), CX \
	CMPQ R13, $6 \
	JLT  single \
tile: \
	MOVQ SI, AX \
	LEAQ (R8)(R8*2), BX \
	ADDQ SI, BX \
	MOVQ queries_base+72(FP), DX \
	MOVQ dim+64(FP), R10 \
	VXORPS Y0, Y0, Y0 \
	VXORPS Y1, Y1, Y1 \
	VXORPS Y2, Y2, Y2 \
	VXORPS Y3, Y3, Y3 \
	VXORPS Y4, Y4, Y4 \
	VXORPS Y5, Y5, Y5 \
	VXORPS Y6, Y6, Y6 \
	VXORPS Y7, Y7, Y7 \
	VXORPS Y8, Y8, Y8 \
	VXORPS Y9, Y9, Y9 \
	VXORPS Y10, Y10, Y10 \
	VXORPS Y11, Y11, Y11 \
tiledim: \
	VMOVUPS (DX), Y12 \
	VMOVUPS 32(DX), Y13 \
	ROW((AX), Y0, Y1) \
	ROW((AX)(R8*1), Y2, Y3) \
	ROW((AX)(R8*2), Y4, Y5) \
	ROW((BX), Y6, Y7) \
	ROW((BX)(R8*1), Y8, Y9) \
	ROW((BX)(R8*2), Y10, Y11) \
	ADDQ $4, AX \
	ADDQ $4, BX \
	ADDQ $128, DX \
	DECQ R10 \
	JNZ  tiledim \
	MASKS \
	MOVQ DI, R9 \
	STORE(Y0, Y1) \
	STORE(Y2, Y3) \
	STORE(Y4, Y5) \
	STORE(Y6, Y7) \
	STORE(Y8, Y9) \
	STORE(Y10, Y11) \
	SUBQ $6, R13 \
	JEQ  return \
	MOVQ $6, AX \
	CMPQ R13, AX \
	CMOVQLT R13, AX \
	MOVQ AX, BX \
	IMULQ R8, BX \
	ADDQ BX, SI \
	IMULQ R12, AX \
	LEAQ (R9)(AX*1), DI \
	CMPQ R13, $6 \
	JGE  tile \
	MOVQ $6, R13 \
	JMP  tile \
single: \
	TESTQ R13, R13 \
	JEQ  return \
row: \
	MOVQ SI, AX \
	MOVQ queries_base+72(FP), DX \
	MOVQ dim+64(FP), R10 \
	VXORPS Y0, Y0, Y0 \
	VXORPS Y1, Y1, Y1 \
rowdim: \
	VMOVUPS (DX), Y12 \
	VMOVUPS 32(DX), Y13 \
	ROW((AX), Y0, Y1) \
	ADDQ $4, AX \
	ADDQ $128, DX \
	DECQ R10 \
	JNZ  rowdim \
	MASKS \
	STORE(Y0, Y1) \
	ADDQ R8, SI \
	DECQ R13 \
	JNZ  row \
return: \
	VZEROUPPER \
	RET

// func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[16]float32)
TEXT ·Dots(SB), NOSPLIT, $0-120
	DOTS(ROUNDED)

// func DotsFused(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[16]float32)
TEXT ·DotsFused(SB), NOSPLIT, $0-120
	DOTS(FUSED)
