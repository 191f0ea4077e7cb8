//go:build !purego

#include "textflag.h"

// func squaresAVX(sum *[4]float64, x []float32)
TEXT ·squaresAVX(SB), NOSPLIT, $0-32
	MOVQ sum+0(FP), DI
	MOVQ x_base+8(FP), SI
	MOVQ x_len+16(FP), CX
	VXORPD Y0, Y0, Y0
	SHRQ $2, CX
	JEQ  store

four:
	VCVTPS2PD (SI), Y1
	VMULPD Y1, Y1, Y1
	VADDPD Y1, Y0, Y0
	ADDQ $16, SI
	DECQ CX
	JNZ  four

store:
	VMOVUPD Y0, (DI)
	VZEROUPPER
	RET

// func scaleAVX(x []float32, by float64)
TEXT ·scaleAVX(SB), NOSPLIT, $0-32
	MOVQ x_base+0(FP), SI
	MOVQ x_len+8(FP), CX
	VBROADCASTSD by+24(FP), Y0
	SHRQ $2, CX
	JEQ  return

four:
	VCVTPS2PD (SI), Y1
	VMULPD Y0, Y1, Y1
	VCVTPD2PSY Y1, X1
	VMOVUPS X1, (SI)
	ADDQ $16, SI
	DECQ CX
	JNZ  four

return:
	VZEROUPPER
	RET
