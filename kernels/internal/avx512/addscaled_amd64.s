//go:build !purego

#include "textflag.h"

// func Squares(dst [][8]float64, rows []float32, dim int)
TEXT ·Squares(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ rows_base+24(FP), SI
	MOVQ dim+48(FP), R8
	MOVQ R8, R9
	ANDQ $7, R9
	SHRQ $3, R8
	TESTQ CX, CX
	JEQ  return

row:
	VPXORQ Z0, Z0, Z0
	MOVQ R8, DX
	TESTQ DX, DX
	JEQ  store

eight:
	VCVTPS2PD (SI), Z1
	VFMADD231PD Z1, Z1, Z0
	ADDQ $32, SI
	DECQ DX
	JNZ  eight

store:
	VMOVUPD Z0, (DI)
	ADDQ $64, DI
	LEAQ (SI)(R9*4), SI
	DECQ CX
	JNZ  row

return:
	VZEROUPPER
	RET

// func AddScaled(dst, x []float32, c float32)
TEXT ·AddScaled(SB), NOSPLIT, $0-52
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ x_base+24(FP), SI
	VBROADCASTSS c+48(FP), Z0
	SUBQ $16, CX
	JLT  rest

sixteen:
	VMOVUPS (DI), Z1
	VFMADD231PS (SI), Z0, Z1
	VMOVUPS Z1, (DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JGE  sixteen

rest:
	ADDQ $16, CX
	JEQ  return
	MOVL $1, AX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K1
	VMOVUPS.Z (DI), K1, Z1
	VMOVUPS.Z (SI), K1, Z2
	VFMADD231PS Z2, Z0, Z1
	VMOVUPS Z1, K1, (DI)

return:
	VZEROUPPER
	RET
