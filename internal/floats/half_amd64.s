//go:build !purego

#include "textflag.h"

// func decodeF16C(dst *float32, src *byte, n int)
TEXT ·decodeF16C(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SHRQ $3, CX

eight:
	VCVTPH2PS (SI), Y0
	VMOVUPS Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  eight
	VZEROUPPER
	RET

// func encodeF16C(dst *byte, src *float32, n int, largest *[8]uint16)
TEXT ·encodeF16C(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ largest+24(FP), DX
	SHRQ $3, CX
	VPXOR X2, X2, X2
	VPCMPEQW X3, X3, X3
	VPSRLW $1, X3, X3 // all but the sign

eight:
	VMOVUPS (SI), Y0
	VCVTPS2PH $0, Y0, X1
	VMOVDQU X1, (DI)
	VPAND X3, X1, X1
	VPMAXUW X1, X2, X2
	ADDQ $32, SI
	ADDQ $16, DI
	DECQ CX
	JNZ  eight
	VMOVDQU X2, (DX)
	VZEROUPPER
	RET
