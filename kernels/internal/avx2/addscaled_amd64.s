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
	VXORPD Y0, Y0, Y0
	VXORPD Y1, Y1, Y1
	MOVQ R8, DX
	TESTQ DX, DX
	JEQ  store

eight:
	VCVTPS2PD (SI), Y2
	VCVTPS2PD 16(SI), Y3
	VFMADD231PD Y2, Y2, Y0
	VFMADD231PD Y3, Y3, Y1
	ADDQ $32, SI
	DECQ DX
	JNZ  eight

store:
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
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
	VBROADCASTSS c+48(FP), Y0
	SUBQ $8, CX
	JLT  rest

eight:
	VMOVUPS (DI), Y1
	VFMADD231PS (SI), Y0, Y1
	VMOVUPS Y1, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  eight

rest:
	ADDQ $8, CX
	JEQ  return

one:
	VMOVSS (DI), X1
	VFMADD231SS (SI), X0, X1
	VMOVSS X1, (DI)
	ADDQ $4, SI
	ADDQ $4, DI
	DECQ CX
	JNZ  one

return:
	VZEROUPPER
	RET

// func SumProducts(dst *[8]float64, x, y []float32)
TEXT ·SumProducts(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ x_base+8(FP), SI
	MOVQ x_len+16(FP), CX
	MOVQ y_base+32(FP), DX
	VXORPD Y0, Y0, Y0
	VXORPD Y1, Y1, Y1
	SHRQ $3, CX
	JEQ  store

eight:
	VCVTPS2PD (SI), Y2
	VCVTPS2PD 16(SI), Y3
	VCVTPS2PD (DX), Y4
	VCVTPS2PD 16(DX), Y5
	VFMADD231PD Y4, Y2, Y0
	VFMADD231PD Y5, Y3, Y1
	ADDQ $32, SI
	ADDQ $32, DX
	DECQ CX
	JNZ  eight

store:
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	VZEROUPPER
	RET
