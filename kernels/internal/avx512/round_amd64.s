//go:build !purego

#include "textflag.h"

#define MASKS(n) \
	MOVQ n, CX           \
	MOVL $1, AX          \
	SHLQ CX, AX          \
	DECQ AX              \
	KMOVW AX, K1         \
	SHRQ $16, AX         \
	KMOVW AX, K2

// func Bytes(dst [][4]uint64, scores []float32, stride, n int, mul, add *[32]float32)
TEXT ·Bytes(SB), NOSPLIT, $0-80
	MASKS(n+56(FP))
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ scores_base+24(FP), SI
	MOVQ stride+48(FP), R8
	SHLQ $2, R8
	MOVQ mul+64(FP), AX
	VMOVUPS (AX), Z16
	VMOVUPS 64(AX), Z17
	MOVQ add+72(FP), AX
	VMOVUPS (AX), Z18
	VMOVUPS 64(AX), Z19
	MOVL $127, AX
	VPBROADCASTD AX, Z20
	VPXORD Z21, Z21, Z21
	TESTQ CX, CX
	JEQ  return

row:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z 64(SI), K2, Z1
	VMULPS Z16, Z0, Z0
	VMULPS Z17, Z1, Z1
	VADDPS Z18, Z0, Z0
	VADDPS Z19, Z1, Z1
	VCVTTPS2DQ.Z Z0, K1, Z0
	VCVTTPS2DQ.Z Z1, K2, Z1
	VPMAXSD Z21, Z0, Z0
	VPMAXSD Z21, Z1, Z1
	VPMINSD Z20, Z0, Z0
	VPMINSD Z20, Z1, Z1
	VPMOVDB Z0, (DI)
	VPMOVDB Z1, 16(DI)
	ADDQ R8, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  row

return:
	VZEROUPPER
	RET

// func Words(dst [][8]uint64, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)
TEXT ·Words(SB), NOSPLIT, $0-112
	MASKS(n+56(FP))
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ scores_base+24(FP), SI
	MOVQ stride+48(FP), R8
	SHLQ $2, R8
	MOVQ mul+64(FP), AX
	VMOVUPS (AX), Z16
	VMOVUPS 64(AX), Z17
	MOVQ low+72(FP), AX
	VMOVUPS (AX), Z18
	VMOVUPS 64(AX), Z19
	VBROADCASTSS bias+80(FP), Z20
	MOVQ scales_base+88(FP), DX
	TESTQ CX, CX
	JEQ  return
	VMOVAPS Z18, Z22
	VMOVAPS Z19, Z23

row:
	TESTQ DX, DX
	JEQ   unscaled
	VBROADCASTSS (DX), Z24
	VMULPS Z18, Z24, Z22
	VMULPS Z19, Z24, Z23
	ADDQ $4, DX

unscaled:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z 64(SI), K2, Z1
	VMULPS Z16, Z0, Z0
	VMULPS Z17, Z1, Z1
	VADDPS Z22, Z0, Z0
	VADDPS Z23, Z1, Z1
	VADDPS Z20, Z0, Z0
	VADDPS Z20, Z1, Z1
	VCVTTPS2DQ.Z Z0, K1, Z0
	VCVTTPS2DQ.Z Z1, K2, Z1
	VPMOVDW Z0, (DI)
	VPMOVDW Z1, 32(DI)
	ADDQ R8, SI
	ADDQ $64, DI
	DECQ CX
	JNZ  row

return:
	VZEROUPPER
	RET
