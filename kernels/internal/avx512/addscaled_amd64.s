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

// func SumProducts(dst *[8]float64, x, y []float32)
TEXT ·SumProducts(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ x_base+8(FP), SI
	MOVQ x_len+16(FP), CX
	MOVQ y_base+32(FP), DX
	VPXORQ Z0, Z0, Z0
	SHRQ $3, CX
	JEQ  store

eight:
	VCVTPS2PD (SI), Z1
	VCVTPS2PD (DX), Z2
	VFMADD231PD Z2, Z1, Z0
	ADDQ $32, SI
	ADDQ $32, DX
	DECQ CX
	JNZ  eight

store:
	VMOVUPD Z0, (DI)
	VZEROUPPER
	RET

//	DI dst, advanced to its end      CX remaining values
//	SI rows, advanced likewise       R8 bytes of a row
//	R9, R10, R11 list, factors, entries of the list
//	BX, AX entry, its row

// ENTRY loads an entry: Z31 is its factor, AX the address of its row.
#define ENTRY \
	MOVL (R9)(BX*4), AX           \
	VBROADCASTSS (R10)(BX*4), Z31 \
	IMULQ R8, AX

// func AddRows(dst, rows []float32, list []uint32, factors []float32)
TEXT ·AddRows(SB), NOSPLIT, $0-96
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ rows_base+24(FP), SI
	MOVQ list_base+48(FP), R9
	MOVQ list_len+56(FP), R11
	MOVQ factors_base+72(FP), R10
	MOVQ CX, R8
	SHLQ $2, R8
	TESTQ R11, R11
	JEQ  return
	SUBQ $128, CX
	JLT  strips

many:
	VMOVUPS (DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	VMOVUPS 256(DI), Z4
	VMOVUPS 320(DI), Z5
	VMOVUPS 384(DI), Z6
	VMOVUPS 448(DI), Z7
	XORL BX, BX

manyrows:
	ENTRY
	ADDQ SI, AX
	VFMADD231PS (AX), Z31, Z0
	VFMADD231PS 64(AX), Z31, Z1
	VFMADD231PS 128(AX), Z31, Z2
	VFMADD231PS 192(AX), Z31, Z3
	VFMADD231PS 256(AX), Z31, Z4
	VFMADD231PS 320(AX), Z31, Z5
	VFMADD231PS 384(AX), Z31, Z6
	VFMADD231PS 448(AX), Z31, Z7
	INCQ BX
	CMPQ BX, R11
	JLT  manyrows
	VMOVUPS Z0, (DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 128(DI)
	VMOVUPS Z3, 192(DI)
	VMOVUPS Z4, 256(DI)
	VMOVUPS Z5, 320(DI)
	VMOVUPS Z6, 384(DI)
	VMOVUPS Z7, 448(DI)
	ADDQ $512, DI
	ADDQ $512, SI
	SUBQ $128, CX
	JGE  many

strips:
	ADDQ $128, CX

strip:
	TESTQ CX, CX
	JLE  return
	MOVL $0xffff, AX
	CMPQ CX, $16
	JGE  full
	MOVL $1, AX
	SHLL CX, AX
	DECL AX

full:
	KMOVW AX, K1
	VMOVUPS.Z (DI), K1, Z0
	XORL BX, BX

striprows:
	ENTRY
	VMOVUPS.Z (SI)(AX*1), K1, Z1
	VFMADD231PS Z1, Z31, Z0
	INCQ BX
	CMPQ BX, R11
	JLT  striprows
	VMOVUPS Z0, K1, (DI)
	ADDQ $64, DI
	ADDQ $64, SI
	SUBQ $16, CX
	JMP  strip

return:
	VZEROUPPER
	RET

// func Zero(dst []float32)
TEXT ·Zero(SB), NOSPLIT, $0-24
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	XORL AX, AX

head:
	TESTQ CX, CX
	JEQ  end
	TESTQ $63, DI
	JEQ  lines
	MOVL AX, (DI)
	ADDQ $4, DI
	DECQ CX
	JMP  head

lines:
	VPXORD Z0, Z0, Z0
	SUBQ $16, CX
	JLT  tail

line:
	VMOVNTPS Z0, (DI)
	ADDQ $64, DI
	SUBQ $16, CX
	JGE  line

tail:
	ADDQ $16, CX

rest:
	JEQ  end
	MOVL AX, (DI)
	ADDQ $4, DI
	DECQ CX
	JMP  rest

end:
	SFENCE
	VZEROUPPER
	RET
