//go:build !purego

#include "textflag.h"
#include "simd_arm64.h"

// WIDEN converts eight values of V0 at a time to V1 and V2, then one.
#define WIDEN(CONVERT, eight, rest, one, done) \
	MOVD dst_base+0(FP), R0      \
	MOVD dst_len+8(FP), R1       \
	MOVD src_base+24(FP), R2     \
	VEOR V3.B16, V3.B16, V3.B16  \
	SUBS $8, R1                  \
	BLT  rest                    \
eight:                               \
	FMOVQ.P 16(R2), F0           \
	CONVERT                      \
	FSTPQ.P (F1, F2), 32(R0)     \
	SUBS $8, R1                  \
	BGE  eight                   \
rest:                                \
	ADDS $8, R1                  \
	BEQ  done                    \
one:                                 \
	VLD1R (R2), [V0.H8]          \
	ADD  $2, R2                  \
	CONVERT                      \
	FMOVS.P F1, 4(R0)            \
	SUBS $1, R1                  \
	BNE  one                     \
done:                                \
	RET

#define BF16 \
	VZIP1 V0.H8, V3.H8, V1.H8 \
	VZIP2 V0.H8, V3.H8, V2.H8

#define HALF \
	FCVTL4S(0, 1) \
	FCVTL24S(0, 2)

// func WidenBF16(dst []float32, src []byte)
TEXT ·WidenBF16(SB), NOSPLIT, $0-48
	WIDEN(BF16, eight, rest, one, done)

// func WidenF16(dst []float32, src []byte)
TEXT ·WidenF16(SB), NOSPLIT, $0-48
	WIDEN(HALF, eight, rest, one, done)
