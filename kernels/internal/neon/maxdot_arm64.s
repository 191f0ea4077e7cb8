//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"

// Tiles of 4 rows and 16 columns:
//
//	R0  maxima      R1  their rows
//	R2  rows of the tile           R3  rows left
//	R4  bytes of a row             R5  dimensions left
//	R6 to R9 dimension k of rows   R10 dimension k of the columns
//	R11 number of the first row    R12 scales of the tile, or 0
//	R16 bytes of the panel's row before the 16 columns
//	V0 to V15 products

#define ROW(reg, V, A, B, C, D) \
	VLD1R.P 4(reg), [V.S4]    \
	VFMLA V16.S4, V.S4, A.S4  \
	VFMLA V17.S4, V.S4, B.S4  \
	VFMLA V18.S4, V.S4, C.S4  \
	VFMLA V19.S4, V.S4, D.S4

#define ZERO4(A, B, C, D) \
	VEOR A.B16, A.B16, A.B16 \
	VEOR B.B16, B.B16, B.B16 \
	VEOR C.B16, C.B16, C.B16 \
	VEOR D.B16, D.B16, D.B16

#define SCALE(a, b, c, d) \
	VLD1R.P 4(R13), [V20.S4] \
	FMUL4S(20, a, a)         \
	FMUL4S(20, b, b)         \
	FMUL4S(20, c, c)         \
	FMUL4S(20, d, d)

// RAISE raises the maxima V16 by a vector of products of the row whose number is in
// V18, and notes the number in V17.
#define RAISE(v, V) \
	FCMGT4S(16, v, 20)              \
	VBIT V20.B16, V.B16, V16.B16    \
	VBIT V20.B16, V18.B16, V17.B16

#define COLUMN(off, a, b, c, d, A, B, C, D) \
	FMOVQ off(R0), F16        \
	FMOVQ off(R1), F17        \
	VDUP R11, V18.S4          \
	RAISE(a, A)               \
	VADD V21.S4, V18.S4, V18.S4 \
	RAISE(b, B)               \
	VADD V21.S4, V18.S4, V18.S4 \
	RAISE(c, C)               \
	VADD V21.S4, V18.S4, V18.S4 \
	RAISE(d, D)               \
	FMOVQ F16, off(R0)        \
	FMOVQ F17, off(R1)

// func MaxDot(best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32)
TEXT ·MaxDot(SB), NOSPLIT, $0-120
	MOVD best+0(FP), R0
	MOVD arg+8(FP), R1
	MOVD dim+48(FP), R4
	LSL  $2, R4
	MOVD $0, R16

columns:
	MOVD rows_base+16(FP), R2
	MOVD m+40(FP), R3
	MOVD first+56(FP), R11
	MOVD scales_base+96(FP), R12

tile:
	MOVD R2, R6
	ADD  R4, R2, R7
	ADD  R4<<1, R2, R8
	ADD  R4<<1, R7, R9
	MOVD panel_base+64(FP), R10
	ADD  R16, R10
	MOVD dim+48(FP), R5
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	ZERO4(V12, V13, V14, V15)

dims:
	FLDPQ (R10), (F16, F17)
	FLDPQ 32(R10), (F18, F19)
	ADD  $128, R10
	ROW(R6, V20, V0, V1, V2, V3)
	ROW(R7, V21, V4, V5, V6, V7)
	ROW(R8, V22, V8, V9, V10, V11)
	ROW(R9, V23, V12, V13, V14, V15)
	SUBS $1, R5
	BNE  dims

	CBZ  R12, scaled
	MOVD R12, R13
	SCALE(0, 1, 2, 3)
	SCALE(4, 5, 6, 7)
	SCALE(8, 9, 10, 11)
	SCALE(12, 13, 14, 15)

scaled:
	MOVD $1, R13
	VDUP R13, V21.S4
	COLUMN(0, 0, 4, 8, 12, V0, V4, V8, V12)
	COLUMN(16, 1, 5, 9, 13, V1, V5, V9, V13)
	COLUMN(32, 2, 6, 10, 14, V2, V6, V10, V14)
	COLUMN(48, 3, 7, 11, 15, V3, V7, V11, V15)
	SUBS $4, R3
	BEQ  next
	// The next 4 rows, or the last 4, some of them again.
	MOVD $4, R5
	CMP  R5, R3
	CSEL LT, R3, R5, R5
	ADD  R5, R11
	MADD R4, R2, R5, R2
	CBZ  R12, unscaled
	ADD  R5<<2, R12

unscaled:
	CMP  $4, R3
	BGE  tile
	MOVD $4, R3
	B    tile

next:
	CBNZ R16, return
	MOVD n+88(FP), R5
	CMP  $16, R5
	BLE  return
	MOVD $64, R16
	ADD  $64, R0
	ADD  $64, R1
	B    columns

return:
	RET
