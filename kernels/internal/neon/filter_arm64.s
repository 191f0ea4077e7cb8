//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"

// Tiles of 4 centroids and 16 rows:
//
//	R0  next hit                   R1  levels of the tile
//	R2  bytes of a centroid        R3  centroids left
//	R4  number of the first one    R5  dimensions left
//	R6 to R9 levels of centroids   R10 rows
//	R11, R12, R13 best, margin and sums of the 16 rows
//	R14 which 16 rows              V0 to V15 products

// The instruction multiplies signed bytes: levels are taken less 128, and the
// products begin with 128 times the sum of the row.

// bits has bit i in lane i of 16.
DATA bits<>+0(SB)/8, $0x0000000200000001
DATA bits<>+8(SB)/8, $0x0000000800000004
DATA bits<>+16(SB)/8, $0x0000002000000010
DATA bits<>+24(SB)/8, $0x0000008000000040
DATA bits<>+32(SB)/8, $0x0000020000000100
DATA bits<>+40(SB)/8, $0x0000080000000400
DATA bits<>+48(SB)/8, $0x0000200000001000
DATA bits<>+56(SB)/8, $0x0000800000004000
GLOBL bits<>(SB), RODATA|NOPTR, $64

// CENTROID multiplies lane i of the levels m with 16 rows.
#define CENTROID(i, m, a, b, c, d) \
	SDOTLANE4S(i, m, 20, a) \
	SDOTLANE4S(i, m, 21, b) \
	SDOTLANE4S(i, m, 22, c) \
	SDOTLANE4S(i, m, 23, d)

// DIMS multiplies the i-th four of 16 dimensions.
#define DIMS(i) \
	FLDPQ (i*256)(R10), (F20, F21)    \
	FLDPQ (i*256+32)(R10), (F22, F23) \
	CENTROID(i, 16, 0, 1, 2, 3)       \
	CENTROID(i, 17, 4, 5, 6, 7)       \
	CENTROID(i, 18, 8, 9, 10, 11)     \
	CENTROID(i, 19, 12, 13, 14, 15)

#define THRESHOLDS \
	FLDPQ (R11), (F24, F25)      \
	FLDPQ 32(R11), (F26, F27)    \
	FLDPQ (R12), (F20, F21)      \
	FLDPQ 32(R12), (F22, F23)    \
	VSUB V20.S4, V24.S4, V24.S4  \
	VSUB V21.S4, V25.S4, V25.S4  \
	VSUB V22.S4, V26.S4, V26.S4  \
	VSUB V23.S4, V27.S4, V27.S4

// RAISEBEST raises four lanes of best to the products v.
#define RAISEBEST(v, offset) \
	FMOVQ offset(R11), F28 \
	SMAX4S(v, 28, 28)      \
	FMOVQ F28, offset(R11)

// RECORD notes the products of centroid i if one is a hit, and raises best and
// thresholds.
#define RECORD(i, a, b, c, d, A, B, C, D, skip) \
	CMGE4S(24, a, 20)             \
	CMGE4S(25, b, 21)             \
	CMGE4S(26, c, 22)             \
	CMGE4S(27, d, 23)             \
	VAND V16.B16, V20.B16, V20.B16 \
	VAND V17.B16, V21.B16, V21.B16 \
	VAND V18.B16, V22.B16, V22.B16 \
	VAND V19.B16, V23.B16, V23.B16 \
	VORR V21.B16, V20.B16, V20.B16 \
	VORR V23.B16, V22.B16, V22.B16 \
	VORR V22.B16, V20.B16, V20.B16 \
	VADDV V20.S4, V20             \
	FMOVS F20, R15                \
	CBZW R15, skip                \
	FSTPQ (A, B), (R0)            \
	FSTPQ (C, D), 32(R0)          \
	ADD  $i, R4, R16              \
	MOVW R16, 64(R0)              \
	ORR  R14<<16, R15, R15        \
	MOVW R15, 68(R0)              \
	ADD  $72, R0                  \
	RAISEBEST(a, 0)               \
	RAISEBEST(b, 16)              \
	RAISEBEST(c, 32)              \
	RAISEBEST(d, 48)              \
	THRESHOLDS                    \
skip:

// func Filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) (size int)
TEXT ·Filter(SB), NOSPLIT, $256-104
	MOVD hits_base+0(FP), R0
	MOVD levels_base+24(FP), R1
	MOVD stride+48(FP), R2
	MOVD first+64(FP), R4
	MOVD k+88(FP), R3
	MOVD $0x80, R5
	VDUP R5, V31.B16

	// 128 times the sums of the rows.
	MOVD $64, R5
	VDUP R5, V30.B16
	MOVD $sums-256(SP), R13
	MOVD $0, R14

group:
	MOVD x+56(FP), R10
	ADD  R14<<6, R10
	MOVD R2, R5
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16

groupdims:
	FLDPQ (R10), (F20, F21)
	FLDPQ 32(R10), (F22, F23)
	SDOT4S(30, 20, 0)
	SDOT4S(30, 21, 1)
	SDOT4S(30, 22, 2)
	SDOT4S(30, 23, 3)
	ADD  $256, R10
	SUBS $4, R5
	BNE  groupdims
	VSHL $1, V0.S4, V0.S4
	VSHL $1, V1.S4, V1.S4
	VSHL $1, V2.S4, V2.S4
	VSHL $1, V3.S4, V3.S4
	FSTPQ.P (F0, F1), 32(R13)
	FSTPQ.P (F2, F3), 32(R13)
	ADD  $1, R14
	CMP  $4, R14
	BLT  group

tile:
	MOVD best+72(FP), R11
	MOVD margin+80(FP), R12
	MOVD $sums-256(SP), R13
	MOVD $0, R14

rows:
	MOVD R1, R6
	ADD  R2, R1, R7
	ADD  R2<<1, R1, R8
	ADD  R2<<1, R7, R9
	MOVD x+56(FP), R10
	ADD  R14<<6, R10
	MOVD R2, R5
	FLDPQ (R13), (F0, F1)
	FLDPQ 32(R13), (F2, F3)
	FLDPQ (R13), (F4, F5)
	FLDPQ 32(R13), (F6, F7)
	FLDPQ (R13), (F8, F9)
	FLDPQ 32(R13), (F10, F11)
	FLDPQ (R13), (F12, F13)
	FLDPQ 32(R13), (F14, F15)

dims:
	FMOVQ.P 16(R6), F16
	FMOVQ.P 16(R7), F17
	FMOVQ.P 16(R8), F18
	FMOVQ.P 16(R9), F19
	VEOR V31.B16, V16.B16, V16.B16
	VEOR V31.B16, V17.B16, V17.B16
	VEOR V31.B16, V18.B16, V18.B16
	VEOR V31.B16, V19.B16, V19.B16
	DIMS(0)
	DIMS(1)
	DIMS(2)
	DIMS(3)
	ADD  $1024, R10
	SUBS $16, R5
	BNE  dims

	// Does the largest product of a row reach its threshold?
	THRESHOLDS
	SMAX4S(0, 4, 16)
	SMAX4S(1, 5, 17)
	SMAX4S(2, 6, 18)
	SMAX4S(3, 7, 19)
	SMAX4S(8, 12, 20)
	SMAX4S(9, 13, 21)
	SMAX4S(10, 14, 22)
	SMAX4S(11, 15, 23)
	SMAX4S(16, 20, 16)
	SMAX4S(17, 21, 17)
	SMAX4S(18, 22, 18)
	SMAX4S(19, 23, 19)
	CMGE4S(24, 16, 16)
	CMGE4S(25, 17, 17)
	CMGE4S(26, 18, 18)
	CMGE4S(27, 19, 19)
	VORR V17.B16, V16.B16, V16.B16
	VORR V19.B16, V18.B16, V18.B16
	VORR V18.B16, V16.B16, V16.B16
	UMAXV4S(16, 16)
	FMOVS F16, R15
	CBZW R15, next
	MOVD $bits<>(SB), R15
	FLDPQ (R15), (F16, F17)
	FLDPQ 32(R15), (F18, F19)
	RECORD(0, 0, 1, 2, 3, F0, F1, F2, F3, skip0)
	RECORD(1, 4, 5, 6, 7, F4, F5, F6, F7, skip1)
	RECORD(2, 8, 9, 10, 11, F8, F9, F10, F11, skip2)
	RECORD(3, 12, 13, 14, 15, F12, F13, F14, F15, skip3)

next:
	ADD  $64, R11
	ADD  $64, R12
	ADD  $64, R13
	ADD  $1, R14
	CMP  $4, R14
	BLT  rows

	SUBS $4, R3
	BEQ  return
	// The next 4 centroids, or the last 4, some of them again.
	MOVD $4, R5
	CMP  R5, R3
	CSEL LT, R3, R5, R5
	ADD  R5, R4
	MADD R2, R1, R5, R1
	CMP  $4, R3
	BGE  tile
	MOVD $4, R3
	B    tile

return:
	MOVD hits_base+0(FP), R1
	SUB  R1, R0
	MOVD R0, size+96(FP)
	RET
