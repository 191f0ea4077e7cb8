//go:build !purego

#include "textflag.h"

// Columns are taken eight at a time: the stride of S is a multiple of 8, and
// its columns from n on are 0, as are their entries of mul, add and low.

// func Bytes(dst [][4]uint64, scores []float32, stride, n int, mul, add *[32]float32)
TEXT ·Bytes(SB), NOSPLIT, $0-80
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ scores_base+24(FP), SI
	MOVQ stride+48(FP), R8
	SHLQ $2, R8
	MOVQ mul+64(FP), R9
	MOVQ add+72(FP), R10
	MOVL $127, AX
	VMOVD AX, X4
	VPBROADCASTD X4, Y4
	VPXOR Y5, Y5, Y5
	TESTQ CX, CX
	JEQ  return

row:
	VMOVDQU Y5, (DI)
	MOVQ n+56(FP), DX
	XORL BX, BX // 4 × column

strip:
	VMOVUPS (SI)(BX*1), Y0
	VMULPS (R9)(BX*1), Y0, Y0
	VADDPS (R10)(BX*1), Y0, Y0
	VCVTTPS2DQ Y0, Y0
	VPMAXSD Y5, Y0, Y0
	VPMINSD Y4, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPACKSSDW X1, X0, X0
	VPACKUSWB X0, X0, X0
	MOVQ BX, AX
	SHRQ $2, AX
	VMOVQ X0, (DI)(AX*1)
	ADDQ $32, BX
	SUBQ $8, DX
	JGT  strip
	ADDQ R8, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  row

return:
	VZEROUPPER
	RET

DATA lanes<>+0(SB)/8, $0x0000000100000000
DATA lanes<>+8(SB)/8, $0x0000000300000002
DATA lanes<>+16(SB)/8, $0x0000000500000004
DATA lanes<>+24(SB)/8, $0x0000000700000006
GLOBL lanes<>(SB), RODATA|NOPTR, $32

// func Words(dst [][8]uint64, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)
TEXT ·Words(SB), NOSPLIT, $0-112
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ scores_base+24(FP), SI
	MOVQ stride+48(FP), R8
	SHLQ $2, R8
	MOVQ mul+64(FP), R9
	MOVQ low+72(FP), R10
	MOVQ scales_base+88(FP), R11
	VBROADCASTSS bias+80(FP), Y4
	VPXOR Y5, Y5, Y5
	MOVL $0x3f800000, AX
	VMOVD AX, X6
	VPBROADCASTD X6, Y6
	VMOVDQU lanes<>+0(SB), Y8
	TESTQ CX, CX
	JEQ  return

row:
	VMOVDQU Y5, (DI)
	VMOVDQU Y5, 32(DI)
	TESTQ R11, R11
	JEQ  unscaled
	VBROADCASTSS (R11), Y6
	ADDQ $4, R11

unscaled:
	MOVQ n+56(FP), DX
	XORL BX, BX // 4 × column

strip:
	VMOVUPS (SI)(BX*1), Y0
	VMULPS (R9)(BX*1), Y0, Y0
	VMULPS (R10)(BX*1), Y6, Y1
	VADDPS Y1, Y0, Y0
	VADDPS Y4, Y0, Y0
	VCVTTPS2DQ Y0, Y0
	VMOVD DX, X1
	VPBROADCASTD X1, Y1
	VPCMPGTD Y8, Y1, Y1
	VPAND Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPACKUSDW X1, X0, X0
	MOVQ BX, AX
	SHRQ $1, AX
	VMOVDQU X0, (DI)(AX*1)
	ADDQ $32, BX
	SUBQ $8, DX
	JGT  strip
	ADDQ R8, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  row

return:
	VZEROUPPER
	RET
