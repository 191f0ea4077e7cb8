//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"

//	R0  products                  R1  rows left
//	R2  levels of the pair        R3  bytes of a row
//	R4  panel                     R5  groups of four dimensions left
//	R6, R7 levels of the two rows
//	V0 to V7 and V8 to V15 sums of two rows with 32 columns
//	V16 to V23 panel              V24, V25 levels

// The instruction multiplies signed bytes: levels are taken less 128, and sums begin
// with 128 times that of the panel.

#define PANEL \
	FLDPQ (R4), (F16, F17)    \
	FLDPQ 32(R4), (F18, F19)  \
	FLDPQ 64(R4), (F20, F21)  \
	FLDPQ 96(R4), (F22, F23)  \
	ADD   $128, R4

// ALL multiplies lane 0 of the levels m with 32 columns.
#define ALL(m, a, b, c, d, e, f, g, h) \
	SDOTLANE4S(0, m, 16, a) \
	SDOTLANE4S(0, m, 17, b) \
	SDOTLANE4S(0, m, 18, c) \
	SDOTLANE4S(0, m, 19, d) \
	SDOTLANE4S(0, m, 20, e) \
	SDOTLANE4S(0, m, 21, f) \
	SDOTLANE4S(0, m, 22, g) \
	SDOTLANE4S(0, m, 23, h)

#define STORE(a, b, A, B) \
	SCVTF4S(a, a)         \
	SCVTF4S(b, b)         \
	FSTPQ.P (A, B), 32(R0)

// func Screen(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32)
TEXT ·Screen(SB), NOSPLIT, $128-88
	MOVD dst_base+0(FP), R0
	MOVD dst_len+8(FP), R1
	MOVD levels_base+24(FP), R2
	MOVD stride+48(FP), R3
	MOVD start+80(FP), R8
	MOVD $sums-128(SP), R9
	MOVD $64, R5
	VDUP R5, V24.B16
	MOVD $0x80, R5
	VDUP R5, V31.B16

	FLDPQ (R8), (F0, F1)
	FLDPQ 32(R8), (F2, F3)
	FLDPQ 64(R8), (F4, F5)
	FLDPQ 96(R8), (F6, F7)
	MOVD  panel_base+56(FP), R4
	LSR   $2, R3, R5

begin:
	PANEL
	ALL(24, 0, 1, 2, 3, 4, 5, 6, 7)
	ALL(24, 0, 1, 2, 3, 4, 5, 6, 7)
	SUBS $1, R5
	BNE  begin
	FSTPQ (F0, F1), (R9)
	FSTPQ (F2, F3), 32(R9)
	FSTPQ (F4, F5), 64(R9)
	FSTPQ (F6, F7), 96(R9)

rows:
	CBZ  R1, return
	MOVD R2, R6
	ADD  R3, R2, R7
	CMP  $1, R1
	CSEL EQ, R2, R7, R7
	FLDPQ (R9), (F0, F1)
	FLDPQ 32(R9), (F2, F3)
	FLDPQ 64(R9), (F4, F5)
	FLDPQ 96(R9), (F6, F7)
	FLDPQ (R9), (F8, F9)
	FLDPQ 32(R9), (F10, F11)
	FLDPQ 64(R9), (F12, F13)
	FLDPQ 96(R9), (F14, F15)
	MOVD  panel_base+56(FP), R4
	LSR   $2, R3, R5

dims:
	FMOVS.P 4(R6), F24
	FMOVS.P 4(R7), F25
	PANEL
	VEOR V31.B16, V24.B16, V24.B16
	VEOR V31.B16, V25.B16, V25.B16
	ALL(24, 0, 1, 2, 3, 4, 5, 6, 7)
	ALL(25, 8, 9, 10, 11, 12, 13, 14, 15)
	SUBS $1, R5
	BNE  dims

	STORE(0, 1, F0, F1)
	STORE(2, 3, F2, F3)
	STORE(4, 5, F4, F5)
	STORE(6, 7, F6, F7)
	SUBS $1, R1
	BEQ  return
	STORE(8, 9, F8, F9)
	STORE(10, 11, F10, F11)
	STORE(12, 13, F12, F13)
	STORE(14, 15, F14, F15)
	SUB  $1, R1
	ADD  R3<<1, R2
	B    rows

return:
	RET
