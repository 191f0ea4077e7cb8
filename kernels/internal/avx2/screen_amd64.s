//go:build !purego

#include "textflag.h"

//	AX, BX   levels of the two rows    DX panel
//	R10      groups of four dimensions left
//	SI       levels of the pair        CX rows left
//	DI       products                  R9 start
//	Y0 to Y7 sums of two rows with 32 columns
//	Y15      ones

// PAIR adds the products of four dimensions with 8 columns: pairs of them in 16 bits,
// which 255·63·2 fits, then in 32.
#define PAIR(at, x, y) \
	VPMADDUBSW at(DX), Y8, Y10 \
	VPMADDUBSW at(DX), Y9, Y11 \
	VPMADDWD   Y15, Y10, Y10   \
	VPMADDWD   Y15, Y11, Y11   \
	VPADDD     Y10, x, x       \
	VPADDD     Y11, y, y

#define STORE(at, x) \
	VCVTDQ2PS x, x \
	VMOVUPS   x, at(DI)

// func Screen(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32)
TEXT ·Screen(SB), NOSPLIT, $0-88
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ levels_base+24(FP), SI
	MOVQ stride+48(FP), R8
	MOVQ start+80(FP), R9
	VPCMPEQW Y15, Y15, Y15
	VPSRLW $15, Y15, Y15

rows:
	TESTQ CX, CX
	JEQ  return
	MOVQ SI, AX
	MOVQ SI, BX
	CMPQ CX, $1
	JEQ  begin
	ADDQ R8, BX

begin:
	VMOVDQU (R9), Y0
	VMOVDQU 32(R9), Y1
	VMOVDQU 64(R9), Y2
	VMOVDQU 96(R9), Y3
	VMOVDQA Y0, Y4
	VMOVDQA Y1, Y5
	VMOVDQA Y2, Y6
	VMOVDQA Y3, Y7
	MOVQ panel_base+56(FP), DX
	MOVQ R8, R10
	SHRQ $2, R10

dims:
	VPBROADCASTD (AX), Y8
	VPBROADCASTD (BX), Y9
	PAIR(0, Y0, Y4)
	PAIR(32, Y1, Y5)
	PAIR(64, Y2, Y6)
	PAIR(96, Y3, Y7)
	ADDQ $4, AX
	ADDQ $4, BX
	ADDQ $128, DX
	DECQ R10
	JNZ  dims

	STORE(0, Y0)
	STORE(32, Y1)
	STORE(64, Y2)
	STORE(96, Y3)
	DECQ CX
	JEQ  return
	STORE(128, Y4)
	STORE(160, Y5)
	STORE(192, Y6)
	STORE(224, Y7)
	DECQ CX
	ADDQ $256, DI
	LEAQ (SI)(R8*2), SI
	JMP  rows

return:
	VZEROUPPER
	RET
