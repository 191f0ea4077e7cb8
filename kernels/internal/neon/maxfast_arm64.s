//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"
#include "lookup_arm64.h"

// V24 to V31 hold the running maxima in the order of the lanes, V15 top bits.

// SCALE multiplies lanes by the scale in units of 2⁻¹⁶ (V4, and V5 for a scale
// of 1, which has 17 bits) and rounds down: the upper halves of the products.
#define SCALE(n, v) \
	UMULL4S(4, n, 16)          \
	UMULL24S(4, n, 17)         \
	VUZP2 V17.H8, V16.H8, V16.H8 \
	VAND  V5.B16, v.B16, v.B16 \
	VADD  V16.H8, v.H8, v.H8

// RAISE multiplies eight lanes by the factor (V6) and raises two registers of
// maxima to the products.
#define RAISE(n, a, b) \
	SMULL4S(6, n, 16)  \
	SMULL24S(6, n, 17) \
	SMAX4S(16, a, a)   \
	SMAX4S(17, b, b)

// func MaxFast(best [][32]int32, ranges [][2]uint32, tables [][256][8]uint64, scores [][8]uint64, codes []byte, codeBytes int, residuals, factors []byte, scales []uint32)
TEXT ·MaxFast(SB), NOSPLIT, $0-200
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
	MOVD $0x8000, R20
	VDUP R20, V15.H8

document:
	CMP  R11, R10
	BEQ  return
	MOVWU (R10), R12
	MOVWU 4(R10), R13
	CMP  R13, R12
	BGE  next
	FETCH(fetched)
	// Even lanes come first in memory, then odd ones.
	FLDPQ (R8), (F16, F17)
	FLDPQ 32(R8), (F18, F19)
	FLDPQ 64(R8), (F20, F21)
	FLDPQ 96(R8), (F22, F23)
	VZIP1 V20.S4, V16.S4, V24.S4
	VZIP2 V20.S4, V16.S4, V25.S4
	VZIP1 V21.S4, V17.S4, V26.S4
	VZIP2 V21.S4, V17.S4, V27.S4
	VZIP1 V22.S4, V18.S4, V28.S4
	VZIP2 V22.S4, V18.S4, V29.S4
	VZIP1 V23.S4, V19.S4, V30.S4
	VZIP2 V23.S4, V19.S4, V31.S4
	MADD R2, R21, R12, R0

token:
	CODE(wide, coded)
	ADD  R20<<6, R9, R20
	PRFM (R20), PLDL1KEEP
	LOOKUP(H8, eight, rest, one, summed)
	CBZ  R17, scaled
	ADD  R19<<2, R17, R20
	MOVWU (R20), R20
	VDUP R20, V4.H8
	LSR  $16, R20
	NEG  R20, R20
	VDUP R20, V5.H8
	SCALE(0, V0)
	SCALE(1, V1)
	SCALE(2, V2)
	SCALE(3, V3)

scaled:
	ADD  R19<<6, R9, R19
	FLDPQ (R19), (F16, F17)
	FLDPQ 32(R19), (F18, F19)
	ADD  R12<<1, R16, R20
	VLD1R (R20), [V6.H8]
	VADD V16.H8, V0.H8, V0.H8
	VADD V17.H8, V1.H8, V1.H8
	VADD V18.H8, V2.H8, V2.H8
	VADD V19.H8, V3.H8, V3.H8
	// Flipping the top bit subtracts 32768.
	VEOR V15.B16, V0.B16, V0.B16
	VEOR V15.B16, V1.B16, V1.B16
	VEOR V15.B16, V2.B16, V2.B16
	VEOR V15.B16, V3.B16, V3.B16
	RAISE(0, 24, 25)
	RAISE(1, 26, 27)
	RAISE(2, 28, 29)
	RAISE(3, 30, 31)
	ADD  $1, R12
	CMP  R13, R12
	BLT  token

	VUZP1 V25.S4, V24.S4, V16.S4
	VUZP2 V25.S4, V24.S4, V20.S4
	VUZP1 V27.S4, V26.S4, V17.S4
	VUZP2 V27.S4, V26.S4, V21.S4
	VUZP1 V29.S4, V28.S4, V18.S4
	VUZP2 V29.S4, V28.S4, V22.S4
	VUZP1 V31.S4, V30.S4, V19.S4
	VUZP2 V31.S4, V30.S4, V23.S4
	FSTPQ (F16, F17), (R8)
	FSTPQ (F18, F19), 32(R8)
	FSTPQ (F20, F21), 64(R8)
	FSTPQ (F22, F23), 96(R8)

next:
	ADD  $128, R8
	ADD  $8, R10
	B    document

return:
	RET
