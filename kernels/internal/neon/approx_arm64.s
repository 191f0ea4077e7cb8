//go:build !purego

#include "textflag.h"

//	R0  best of the document    R1  rows
//	R2  range                   R3  end of the ranges
//	R4  codes                   R5  codes of the token
//	R6  tokens left, less what the step of the loop takes
//	V0 to V7 running maxima of 32 bytes

#define MAX2(n, reg, f, g, u, v, a, b) \
	MOVHU (n*2)(R5), reg           \
	ADD   reg<<5, R1, reg          \
	FLDPQ (reg), (f, g)            \
	VUMAX u.B16, a.B16, a.B16      \
	VUMAX v.B16, b.B16, b.B16

#define MAX4(n, reg, f, g, u, v, a, b) \
	MOVWU (n*4)(R5), reg           \
	ADD   reg<<5, R1, reg          \
	FLDPQ (reg), (f, g)            \
	VUMAX u.B16, a.B16, a.B16      \
	VUMAX v.B16, b.B16, b.B16

#define FETCH2(n) \
	MOVHU (n*2)(R5), R11           \
	ADD   R11<<5, R1, R11          \
	PRFM  (R11), PLDL1KEEP

#define FETCH4(n) \
	MOVWU (n*4)(R5), R11           \
	ADD   R11<<5, R1, R11          \
	PRFM  (R11), PLDL1KEEP

#define APPROX(MAX, FETCH, log) \
	MOVD  best_base+0(FP), R0      \
	MOVD  ranges_base+24(FP), R2   \
	MOVD  ranges_len+32(FP), R3    \
	ADD   R3<<3, R2, R3            \
	MOVD  rows_base+48(FP), R1     \
	MOVD  codes_base+72(FP), R4    \
document:                              \
	CMP   R3, R2                   \
	BEQ   return                   \
	MOVWU (R2), R5                 \
	MOVWU 4(R2), R6                \
	SUBS  R5, R6, R6               \
	BLE   next                     \
	ADD   $8, R2, R7               \
	CMP   R3, R7                   \
	BEQ   last                     \
	MOVWU (R7), R7                 \
	ADD   R7<<log, R4, R7          \
	PRFM  (R7), PLDL1KEEP          \
	PRFM  64(R7), PLDL1KEEP        \
	PRFM  128(R7), PLDL1KEEP       \
	PRFM  192(R7), PLDL1KEEP       \
last:                                  \
	ADD   R5<<log, R4, R5          \
	FLDPQ (R0), (F0, F1)           \
	VEOR  V2.B16, V2.B16, V2.B16   \
	VEOR  V3.B16, V3.B16, V3.B16   \
	VEOR  V4.B16, V4.B16, V4.B16   \
	VEOR  V5.B16, V5.B16, V5.B16   \
	VEOR  V6.B16, V6.B16, V6.B16   \
	VEOR  V7.B16, V7.B16, V7.B16   \
	SUBS  $20, R6                  \
	BLT   few                      \
fetched:                               \
	FETCH(16)                      \
	FETCH(17)                      \
	FETCH(18)                      \
	FETCH(19)                      \
	MAX(0, R7, F16, F17, V16, V17, V0, V1)  \
	MAX(1, R8, F18, F19, V18, V19, V2, V3)  \
	MAX(2, R9, F20, F21, V20, V21, V4, V5)  \
	MAX(3, R10, F22, F23, V22, V23, V6, V7) \
	ADD   $(4<<log), R5            \
	SUBS  $4, R6                   \
	BGE   fetched                  \
few:                                   \
	ADDS  $16, R6                  \
	BLT   rest                     \
four:                                  \
	MAX(0, R7, F16, F17, V16, V17, V0, V1)  \
	MAX(1, R8, F18, F19, V18, V19, V2, V3)  \
	MAX(2, R9, F20, F21, V20, V21, V4, V5)  \
	MAX(3, R10, F22, F23, V22, V23, V6, V7) \
	ADD   $(4<<log), R5            \
	SUBS  $4, R6                   \
	BGE   four                     \
rest:                                  \
	ADDS  $4, R6                   \
	BEQ   done                     \
one:                                   \
	MAX(0, R7, F16, F17, V16, V17, V0, V1) \
	ADD   $(1<<log), R5            \
	SUBS  $1, R6                   \
	BNE   one                      \
done:                                  \
	VUMAX V2.B16, V0.B16, V0.B16   \
	VUMAX V3.B16, V1.B16, V1.B16   \
	VUMAX V6.B16, V4.B16, V4.B16   \
	VUMAX V7.B16, V5.B16, V5.B16   \
	VUMAX V4.B16, V0.B16, V0.B16   \
	VUMAX V5.B16, V1.B16, V1.B16   \
	FSTPQ (F0, F1), (R0)           \
next:                                  \
	ADD   $32, R0                  \
	ADD   $8, R2                   \
	B     document                 \
return:                                \
	RET

// func MaxBytes2(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)
TEXT ·MaxBytes2(SB), NOSPLIT, $0-96
	APPROX(MAX2, FETCH2, 1)

// func MaxBytes4(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)
TEXT ·MaxBytes4(SB), NOSPLIT, $0-96
	APPROX(MAX4, FETCH4, 2)
