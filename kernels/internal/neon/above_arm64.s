//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"

// func Above(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int
TEXT ·Above(SB), NOSPLIT, $0-80
	MOVD rows_base+0(FP), R0
	MOVD rows_len+8(FP), R1
	MOVD scores_base+24(FP), R2
	MOVD stride+48(FP), R3
	MOVD n+56(FP), R4
	MOVD limits+64(FP), R5
	MOVD ZR, R6 // row
	MOVD ZR, R7 // rows found

row:
	CMP  R1, R6
	BGE  return
	MOVD R2, R8
	MOVD R5, R9
	MOVD R4, R10 // columns left
	VEOR V0.B16, V0.B16, V0.B16

strip: // the stride is a multiple of 8
	FLDPQ.P 32(R8), (F1, F2)
	FLDPQ.P 32(R9), (F3, F4)
	FCMGT4S(3, 1, 1)
	FCMGT4S(4, 2, 2)
	VORR V1.B16, V0.B16, V0.B16
	VORR V2.B16, V0.B16, V0.B16
	SUBS $8, R10
	BGT  strip

	UMAXV4S(0, 0)
	FMOVS F0, R8
	ADD   R7<<2, R0, R9
	MOVW  R6, (R9) // to stay, or to be overwritten
	CMPW  $0, R8
	CSINC EQ, R7, R7, R7
	ADD   R3<<2, R2
	ADD   $1, R6
	B     row

return:
	MOVD R7, ret+72(FP)
	RET
