//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"

// func Squares(dst [][8]float64, rows []float32, dim int)
TEXT ·Squares(SB), NOSPLIT, $0-56
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD rows_base+24(FP), R2
	MOVD dim+48(FP), R3
	AND  $7, R3, R4
	LSR  $3, R3
	CBZ  R1, return

row:
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	MOVD R3, R5
	CBZ  R5, store

eight:
	VLD1.P 32(R2), [V4.S4, V5.S4]
	FCVTL2D(4, 6)
	FCVTL22D(4, 7)
	FCVTL2D(5, 16)
	FCVTL22D(5, 17)
	FMLA2D(6, 6, 0)
	FMLA2D(7, 7, 1)
	FMLA2D(16, 16, 2)
	FMLA2D(17, 17, 3)
	SUBS $1, R5
	BNE  eight

store:
	VST1.P [V0.D2, V1.D2, V2.D2, V3.D2], 64(R0)
	ADD  R4<<2, R2
	SUBS $1, R1
	BNE  row

return:
	RET

// func AddScaled(dst, x []float32, c float32)
TEXT ·AddScaled(SB), NOSPLIT, $0-52
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD x_base+24(FP), R2
	MOVWU c+48(FP), R3
	VDUP R3, V0.S4
	SUBS $4, R1
	BLT  rest

four:
	VLD1 (R0), [V1.S4]
	VLD1.P 16(R2), [V2.S4]
	VFMLA V0.S4, V2.S4, V1.S4
	VST1.P [V1.S4], 16(R0)
	SUBS $4, R1
	BGE  four

rest:
	ADDS $4, R1
	BEQ  return

one:
	FMOVS (R0), F1
	FMOVS (R2), F2
	FMADDS F0, F1, F2, F1
	FMOVS F1, (R0)
	ADD  $4, R0
	ADD  $4, R2
	SUBS $1, R1
	BNE  one

return:
	RET
