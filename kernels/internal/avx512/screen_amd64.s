//go:build !purego

#include "textflag.h"

//	AX, BX, CX  levels of rows 0, 4 and 8 of the tile
//	R8, R9      bytes of a row, of three rows
//	DX          panel                 R10 groups of four dimensions left
//	SI          levels of the tile    R13 rows left
//	DI          products              R12 scales of the tile
//	Z0 to Z23   sums of 12 rows with two vectors of columns

#define ROW(addr, x, y) \
	VPBROADCASTD addr, Z26 \
	VPDPBUSD Z24, Z26, x   \
	VPDPBUSD Z25, Z26, y

// FINISH scales a row of sums, stores it and raises the maxima.
#define FINISH(n, x, y) \
	VCVTDQ2PS x, x                 \
	VCVTDQ2PS y, y                 \
	VMULPS.BCST (n*4)(R12), x, x   \
	VMULPS.BCST (n*4)(R12), y, y   \
	VMOVUPS x, (n*128)(DI)         \
	VMOVUPS y, (n*128+64)(DI)      \
	VMAXPS x, Z24, Z24             \
	VMAXPS y, Z25, Z25

// func Screen(dst [][32]float32, most *[32]float32, levels []byte, stride int, panel []byte, start *[32]int32, scales []float32)
TEXT ·Screen(SB), NOSPLIT, $0-120
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), R13
	MOVQ levels_base+32(FP), SI
	MOVQ stride+56(FP), R8
	LEAQ (R8)(R8*2), R9
	MOVQ scales_base+96(FP), R12
	MOVQ start+88(FP), AX
	VMOVDQU32 (AX), Z28
	VMOVDQU32 64(AX), Z29

tile:
	MOVQ SI, AX
	LEAQ (SI)(R8*4), BX
	LEAQ (SI)(R8*8), CX
	MOVQ panel_base+64(FP), DX
	MOVQ R8, R10
	SHRQ $2, R10
	VMOVDQA32 Z28, Z0
	VMOVDQA32 Z29, Z1
	VMOVDQA32 Z28, Z2
	VMOVDQA32 Z29, Z3
	VMOVDQA32 Z28, Z4
	VMOVDQA32 Z29, Z5
	VMOVDQA32 Z28, Z6
	VMOVDQA32 Z29, Z7
	VMOVDQA32 Z28, Z8
	VMOVDQA32 Z29, Z9
	VMOVDQA32 Z28, Z10
	VMOVDQA32 Z29, Z11
	VMOVDQA32 Z28, Z12
	VMOVDQA32 Z29, Z13
	VMOVDQA32 Z28, Z14
	VMOVDQA32 Z29, Z15
	VMOVDQA32 Z28, Z16
	VMOVDQA32 Z29, Z17
	VMOVDQA32 Z28, Z18
	VMOVDQA32 Z29, Z19
	VMOVDQA32 Z28, Z20
	VMOVDQA32 Z29, Z21
	VMOVDQA32 Z28, Z22
	VMOVDQA32 Z29, Z23

dims:
	VMOVDQU32 (DX), Z24
	VMOVDQU32 64(DX), Z25
	ROW((AX), Z0, Z1)
	ROW((AX)(R8*1), Z2, Z3)
	ROW((AX)(R8*2), Z4, Z5)
	ROW((AX)(R9*1), Z6, Z7)
	ROW((BX), Z8, Z9)
	ROW((BX)(R8*1), Z10, Z11)
	ROW((BX)(R8*2), Z12, Z13)
	ROW((BX)(R9*1), Z14, Z15)
	ROW((CX), Z16, Z17)
	ROW((CX)(R8*1), Z18, Z19)
	ROW((CX)(R8*2), Z20, Z21)
	ROW((CX)(R9*1), Z22, Z23)
	ADDQ $4, AX
	ADDQ $4, BX
	ADDQ $4, CX
	ADDQ $128, DX
	DECQ R10
	JNZ  dims

	MOVQ most+24(FP), DX
	VMOVUPS (DX), Z24
	VMOVUPS 64(DX), Z25
	FINISH(0, Z0, Z1)
	FINISH(1, Z2, Z3)
	FINISH(2, Z4, Z5)
	FINISH(3, Z6, Z7)
	FINISH(4, Z8, Z9)
	FINISH(5, Z10, Z11)
	FINISH(6, Z12, Z13)
	FINISH(7, Z14, Z15)
	FINISH(8, Z16, Z17)
	FINISH(9, Z18, Z19)
	FINISH(10, Z20, Z21)
	FINISH(11, Z22, Z23)
	VMOVUPS Z24, (DX)
	VMOVUPS Z25, 64(DX)

	// The next 12 rows, or the last 12, some of them again.
	SUBQ $12, R13
	JEQ  return
	MOVQ $12, R10
	CMPQ R13, R10
	CMOVQLT R13, R10
	MOVQ R10, AX
	IMULQ R8, AX
	ADDQ AX, SI
	LEAQ (R12)(R10*4), R12
	SHLQ $7, R10
	ADDQ R10, DI
	CMPQ R13, $12
	JGE  tile
	MOVQ $12, R13
	JMP  tile

return:
	VZEROUPPER
	RET

// func Doubts(list []uint64, products [][32]float32, limits *[32]float32, first int) int
TEXT ·Doubts(SB), NOSPLIT, $0-72
	MOVQ list_base+0(FP), DI
	MOVQ products_base+24(FP), SI
	MOVQ products_len+32(FP), CX
	MOVQ limits+48(FP), AX
	VMOVUPS (AX), Z0
	VMOVUPS 64(AX), Z1
	MOVQ first+56(FP), R8
	SHLQ $32, R8             // number of the row above, the row from here on below
	MOVQ $0x100000020, R9
	TESTQ CX, CX
	JEQ  done

row:
	VMOVUPS (SI), Z2
	VMOVUPS 64(SI), Z3
	VCMPPS $29, Z0, Z2, K1   // ≥
	VCMPPS $29, Z1, Z3, K2
	KORTESTW K1, K2
	JEQ  next
	KMOVW K1, AX
	KMOVW K2, BX
	SHLQ $16, BX
	ORQ  BX, AX

bit:
	TZCNTQ AX, BX
	ORQ  R8, BX
	MOVQ BX, (DI)
	ADDQ $8, DI
	LEAQ -1(AX), BX
	ANDQ BX, AX
	JNZ  bit

next:
	ADDQ $128, SI
	ADDQ R9, R8
	DECQ CX
	JNZ  row

done:
	SUBQ list_base+0(FP), DI
	SHRQ $3, DI
	MOVQ DI, ret+64(FP)
	VZEROUPPER
	RET

//	SI list, CX what is left of it    R8, R9 rows, queries
//	R10 bytes of a row                R11 factors, or 0
//	R12, R13 best, arg                DI, DX a row, a query
//	K1 what is beyond whole vectors

// func DotPairs(best *[32]float32, arg *[32]int32, list []uint64, rows []float32, dim int, queries, factors []float32)
TEXT ·DotPairs(SB), NOSPLIT, $0-120
	MOVQ best+0(FP), R12
	MOVQ arg+8(FP), R13
	MOVQ list_base+16(FP), SI
	MOVQ list_len+24(FP), CX
	MOVQ rows_base+40(FP), R8
	MOVQ dim+64(FP), R10
	MOVQ queries_base+72(FP), R9
	MOVQ factors_base+96(FP), R11
	MOVQ CX, BX
	MOVQ R10, CX
	ANDQ $15, CX
	MOVL $1, AX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K1
	MOVQ BX, CX
	SHLQ $2, R10
	TESTQ CX, CX
	JEQ  end

pair:
	MOVQ (SI), AX
	MOVL AX, DI
	SHRL $5, DI
	IMULQ R10, DI
	ADDQ R8, DI
	MOVL AX, DX
	ANDL $31, DX
	IMULQ R10, DX
	ADDQ R9, DX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	MOVQ dim+64(FP), BX
	SUBQ $32, BX
	JLT  sixteen

more:
	VMOVUPS (DI), Z2
	VMOVUPS 64(DI), Z3
	VFMADD231PS (DX), Z2, Z0
	VFMADD231PS 64(DX), Z3, Z1
	ADDQ $128, DI
	ADDQ $128, DX
	SUBQ $32, BX
	JGE  more

sixteen:
	ADDQ $16, BX
	JLT  rest
	VMOVUPS (DI), Z2
	VFMADD231PS (DX), Z2, Z0
	ADDQ $64, DI
	ADDQ $64, DX

rest:
	VMOVUPS.Z (DI), K1, Z2
	VMOVUPS.Z (DX), K1, Z3
	VFMADD231PS Z3, Z2, Z1
	VADDPS Z1, Z0, Z0
	VEXTRACTF64X4 $1, Z0, Y1
	VADDPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS X1, X0, X0
	VMOVHLPS X0, X0, X1
	VADDPS X1, X0, X0
	VMOVSHDUP X0, X1
	VADDSS X1, X0, X0
	TESTQ R11, R11
	JEQ  scaled
	MOVL AX, DI
	SHRL $5, DI
	VMULSS (R11)(DI*4), X0, X0

scaled:
	MOVL AX, DX
	ANDL $31, DX
	VUCOMISS (R12)(DX*4), X0
	JLS  next
	VMOVSS X0, (R12)(DX*4)
	SHRQ $32, AX
	MOVL AX, (R13)(DX*4)

next:
	ADDQ $8, SI
	DECQ CX
	JNZ  pair

end:
	VZEROUPPER
	RET
