//go:build !purego

#include "textflag.h"
#include "funcdata.h"
#include "tiles_amd64.h"

// Tiles: 0 to 3 the sums of 16 vectors with 16 rows each; 4 and 5 vectors and
// rows over 64 dimensions; 6 and 7 the same over the remaining dimensions.
#define MULTIPLY(a, b) \
	LOAD_SI_BX(a)      \
	LOAD_DX_CX(b, 0)   \
	TDPBUSD(0, a, b)   \
	LOAD_DX_CX(b, 64)  \
	TDPBUSD(1, a, b)   \
	LOAD_DX_CX(b, 128) \
	TDPBUSD(2, a, b)   \
	LOAD_DX_CX(b, 192) \
	TDPBUSD(3, a, b)

// RECORD notes 16 sums if one of them is a hit, and raises best and threshold.
#define RECORD(g, a, thr, mask, skip) \
	KMOVW mask, AX             \
	TESTL AX, AX               \
	JEQ   skip                 \
	VMOVDQU32 a, (R12)         \
	MOVL  R11, 64(R12)         \
	ORL   $(g<<16), AX         \
	MOVL  AX, 68(R12)          \
	ADDQ  $72, R12             \
	MOVQ  best+72(FP), AX      \
	VPMAXSD (g*64)(AX), a, thr \
	VMOVDQU32 thr, (g*64)(AX)  \
	MOVQ  margin+80(FP), AX    \
	VPSUBD (g*64)(AX), thr, thr \
skip:

// func filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int, config *[64]byte) (size int)
TEXT ·filter(SB), 0, $4224-112
	NO_LOCAL_POINTERS
	MOVQ config+96(FP), AX
	LDTILECFG_AX
	LEAQ 63(SP), DI
	ANDQ $~63, DI
	MOVQ levels_base+24(FP), SI
	MOVQ stride+48(FP), BX
	MOVQ first+64(FP), R11
	MOVQ hits_base+0(FP), R12
	MOVQ k+88(FP), R13
	MOVQ $256, CX

tile:
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)
	MOVQ x+56(FP), DX
	MOVQ SI, R9
	MOVQ BX, R10

dims:
	CMPQ R10, $64
	JLT  rest
	MULTIPLY(4, 5)
	ADDQ $64, SI
	ADDQ $4096, DX
	SUBQ $64, R10
	JMP  dims

rest:
	TESTQ R10, R10
	JEQ   sums
	MULTIPLY(6, 7)

sums:
	MOVQ R9, SI
	MOVQ $64, AX
	STORE_DI_AX(0, 0)
	STORE_DI_AX(1, 1024)
	STORE_DI_AX(2, 2048)
	STORE_DI_AX(3, 3072)

	MOVQ best+72(FP), AX
	MOVQ margin+80(FP), DX
	VMOVDQU32 (AX), Z24
	VMOVDQU32 64(AX), Z25
	VMOVDQU32 128(AX), Z26
	VMOVDQU32 192(AX), Z27
	VPSUBD (DX), Z24, Z24
	VPSUBD 64(DX), Z25, Z25
	VPSUBD 128(DX), Z26, Z26
	VPSUBD 192(DX), Z27, Z27
	MOVQ DI, R8
	MOVL $16, R10

vector:
	VMOVDQU32 (R8), Z0
	VMOVDQU32 1024(R8), Z1
	VMOVDQU32 2048(R8), Z2
	VMOVDQU32 3072(R8), Z3
	VPCMPD $5, Z24, Z0, K1
	VPCMPD $5, Z25, Z1, K2
	VPCMPD $5, Z26, Z2, K3
	VPCMPD $5, Z27, Z3, K4
	KORW K1, K2, K5
	KORW K3, K4, K6
	KORTESTW K5, K6
	JNE  hit

next:
	ADDQ $64, R8
	INCL R11
	DECL R10
	JNZ  vector

	SUBQ $16, R13
	JEQ  return
	// The next 16 vectors, or the last 16, some of them again.
	MOVQ $16, AX
	CMPQ R13, AX
	JGE  step
	MOVQ R13, AX
	SUBQ $16, R11
	ADDQ R13, R11
	MOVQ $16, R13

step:
	IMULQ BX, AX
	ADDQ AX, SI
	JMP  tile

return:
	TILERELEASE
	VZEROUPPER
	MOVQ hits_base+0(FP), AX
	SUBQ AX, R12
	MOVQ R12, size+104(FP)
	RET

hit:
	RECORD(0, Z0, Z24, K1, skip0)
	RECORD(1, Z1, Z25, K2, skip1)
	RECORD(2, Z2, Z26, K3, skip2)
	RECORD(3, Z3, Z27, K4, skip3)
	JMP next
