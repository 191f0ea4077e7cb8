//go:build !purego

#include "textflag.h"

// TAIL sets K1 to the lanes of the last, possibly partial, strip of 16
// dimensions of CX.
#define TAIL \
	DECQ CX           \
	ANDL $15, CX      \
	MOVL $2, AX       \
	SHLL CX, AX       \
	DECL AX           \
	KMOVW AX, K1      \
	MOVL $0xffff, AX  \
	KMOVW AX, K3

// STRIP sets K2 to the mask for R10 ≥ 1 dimensions left: all, or the tail.
#define STRIP \
	KMOVW K3, K2     \
	CMPQ  R10, $16   \
	JGT   2(PC)      \
	KMOVW K1, K2

// SUM leaves the sum of the lanes of z in its lowest one.
#define SUM(z, y, x) \
	VEXTRACTF64X4 $1, z, Y15 \
	VADDPS Y15, y, y         \
	VEXTRACTF128 $1, y, X15  \
	VADDPS X15, x, x         \
	VHADDPS x, x, x          \
	VHADDPS x, x, x

// func Range(lo, hi, rows []float32)
TEXT ·Range(SB), NOSPLIT, $0-72
	MOVQ lo_base+0(FP), R8
	MOVQ hi_base+24(FP), R9
	MOVQ rows_base+48(FP), SI
	MOVQ rows_len+56(FP), DX
	LEAQ (SI)(DX*4), DX
	MOVQ lo_len+8(FP), CX
	TAIL

row:
	CMPQ SI, DX
	JGE  return
	MOVQ lo_len+8(FP), R10
	MOVQ R8, DI
	MOVQ R9, BX

strip:
	STRIP
	VMOVUPS.Z (SI), K2, Z0
	VMOVUPS.Z (DI), K2, Z1
	VMOVUPS.Z (BX), K2, Z2
	VMINPS Z1, Z0, Z1
	VMAXPS Z2, Z0, Z2
	VMOVUPS Z1, K2, (DI)
	VMOVUPS Z2, K2, (BX)
	ADDQ $64, DI
	ADDQ $64, BX
	ADDQ $64, SI
	SUBQ $16, R10
	JGT  strip
	LEAQ (SI)(R10*4), SI
	JMP  row

return:
	VZEROUPPER
	RET

// func Levels(dst []byte, stride int, rows, lo, step, inverse []float32, most *[4]float32)
TEXT ·Levels(SB), NOSPLIT, $0-136
	MOVQ dst_base+0(FP), DI
	MOVQ rows_base+32(FP), SI
	MOVQ rows_len+40(FP), DX
	LEAQ (SI)(DX*4), DX
	MOVQ most+128(FP), AX
	VMOVSS 0(AX), X10
	VMOVSS 4(AX), X11
	VMOVSS 8(AX), X12
	VPXORD Z19, Z19, Z19
	MOVL $0x3f000000, AX
	VPBROADCASTD AX, Z20
	MOVL $255, AX
	VPBROADCASTD AX, Z21
	VPXORD Z22, Z22, Z22
	MOVL $0x42ff0000, AX
	VPBROADCASTD AX, Z23
	MOVQ lo_len+64(FP), CX
	TAIL

row:
	CMPQ SI, DX
	JGE  return
	MOVQ lo_len+64(FP), R10
	MOVQ lo_base+56(FP), R8
	MOVQ step_base+80(FP), R9
	MOVQ inverse_base+104(FP), R11
	MOVQ DI, BX
	VPXORD Z16, Z16, Z16
	VPXORD Z17, Z17, Z17
	VPXORD Z18, Z18, Z18

strip:
	STRIP
	VMOVUPS.Z (SI), K2, Z0
	VMOVUPS.Z (R8), K2, Z1
	VMOVUPS.Z (R9), K2, Z2
	VMOVUPS.Z (R11), K2, Z3
	VSUBPS Z1, Z0, Z1
	VMULPS Z3, Z1, Z3
	VADDPS Z20, Z3, Z3
	VCVTTPS2DQ Z3, Z3
	VPMAXSD Z22, Z3, Z3
	VPMINSD.Z Z21, Z3, K2, Z3
	VPMOVDB Z3, (BX)
	VCVTDQ2PS Z3, Z3
	VMULPS Z3, Z2, Z2
	VSUBPS Z2, Z1, Z1
	VSUBPS.Z Z23, Z3, K2, Z3
	VMULPS Z1, Z1, Z1
	VMULPS Z0, Z0, Z0
	VMULPS Z3, Z3, Z3
	VADDPS Z1, Z16, Z16
	VADDPS Z0, Z17, Z17
	VADDPS Z3, Z18, Z18
	ADDQ $64, SI
	ADDQ $64, R8
	ADDQ $64, R9
	ADDQ $64, R11
	ADDQ $16, BX
	SUBQ $16, R10
	JGT  strip
	LEAQ (SI)(R10*4), SI
	VMOVAPS Z16, Z0
	SUM(Z0, Y0, X0)
	VMAXSS X0, X10, X10
	VADDPS Z17, Z19, Z19
	VMOVAPS Z17, Z0
	SUM(Z0, Y0, X0)
	VMAXSS X0, X11, X11
	VMOVAPS Z18, Z0
	SUM(Z0, Y0, X0)
	VMAXSS X0, X12, X12
	ADDQ stride+24(FP), DI
	JMP  row

return:
	MOVQ most+128(FP), AX
	VMOVSS X10, 0(AX)
	VMOVSS X11, 4(AX)
	VMOVSS X12, 8(AX)
	VMOVAPS Z19, Z0
	SUM(Z0, Y0, X0)
	VADDSS 12(AX), X0, X0
	VMOVSS X0, 12(AX)
	VZEROUPPER
	RET

// func Pack(dst *byte, x, step []float32) (unit, err, norm float32)
TEXT ·Pack(SB), NOSPLIT, $0-68
	MOVQ dst+0(FP), DI
	MOVQ x_base+8(FP), SI
	MOVQ step_base+32(FP), R9
	MOVQ x_len+16(FP), CX
	TAIL
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z20
	VPXORD Z16, Z16, Z16
	VPXORD Z17, Z17, Z17
	VPXORD Z18, Z18, Z18
	MOVQ x_len+16(FP), R10

largest:
	STRIP
	VMOVUPS.Z (SI), K2, Z0
	VMOVUPS.Z (R9), K2, Z1
	VMULPS Z0, Z1, Z1
	VPANDD Z20, Z1, Z1
	VMAXPS Z1, Z16, Z16
	VMULPS Z0, Z0, Z0
	VADDPS Z0, Z17, Z17
	ADDQ $64, SI
	ADDQ $64, R9
	SUBQ $16, R10
	JGT  largest

	VEXTRACTF64X4 $1, Z16, Y0
	VMAXPS Y16, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VPERMILPS $0x4e, X0, X1
	VMAXPS X1, X0, X0
	VPERMILPS $0xb1, X0, X1
	VMAXPS X1, X0, X0
	MOVL $0x42fe0000, AX
	VMOVD AX, X2
	VDIVSS X2, X0, X1
	VMOVSS X1, unit+56(FP)
	VDIVSS X0, X2, X3
	VBROADCASTSS X1, Z2
	VBROADCASTSS X3, Z3

	MOVQ x_base+8(FP), SI
	MOVQ step_base+32(FP), R9
	MOVQ x_len+16(FP), R10

strip:
	STRIP
	VMOVUPS.Z (SI), K2, Z0
	VMOVUPS.Z (R9), K2, Z1
	VMULPS Z0, Z1, Z1
	VMULPS Z3, Z1, Z0
	VCVTPS2DQ.Z Z0, K2, Z0
	VPMOVDB Z0, X4
	VCVTDQ2PS Z0, Z0
	VMULPS Z2, Z0, Z0
	VSUBPS Z0, Z1, Z1
	VMULPS Z1, Z1, Z1
	VADDPS Z1, Z18, Z18
	VMOVD X4, (DI)
	VPEXTRD $1, X4, 256(DI)
	VPEXTRD $2, X4, 512(DI)
	VPEXTRD $3, X4, 768(DI)
	ADDQ $64, SI
	ADDQ $64, R9
	ADDQ $1024, DI
	SUBQ $16, R10
	JGT  strip
	VMOVAPS Z18, Z0
	SUM(Z0, Y0, X0)
	VMOVSS X0, err+60(FP)
	VMOVAPS Z17, Z0
	SUM(Z0, Y0, X0)
	VMOVSS X0, norm+64(FP)
	VZEROUPPER
	RET
