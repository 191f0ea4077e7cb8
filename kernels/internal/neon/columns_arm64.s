//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"

// Four dimensions are taken at a time, then one: a load of a single value
// clears the other lanes.

// SUM leaves the sum of the lanes of v in each of them.
#define SUM(v) \
	FADDP4S(v, v, v) \
	FADDP4S(v, v, v)

#define RANGE(LOAD, size) \
	LOAD.P size(R2), F0         \
	LOAD (R5), F1               \
	LOAD (R6), F2               \
	FCMGT4S(0, 1, 3)            \
	VBIT V3.B16, V0.B16, V1.B16 \
	FCMGT4S(2, 0, 3)            \
	VBIT V3.B16, V0.B16, V2.B16 \
	LOAD.P F1, size(R5)         \
	LOAD.P F2, size(R6)

// func Range(lo, hi, rows []float32)
TEXT ·Range(SB), NOSPLIT, $0-72
	MOVD lo_base+0(FP), R0
	MOVD hi_base+24(FP), R1
	MOVD rows_base+48(FP), R2
	MOVD rows_len+56(FP), R3
	ADD  R3<<2, R2, R3
	MOVD lo_len+8(FP), R4

row:
	CMP  R3, R2
	BGE  return
	MOVD R0, R5
	MOVD R1, R6
	SUBS $4, R4, R7
	BLT  rest

four:
	RANGE(FMOVQ, 16)
	SUBS $4, R7
	BGE  four

rest:
	ADDS $4, R7
	BEQ  row

one:
	RANGE(FMOVS, 4)
	SUBS $1, R7
	BNE  one
	B    row

return:
	RET

// LEVELS rounds values and adds up errors in V16, values in V17 and levels in
// V18, squared. middle is a register of 127.5 in the lanes in use, 0 in the others. The levels are
// in the lowest bytes of V4.
#define LEVELS(LOAD, size, middle) \
	LOAD.P size(R2), F0         \
	LOAD.P size(R5), F1         \
	LOAD.P size(R6), F2         \
	LOAD.P size(R7), F3         \
	FSUB4S(1, 0, 1)             \
	FMUL4S(3, 1, 3)             \
	FADD4S(20, 3, 3)            \
	FCVTZS4S(3, 3)              \
	SMAX4S(21, 3, 3)            \
	SMIN4S(22, 3, 3)            \
	VUZP1 V3.H8, V3.H8, V4.H8   \
	VUZP1 V4.B16, V4.B16, V4.B16 \
	SCVTF4S(3, 3)               \
	FMUL4S(3, 2, 2)             \
	FSUB4S(2, 1, 1)             \
	FSUB4S(middle, 3, 3)        \
	FMUL4S(0, 0, 0)             \
	FMUL4S(1, 1, 1)             \
	FMUL4S(3, 3, 3)             \
	FADD4S(1, 16, 16)           \
	FADD4S(0, 17, 17)           \
	FADD4S(3, 18, 18)

// func Levels(dst []byte, stride int, rows, lo, step, inverse []float32, most *[4]float32)
TEXT ·Levels(SB), NOSPLIT, $0-136
	MOVD dst_base+0(FP), R0
	MOVD stride+24(FP), R1
	MOVD rows_base+32(FP), R2
	MOVD rows_len+40(FP), R3
	ADD  R3<<2, R2, R3
	MOVD lo_len+64(FP), R4
	MOVD most+128(FP), R8
	FMOVS 0(R8), F24
	FMOVS 4(R8), F25
	FMOVS 8(R8), F26
	VEOR V19.B16, V19.B16, V19.B16
	FMOVS $0.5, F20
	VDUP V20.S[0], V20.S4
	VEOR V21.B16, V21.B16, V21.B16
	MOVD $255, R9
	VDUP R9, V22.S4
	MOVD $0x42ff0000, R9
	FMOVS R9, F23
	VDUP R9, V27.S4

row:
	CMP  R3, R2
	BGE  return
	MOVD lo_base+56(FP), R5
	MOVD step_base+80(FP), R6
	MOVD inverse_base+104(FP), R7
	MOVD R0, R10
	VEOR V16.B16, V16.B16, V16.B16
	VEOR V17.B16, V17.B16, V17.B16
	VEOR V18.B16, V18.B16, V18.B16
	ANDS $15, R4, ZR
	BEQ  whole
	BIC  $15, R4, R9
	ADD  R0, R9
	FMOVQ F21, (R9)

whole:
	SUBS $4, R4, R9
	BLT  rest

four:
	LEVELS(FMOVQ, 16, 27)
	FMOVS.P F4, 4(R10)
	SUBS $4, R9
	BGE  four

rest:
	ADDS $4, R9
	BEQ  sums

one:
	LEVELS(FMOVS, 4, 23)
	VST1.P V4.B[0], 1(R10)
	SUBS $1, R9
	BNE  one

sums:
	FADD4S(17, 19, 19)
	SUM(16)
	SUM(17)
	SUM(18)
	FMAXS F16, F24, F24
	FMAXS F17, F25, F25
	FMAXS F18, F26, F26
	ADD  R1, R0
	B    row

return:
	SUM(19)
	FMOVS 12(R8), F0
	FADDS F0, F19, F19
	FMOVS F24, 0(R8)
	FMOVS F25, 4(R8)
	FMOVS F26, 8(R8)
	FMOVS F19, 12(R8)
	RET

#define LARGEST(LOAD, size) \
	LOAD.P size(R1), F0 \
	LOAD.P size(R2), F1 \
	FMUL4S(0, 1, 1)     \
	FABS4S(1, 1)        \
	FMAX4S(1, 16, 16)   \
	FMUL4S(0, 0, 0)     \
	FADD4S(0, 17, 17)

// PACK rounds values, with the unit in V2 and its inverse in V3. The integers
// are in the lowest bytes of V4.
#define PACK(LOAD, size) \
	LOAD.P size(R1), F0          \
	LOAD.P size(R2), F1          \
	FMUL4S(0, 1, 1)              \
	FMUL4S(3, 1, 0)              \
	FCVTNS4S(0, 0)               \
	VUZP1 V0.H8, V0.H8, V4.H8    \
	VUZP1 V4.B16, V4.B16, V4.B16 \
	SCVTF4S(0, 0)                \
	FMUL4S(2, 0, 0)              \
	FSUB4S(0, 1, 1)              \
	FMUL4S(1, 1, 1)              \
	FADD4S(1, 18, 18)

// func Pack(dst *byte, x, step []float32) (unit, err, norm float32)
TEXT ·Pack(SB), NOSPLIT, $0-68
	MOVD dst+0(FP), R0
	MOVD x_base+8(FP), R1
	MOVD step_base+32(FP), R2
	MOVD x_len+16(FP), R3
	VEOR V16.B16, V16.B16, V16.B16
	VEOR V17.B16, V17.B16, V17.B16
	VEOR V18.B16, V18.B16, V18.B16
	SUBS $4, R3, R4
	BLT  rest1

four1:
	LARGEST(FMOVQ, 16)
	SUBS $4, R4
	BGE  four1

rest1:
	ADDS $4, R4
	BEQ  scale

one1:
	LARGEST(FMOVS, 4)
	SUBS $1, R4
	BNE  one1

scale:
	FMAXV4S(16, 16)
	MOVD $0x42fe0000, R4
	FMOVS R4, F0
	FDIVS F0, F16, F2
	FMOVS F2, unit+56(FP)
	FDIVS F16, F0, F3
	VDUP V2.S[0], V2.S4
	VDUP V3.S[0], V3.S4

	// Of the last 16 dimensions those beyond the end are 0.
	ANDS $15, R3, ZR
	BEQ  whole
	LSR  $4, R3, R4
	ADD  R4<<10, R0, R4
	MOVW ZR, (R4)
	MOVW ZR, 256(R4)
	MOVW ZR, 512(R4)
	MOVW ZR, 768(R4)

whole:
	MOVD x_base+8(FP), R1
	MOVD step_base+32(FP), R2
	SUBS $4, R3, R4
	BLT  rest

four:
	PACK(FMOVQ, 16)
	FMOVS F4, (R0)
	ADD  $256, R0
	SUBS $4, R4
	BGE  four

rest:
	ADDS $4, R4
	BEQ  sums

one:
	PACK(FMOVS, 4)
	VST1.P V4.B[0], 1(R0)
	SUBS $1, R4
	BNE  one

sums:
	SUM(18)
	SUM(17)
	FMOVS F18, err+60(FP)
	FMOVS F17, norm+64(FP)
	RET
