//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"
#include "partial_arm64.h"

// Tiles of 4 rows and 16 queries:
//
//	R0  products of the tile       R1  bytes of a row of them
//	R2  rows of the tile           R3  rows left
//	R4  bytes of a row             R5  dimensions left
//	R6 to R9 dimension k of rows   R10 dimension k of the queries
//	R11 queries to store           R12, R13 ranges of the queries
//	V0 to V15 products             V24 to V31 ranges, once products are complete

// FUSED adds to the products a to d of a row, and rounds the sum only.
#define FUSED(reg, V, v, t, a, b, c, d) \
	VLD1R.P 4(reg), [V.S4] \
	FMLA4S(v, 16, a)       \
	FMLA4S(v, 17, b)       \
	FMLA4S(v, 18, c)       \
	FMLA4S(v, 19, d)

// ROUNDED rounds product and sum.
#define ROUNDED(reg, V, v, t, a, b, c, d) \
	VLD1R.P 4(reg), [V.S4] \
	FMUL4S(v, 16, t)       \
	FMUL4S(v, 17, t+1)     \
	FMUL4S(v, 18, t+2)     \
	FMUL4S(v, 19, t+3)     \
	FADD4S(t, a, a)        \
	FADD4S(t+1, b, b)      \
	FADD4S(t+2, c, c)      \
	FADD4S(t+3, d, d)

// WIDEN widens a range: v < lo ? v : lo, v > hi ? v : hi.
#define WIDEN(v, V, lo, LO, hi, HI) \
	FCMGT4S(v, lo, 20)            \
	VBIT V20.B16, V.B16, LO.B16   \
	FCMGT4S(hi, v, 20)            \
	VBIT V20.B16, V.B16, HI.B16

// FINISH widens the ranges by a row of products and stores it.
#define FINISH(a, b, c, d, A, B, C, D, part, four, two, one, done) \
	WIDEN(a, A, 24, V24, 28, V28) \
	WIDEN(b, B, 25, V25, 29, V29) \
	WIDEN(c, C, 26, V26, 30, V30) \
	WIDEN(d, D, 27, V27, 31, V31) \
	VMOV A.B16, V16.B16           \
	VMOV B.B16, V17.B16           \
	VMOV C.B16, V18.B16           \
	VMOV D.B16, V19.B16           \
	STORE16(R14, R11, R15, part, four, two, one, done) \
	ADD  R1, R14

#define LOADRANGE \
	FLDPQ (R12), (F24, F25)   \
	FLDPQ 32(R12), (F26, F27) \
	FLDPQ (R13), (F28, F29)   \
	FLDPQ 32(R13), (F30, F31)

#define STORERANGE \
	FSTPQ (F24, F25), (R12)   \
	FSTPQ (F26, F27), 32(R12) \
	FSTPQ (F28, F29), (R13)   \
	FSTPQ (F30, F31), 32(R13)

#define ZERO4(A, B, C, D) \
	VEOR A.B16, A.B16, A.B16 \
	VEOR B.B16, B.B16, B.B16 \
	VEOR C.B16, C.B16, C.B16 \
	VEOR D.B16, D.B16, D.B16

// DOTS is the body of Dots and DotsFused.
#define DOTS(ROW) \
	MOVD stride+24(FP), R1 \
	LSL  $2, R1 \
	MOVD dim+64(FP), R4 \
	LSL  $2, R4 \
	MOVD lo+104(FP), R12 \
	MOVD hi+112(FP), R13 \
	MOVD $0, R16 \
queries: \
	MOVD n+96(FP), R11 \
	SUBS R16, R11 \
	BLE  return \
	MOVD $16, R5 \
	CMP  R5, R11 \
	CSEL LT, R11, R5, R11 \
	MOVD dst_base+0(FP), R0 \
	ADD  R16<<2, R0 \
	MOVD queries_base+72(FP), R17 \
	ADD  R16<<2, R17 \
	MOVD rows_base+32(FP), R2 \
	MOVD m+56(FP), R3 \
	CMP  $4, R3 \
	BLT  single \
tile: \
	MOVD R2, R6 \
	ADD  R4, R2, R7 \
	ADD  R4<<1, R2, R8 \
	ADD  R4<<1, R7, R9 \
	MOVD R17, R10 \
	MOVD dim+64(FP), R5 \
	ZERO4(V0, V1, V2, V3) \
	ZERO4(V4, V5, V6, V7) \
	ZERO4(V8, V9, V10, V11) \
	ZERO4(V12, V13, V14, V15) \
tiledim: \
	FLDPQ (R10), (F16, F17) \
	FLDPQ 32(R10), (F18, F19) \
	ADD  $128, R10 \
	ROW(R6, V20, 20, 24, 0, 1, 2, 3) \
	ROW(R7, V21, 21, 28, 4, 5, 6, 7) \
	ROW(R8, V22, 22, 24, 8, 9, 10, 11) \
	ROW(R9, V23, 23, 28, 12, 13, 14, 15) \
	SUBS $1, R5 \
	BNE  tiledim \
	LOADRANGE \
	MOVD R0, R14 \
	FINISH(0, 1, 2, 3, V0, V1, V2, V3, part0, four0, two0, one0, done0) \
	FINISH(4, 5, 6, 7, V4, V5, V6, V7, part1, four1, two1, one1, done1) \
	FINISH(8, 9, 10, 11, V8, V9, V10, V11, part2, four2, two2, one2, done2) \
	FINISH(12, 13, 14, 15, V12, V13, V14, V15, part3, four3, two3, one3, done3) \
	STORERANGE \
	SUBS $4, R3 \
	BEQ  next \
	MOVD $4, R5 \
	CMP  R5, R3 \
	CSEL LT, R3, R5, R5 \
	MADD R4, R2, R5, R2 \
	MADD R1, R0, R5, R0 \
	CMP  $4, R3 \
	BGE  tile \
	MOVD $4, R3 \
	B    tile \
single: \
	CBZ  R3, return \
	MOVD R0, R14 \
row: \
	MOVD R2, R6 \
	MOVD R17, R10 \
	MOVD dim+64(FP), R5 \
	ZERO4(V0, V1, V2, V3) \
rowdim: \
	FLDPQ (R10), (F16, F17) \
	FLDPQ 32(R10), (F18, F19) \
	ADD  $128, R10 \
	ROW(R6, V20, 20, 24, 0, 1, 2, 3) \
	SUBS $1, R5 \
	BNE  rowdim \
	LOADRANGE \
	FINISH(0, 1, 2, 3, V0, V1, V2, V3, part4, four4, two4, one4, done4) \
	STORERANGE \
	ADD  R4, R2 \
	SUBS $1, R3 \
	BNE  row \
next: \
	ADD  $16, R16 \
	ADD  $64, R12 \
	ADD  $64, R13 \
	B    queries \
return: \
	RET

// func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)
TEXT ·Dots(SB), NOSPLIT, $0-120
	DOTS(ROUNDED)

// func DotsFused(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)
TEXT ·DotsFused(SB), NOSPLIT, $0-120
	DOTS(FUSED)
