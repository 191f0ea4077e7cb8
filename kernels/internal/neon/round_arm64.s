//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"
#include "partial_arm64.h"

// 64 bytes of ones and 64 of zeros: a mask of the first n bytes is at 64 − n.
DATA ones<>+0(SB)/8, $0xffffffffffffffff
DATA ones<>+8(SB)/8, $0xffffffffffffffff
DATA ones<>+16(SB)/8, $0xffffffffffffffff
DATA ones<>+24(SB)/8, $0xffffffffffffffff
DATA ones<>+32(SB)/8, $0xffffffffffffffff
DATA ones<>+40(SB)/8, $0xffffffffffffffff
DATA ones<>+48(SB)/8, $0xffffffffffffffff
DATA ones<>+56(SB)/8, $0xffffffffffffffff
GLOBL ones<>(SB), RODATA|NOPTR, $128

// COUNTS splits n columns into the first 16 (R5) and those beyond (R6).
#define COUNTS \
	MOVD $16, R5         \
	SUBS R5, R4, R6      \
	CSEL LT, R4, R5, R5  \
	CSEL LT, ZR, R6, R6

#define LOAD128(addr, a, b, c, d, e, f, g, h) \
	FLDPQ (addr), (a, b)   \
	FLDPQ 32(addr), (c, d) \
	FLDPQ 64(addr), (e, f) \
	FLDPQ 96(addr), (g, h)

// BYTES4 converts 4 values.
#define BYTES4(v, mul, add) \
	FMUL4S(mul, v, v)  \
	FADD4S(add, v, v)  \
	FCVTZS4S(v, v)     \
	SMAX4S(28, v, v)   \
	SMIN4S(29, v, v)

// BYTES16 converts V16 to V19 to bytes, zeros where mask is.
#define BYTES16(mul, add, mask) \
	BYTES4(16, mul, add)         \
	BYTES4(17, mul+1, add+1)     \
	BYTES4(18, mul+2, add+2)     \
	BYTES4(19, mul+3, add+3)     \
	VUZP1 V17.H8, V16.H8, V16.H8 \
	VUZP1 V19.H8, V18.H8, V18.H8 \
	VUZP1 V18.B16, V16.B16, V16.B16 \
	VAND mask.B16, V16.B16, V16.B16

// func Bytes(dst [][4]uint64, scores []float32, stride, n int, mul, add *[32]float32)
TEXT ·Bytes(SB), NOSPLIT, $0-80
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD scores_base+24(FP), R2
	MOVD stride+48(FP), R3
	LSL  $2, R3
	MOVD n+56(FP), R4
	COUNTS
	MOVD mul+64(FP), R8
	LOAD128(R8, F0, F1, F2, F3, F4, F5, F6, F7)
	MOVD add+72(FP), R8
	LOAD128(R8, F8, F9, F10, F11, F12, F13, F14, F15)
	MOVD $ones<>+64(SB), R8
	SUB  R4, R8
	FLDPQ (R8), (F30, F31)
	VEOR V28.B16, V28.B16, V28.B16
	MOVD $127, R8
	VDUP R8, V29.S4
	CBZ  R1, return

row:
	LOAD16(R2, R5, R8, part0, single0, rest0, four0, two0, one0, done0)
	BYTES16(0, 8, V30)
	FMOVQ F16, (R0)
	ADD  $64, R2, R7
	LOAD16(R7, R6, R8, part1, single1, rest1, four1, two1, one1, done1)
	BYTES16(4, 12, V31)
	FMOVQ F16, 16(R0)
	ADD  R3, R2
	ADD  $32, R0
	SUBS $1, R1
	BNE  row

return:
	RET

// WORDS4 converts 4 values, with the scale in V22 and the bias in V23.
#define WORDS4(v, mul, low) \
	FMUL4S(mul, v, v)   \
	FMUL4S(low, 22, 24) \
	FADD4S(24, v, v)    \
	FADD4S(23, v, v)    \
	FCVTZS4S(v, v)

// WORDS16 converts V16 to V19 to 16-bit lanes, zeros where masks are.
#define WORDS16(mul, low, mask1, mask2) \
	WORDS4(16, mul, low)         \
	WORDS4(17, mul+1, low+1)     \
	WORDS4(18, mul+2, low+2)     \
	WORDS4(19, mul+3, low+3)     \
	VUZP1 V17.H8, V16.H8, V16.H8 \
	VUZP1 V19.H8, V18.H8, V17.H8 \
	VAND mask1.B16, V16.B16, V16.B16 \
	VAND mask2.B16, V17.B16, V17.B16

// func Words(dst [][8]uint64, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)
TEXT ·Words(SB), NOSPLIT, $0-112
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD scores_base+24(FP), R2
	MOVD stride+48(FP), R3
	LSL  $2, R3
	MOVD n+56(FP), R4
	COUNTS
	MOVD mul+64(FP), R8
	LOAD128(R8, F0, F1, F2, F3, F4, F5, F6, F7)
	MOVD low+72(FP), R8
	LOAD128(R8, F8, F9, F10, F11, F12, F13, F14, F15)
	MOVD $ones<>+64(SB), R8
	SUB  R4<<1, R8
	FLDPQ (R8), (F28, F29)
	FLDPQ 32(R8), (F30, F31)
	FMOVS bias+80(FP), F23
	VDUP V23.S[0], V23.S4
	MOVD scales_base+88(FP), R9
	FMOVS $1.0, F22
	VDUP V22.S[0], V22.S4
	CBZ  R1, return

row:
	CBZ  R9, unscaled
	VLD1R.P 4(R9), [V22.S4]

unscaled:
	LOAD16(R2, R5, R8, part0, single0, rest0, four0, two0, one0, done0)
	WORDS16(0, 8, V28, V29)
	FSTPQ (F16, F17), (R0)
	ADD  $64, R2, R7
	LOAD16(R7, R6, R8, part1, single1, rest1, four1, two1, one1, done1)
	WORDS16(4, 12, V30, V31)
	FSTPQ (F16, F17), 32(R0)
	ADD  R3, R2
	ADD  $64, R0
	SUBS $1, R1
	BNE  row

return:
	RET
