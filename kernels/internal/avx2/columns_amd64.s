//go:build !purego

#include "textflag.h"

DATA lanes<>+0(SB)/8, $0x0000000100000000
DATA lanes<>+8(SB)/8, $0x0000000300000002
DATA lanes<>+16(SB)/8, $0x0000000500000004
DATA lanes<>+24(SB)/8, $0x0000000700000006
GLOBL lanes<>(SB), RODATA|NOPTR, $32

// STRIP sets Y15 to the lanes of a strip of 8 dimensions that are in use, with
// R10 dimensions left, perhaps none.
#define STRIP \
	VMOVD R10, X15           \
	VPBROADCASTD X15, Y15    \
	VPCMPGTD lanes<>+0(SB), Y15, Y15

// SUM leaves the sum of the lanes of y in its lowest one.
#define SUM(y, x) \
	VEXTRACTF128 $1, y, X14 \
	VADDPS X14, x, x        \
	VHADDPS x, x, x         \
	VHADDPS x, x, x

// BROADCAST fills y with a float of the given bits.
#define BROADCAST(bits, x, y) \
	MOVL bits, AX      \
	VMOVD AX, x        \
	VPBROADCASTD x, y

// func Range(lo, hi, rows []float32)
TEXT ·Range(SB), NOSPLIT, $0-72
	MOVQ rows_base+48(FP), SI
	MOVQ rows_len+56(FP), DX
	LEAQ (SI)(DX*4), DX

row:
	CMPQ SI, DX
	JGE  return
	MOVQ lo_len+8(FP), R10
	MOVQ lo_base+0(FP), DI
	MOVQ hi_base+24(FP), BX

strip:
	STRIP
	VMASKMOVPS (SI), Y15, Y0
	VMASKMOVPS (DI), Y15, Y1
	VMASKMOVPS (BX), Y15, Y2
	VMINPS Y1, Y0, Y1
	VMAXPS Y2, Y0, Y2
	VMASKMOVPS Y1, Y15, (DI)
	VMASKMOVPS Y2, Y15, (BX)
	ADDQ $32, DI
	ADDQ $32, BX
	ADDQ $32, SI
	SUBQ $8, R10
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
	BROADCAST($0x3f000000, X10, Y10) // ½
	BROADCAST($127, X11, Y11)
	BROADCAST($0x427e0000, X12, Y12) // 63.5
	VPXOR Y13, Y13, Y13

row:
	CMPQ SI, DX
	JGE  return
	MOVQ lo_len+64(FP), R10
	MOVQ lo_base+56(FP), R8
	MOVQ step_base+80(FP), R9
	MOVQ inverse_base+104(FP), R11
	MOVQ stride+24(FP), R12
	MOVQ SI, CX
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8

strip:
	STRIP
	VMASKMOVPS (CX), Y15, Y0
	VMASKMOVPS (R8), Y15, Y1
	VMASKMOVPS (R9), Y15, Y2
	VMASKMOVPS (R11), Y15, Y3
	VSUBPS Y1, Y0, Y1
	VMULPS Y3, Y1, Y3
	VADDPS Y10, Y3, Y3
	VCVTTPS2DQ Y3, Y3
	VPMAXSD Y13, Y3, Y3
	VPMINSD Y11, Y3, Y3
	VPAND Y15, Y3, Y3
	VEXTRACTI128 $1, Y3, X4
	VPACKSSDW X4, X3, X4
	VPACKUSWB X4, X4, X4
	VMOVQ X4, (DI)
	VCVTDQ2PS Y3, Y3
	VMULPS Y3, Y2, Y2
	VSUBPS Y2, Y1, Y1
	VSUBPS Y12, Y3, Y3
	VPAND Y15, Y3, Y3
	VMULPS Y1, Y1, Y1
	VMULPS Y0, Y0, Y0
	VMULPS Y3, Y3, Y3
	VADDPS Y1, Y6, Y6
	VADDPS Y0, Y7, Y7
	VADDPS Y3, Y8, Y8
	ADDQ $32, CX
	ADDQ $32, R8
	ADDQ $32, R9
	ADDQ $32, R11
	ADDQ $8, DI
	SUBQ $8, R10
	SUBQ $8, R12
	JGT  strip
	MOVQ lo_len+64(FP), R10
	LEAQ (SI)(R10*4), SI
	MOVQ most+128(FP), AX
	SUM(Y6, X6)
	VMAXSS 0(AX), X6, X6
	VMOVSS X6, 0(AX)
	SUM(Y7, X7)
	VADDSS 12(AX), X7, X6
	VMOVSS X6, 12(AX)
	VMAXSS 4(AX), X7, X7
	VMOVSS X7, 4(AX)
	SUM(Y8, X8)
	VMAXSS 8(AX), X8, X8
	VMOVSS X8, 8(AX)
	JMP  row

return:
	VZEROUPPER
	RET

// func Pack(dst *byte, x, step []float32) (unit, err, norm float32)
TEXT ·Pack(SB), NOSPLIT, $0-68
	MOVQ dst+0(FP), DI
	MOVQ x_base+8(FP), SI
	MOVQ step_base+32(FP), R9
	BROADCAST($0x7fffffff, X10, Y10)
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	MOVQ x_len+16(FP), R10

largest:
	STRIP
	VMASKMOVPS (SI), Y15, Y0
	VMASKMOVPS (R9), Y15, Y1
	VMULPS Y0, Y1, Y1
	VPAND Y10, Y1, Y1
	VMAXPS Y1, Y6, Y6
	VMULPS Y0, Y0, Y0
	VADDPS Y0, Y7, Y7
	ADDQ $32, SI
	ADDQ $32, R9
	SUBQ $8, R10
	JGT  largest

	VEXTRACTF128 $1, Y6, X0
	VMAXPS X6, X0, X0
	VPERMILPS $0x4e, X0, X1
	VMAXPS X1, X0, X0
	VPERMILPS $0xb1, X0, X1
	VMAXPS X1, X0, X0
	MOVL $0x42fe0000, AX // 127
	VMOVD AX, X4
	VDIVSS X4, X0, X2
	VMOVSS X2, unit+56(FP)
	VDIVSS X0, X4, X3
	VBROADCASTSS X2, Y2
	VBROADCASTSS X3, Y3

	MOVQ x_base+8(FP), SI
	MOVQ step_base+32(FP), R9
	MOVQ x_len+16(FP), R10
	LEAQ 15(R10), R12
	ANDQ $~15, R12

strip:
	STRIP
	VMASKMOVPS (SI), Y15, Y0
	VMASKMOVPS (R9), Y15, Y1
	VMULPS Y0, Y1, Y1
	VMULPS Y3, Y1, Y0
	VCVTPS2DQ Y0, Y0
	VPAND Y15, Y0, Y0
	VEXTRACTI128 $1, Y0, X4
	VPACKSSDW X4, X0, X4
	VPACKSSWB X4, X4, X4
	VMOVD X4, (DI)
	VPEXTRD $1, X4, 256(DI)
	VCVTDQ2PS Y0, Y0
	VMULPS Y2, Y0, Y0
	VSUBPS Y0, Y1, Y1
	VMULPS Y1, Y1, Y1
	VADDPS Y1, Y8, Y8
	ADDQ $32, SI
	ADDQ $32, R9
	ADDQ $512, DI
	SUBQ $8, R10
	SUBQ $8, R12
	JGT  strip
	SUM(Y8, X8)
	VMOVSS X8, err+60(FP)
	SUM(Y7, X7)
	VMOVSS X7, norm+64(FP)
	VZEROUPPER
	RET
