//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"
#include "lookup_arm64.h"
#include "partial_arm64.h"

// V8 to V11 hold unit, V12 to V15 mid, V24 to V27 the running maxima, V31 top
// bits. R22 is the number of lanes in use, R23 the bytes of a row of S.

// SCORE computes factor · (S + a · (mid + unit · sum)), each operation rounded,
// for lanes v of the sum, with S in s, a in V29 and the factor in V30, and
// raises best to it.
#define SCORE(v, V, unit, mid, s, best, BEST) \
	VEOR V31.B16, V.B16, V.B16 \
	SCVTF4S(v, v)              \
	FMUL4S(unit, v, v)         \
	FADD4S(mid, v, v)          \
	FMUL4S(29, v, v)           \
	FADD4S(s, v, v)            \
	FMUL4S(30, v, v)           \
	FCMGT4S(best, v, 28)       \
	VBIT V28.B16, V.B16, BEST.B16

// func MaxFine(best [][16]float32, ranges [][2]uint32, tables [][256][8]uint64, scores []float32, codes []byte, codeBytes int, residuals, factors []byte, scales []float32, stride, n int, mid, unit *[16]float32)
TEXT ·MaxFine(SB), NOSPLIT, $0-232
	MOVD mid+216(FP), R20
	FLDPQ (R20), (F12, F13)
	FLDPQ 32(R20), (F14, F15)
	MOVD unit+224(FP), R20
	FLDPQ (R20), (F8, F9)
	FLDPQ 32(R20), (F10, F11)
	MOVD $0x80000000, R20
	VDUP R20, V31.S4
	MOVD best_base+0(FP), R8
	MOVD ranges_base+24(FP), R10
	MOVD ranges_len+32(FP), R11
	ADD  R11<<3, R10, R11
	MOVD tables_base+48(FP), R1
	MOVD tables_len+56(FP), R2
	MOVD scores_base+72(FP), R9
	MOVD codes_base+96(FP), R14
	MOVD codeBytes+120(FP), R15
	MOVD residuals_base+128(FP), R21
	MOVD factors_base+152(FP), R16
	MOVD scales_base+176(FP), R17
	MOVD stride+200(FP), R23
	LSL  $2, R23
	MOVD n+208(FP), R22

document:
	CMP  R11, R10
	BEQ  return
	MOVWU (R10), R12
	MOVWU 4(R10), R13
	CMP  R13, R12
	BGE  next
	FETCH(fetched)
	FLDPQ (R8), (F24, F25)
	FLDPQ 32(R8), (F26, F27)
	MADD R2, R21, R12, R0

token:
	CODE(wide, coded)
	MADD R23, R9, R20, R20
	PRFM (R20), PLDL1KEEP
	LOOKUP(S4, eight, rest, one, summed)
	FMOVS $1.0, F29
	CBZ  R17, scale
	ADD  R19<<2, R17, R20
	FMOVS (R20), F29

scale:
	VDUP V29.S[0], V29.S4
	ADD  R12<<1, R16, R20
	MOVH (R20), R20
	SCVTFWS R20, F30
	VDUP V30.S[0], V30.S4
	MADD R23, R9, R19, R19
	LOAD16(R19, R22, R20, part, single, short, four, two, few, loaded)
	SCORE(0, V0, 8, 12, 16, 24, V24)
	SCORE(1, V1, 9, 13, 17, 25, V25)
	SCORE(2, V2, 10, 14, 18, 26, V26)
	SCORE(3, V3, 11, 15, 19, 27, V27)
	ADD  $1, R12
	CMP  R13, R12
	BLT  token
	FSTPQ (F24, F25), (R8)
	FSTPQ (F26, F27), 32(R8)

next:
	ADD  $64, R8
	ADD  $8, R10
	B    document

return:
	RET
