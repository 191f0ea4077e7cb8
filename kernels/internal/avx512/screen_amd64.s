//go:build !purego

#include "textflag.h"

//	AX, BX, CX  levels of rows 0, 4 and 8 of the tile
//	R8, R9      bytes of a row, of three rows
//	DX          panel                 R10 groups of four dimensions left
//	SI          levels of the tile    R13 rows left
//	DI          products              R12 scales of the tile, or 0
//	R11         address to prefetch in the next tile, 48 bytes for a group of dimensions
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

// STORE stores a row of sums as they are.
#define STORE(n, x, y) \
	VCVTDQ2PS x, x            \
	VCVTDQ2PS y, y            \
	VMOVUPS x, (n*128)(DI)    \
	VMOVUPS y, (n*128+64)(DI)

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
	LEAQ (SI)(R9*4), R11
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
	PREFETCHT0 (R11)
	ADDQ $48, R11
	ADDQ $4, AX
	ADDQ $4, BX
	ADDQ $4, CX
	ADDQ $128, DX
	DECQ R10
	JNZ  dims

	TESTQ R12, R12
	JEQ  plain
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
next:
	SUBQ $12, R13
	JEQ  return
	MOVQ $12, R10
	CMPQ R13, R10
	CMOVQLT R13, R10
	MOVQ R10, AX
	IMULQ R8, AX
	ADDQ AX, SI
	TESTQ R12, R12
	JEQ  advance
	LEAQ (R12)(R10*4), R12

advance:
	SHLQ $7, R10
	ADDQ R10, DI
	CMPQ R13, $12
	JGE  tile
	MOVQ $12, R13
	JMP  tile

plain:
	STORE(0, Z0, Z1)
	STORE(1, Z2, Z3)
	STORE(2, Z4, Z5)
	STORE(3, Z6, Z7)
	STORE(4, Z8, Z9)
	STORE(5, Z10, Z11)
	STORE(6, Z12, Z13)
	STORE(7, Z14, Z15)
	STORE(8, Z16, Z17)
	STORE(9, Z18, Z19)
	STORE(10, Z20, Z21)
	STORE(11, Z22, Z23)
	JMP  next

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

//	SI list, CX what is left of it     R8 rows, DX panel, both at dimension k
//	R9 bytes of a row                  R10 dimensions left
//	R11 factors, or 0                  R12, R13 best, arg
//	K2 to K4 the second to fourth 128 bits, K5 of a gather
//	Z24, Z29 products of 16 pairs each Z25, Z30 their columns
//	Z26 of the panel                   Z31 values of a row
//
// Frame: where 32 rows begin (256 bytes), their numbers (128), their first values (128),
// the products (128).

// LOAD loads 16 dimensions of a pair, whose row goes to every fourth register.
#define LOAD(off, K, a, b, c, d) \
	MOVQ (off)(SP), AX                 \
	VBROADCASTF32X4 (AX)(BX*1), K, a   \
	VBROADCASTF32X4 16(AX)(BX*1), K, b \
	VBROADCASTF32X4 32(AX)(BX*1), K, c \
	VBROADCASTF32X4 48(AX)(BX*1), K, d

#define LOADFIRST(off, a, b, c, d) \
	MOVQ (off)(SP), AX              \
	VBROADCASTF32X4 (AX)(BX*1), a   \
	VBROADCASTF32X4 16(AX)(BX*1), b \
	VBROADCASTF32X4 32(AX)(BX*1), c \
	VBROADCASTF32X4 48(AX)(BX*1), d

// STEP adds the products of dimension n of 16, of which x has the values of the rows.
#define STEP(n, x, columns, sums) \
	VMOVUPS ((n)*128)(DX), Z26              \
	VPERMT2PS ((n)*128+64)(DX), columns, Z26 \
	VFMADD231PS Z26, x, sums

// FOUR adds the products of dimensions n to n+3, of which a to d have 4 of 16 rows each.
#define FOUR(n, a, b, c, d, columns, sums) \
	VUNPCKLPS b, a, Z16            \
	VUNPCKHPS b, a, Z17            \
	VUNPCKLPS d, c, Z18            \
	VUNPCKHPS d, c, Z19            \
	VUNPCKLPD Z18, Z16, Z20        \
	VUNPCKHPD Z18, Z16, Z21        \
	VUNPCKLPD Z19, Z17, Z22        \
	VUNPCKHPD Z19, Z17, Z23        \
	STEP(n+0, Z20, columns, sums)  \
	STEP(n+1, Z21, columns, sums)  \
	STEP(n+2, Z22, columns, sums)  \
	STEP(n+3, Z23, columns, sums)

// SIXTEEN adds the products of 16 dimensions of the 16 pairs whose rows are at off.
#define SIXTEEN(off, columns, sums) \
	LOADFIRST(off, Z0, Z4, Z8, Z12)      \
	LOADFIRST(off+8, Z1, Z5, Z9, Z13)    \
	LOADFIRST(off+16, Z2, Z6, Z10, Z14)  \
	LOADFIRST(off+24, Z3, Z7, Z11, Z15)  \
	LOAD(off+32, K2, Z0, Z4, Z8, Z12)    \
	LOAD(off+40, K2, Z1, Z5, Z9, Z13)    \
	LOAD(off+48, K2, Z2, Z6, Z10, Z14)   \
	LOAD(off+56, K2, Z3, Z7, Z11, Z15)   \
	LOAD(off+64, K3, Z0, Z4, Z8, Z12)    \
	LOAD(off+72, K3, Z1, Z5, Z9, Z13)    \
	LOAD(off+80, K3, Z2, Z6, Z10, Z14)   \
	LOAD(off+88, K3, Z3, Z7, Z11, Z15)   \
	LOAD(off+96, K4, Z0, Z4, Z8, Z12)    \
	LOAD(off+104, K4, Z1, Z5, Z9, Z13)   \
	LOAD(off+112, K4, Z2, Z6, Z10, Z14)  \
	LOAD(off+120, K4, Z3, Z7, Z11, Z15)  \
	FOUR(0, Z0, Z1, Z2, Z3, columns, sums)     \
	FOUR(4, Z4, Z5, Z6, Z7, columns, sums)     \
	FOUR(8, Z8, Z9, Z10, Z11, columns, sums)   \
	FOUR(12, Z12, Z13, Z14, Z15, columns, sums)

// ENTRIES splits 16 entries of the list into rows and columns.
#define ENTRIES(at, columns, numbers, firsts) \
	VMOVDQU64 (at)(SI), Z0           \
	VMOVDQU64 (at+64)(SI), Z1        \
	VPMOVQD Z0, Y0                   \
	VPMOVQD Z1, Y1                   \
	VINSERTI64X4 $1, Y1, Z0, Z0      \
	VPANDD Z2, Z0, columns           \
	VPSRLD $5, Z0, Z0                \
	VMOVDQU32 Z0, numbers(SP)        \
	VPMULLD Z3, Z0, Z0               \
	VMOVDQU32 Z0, firsts(SP)

// GATHERED adds the products of one dimension.
#define GATHERED(firsts, columns, sums) \
	KXNORW K5, K5, K5                \
	VMOVDQU32 firsts(SP), Z0         \
	VPXORD Z31, Z31, Z31             \
	VGATHERDPS (R8)(Z0*4), K5, Z31   \
	STEP(0, Z31, columns, sums)

#define SCALED(numbers, sums) \
	KXNORW K5, K5, K5                \
	VMOVDQU32 numbers(SP), Z0        \
	VPXORD Z31, Z31, Z31             \
	VGATHERDPS (R11)(Z0*4), K5, Z31  \
	VMULPS Z31, sums, sums

// func DotPairs(best *[32]float32, arg *[32]int32, list []uint64, rows []float32, dim int, panel, factors []float32)
TEXT ·DotPairs(SB), 0, $640-120
	MOVQ best+0(FP), R12
	MOVQ arg+8(FP), R13
	MOVQ list_base+16(FP), SI
	MOVQ list_len+24(FP), CX
	MOVQ dim+64(FP), R9
	SHLQ $2, R9
	MOVQ factors_base+96(FP), R11
	MOVL $0xf0, AX
	KMOVW AX, K2
	MOVL $0xf00, AX
	KMOVW AX, K3
	MOVL $0xf000, AX
	KMOVW AX, K4
	TESTQ CX, CX
	JEQ  end

group:
	MOVL $31, AX
	VPBROADCASTD AX, Z2
	MOVQ dim+64(FP), AX
	VPBROADCASTD AX, Z3
	ENTRIES(0, Z25, 256, 384)
	ENTRIES(128, Z30, 320, 448)
	MOVQ rows_base+40(FP), R8
	XORL BX, BX

pointer:
	MOVL (SI)(BX*8), AX
	SHRL $5, AX
	IMULQ R9, AX
	ADDQ R8, AX
	MOVQ AX, (SP)(BX*8)
	INCQ BX
	CMPQ BX, $32
	JLT  pointer

	MOVQ panel_base+72(FP), DX
	MOVQ dim+64(FP), R10
	VPXORD Z24, Z24, Z24
	VPXORD Z29, Z29, Z29
	XORL BX, BX
	SUBQ $16, R10
	JLT  rest

sixteen:
	SIXTEEN(0, Z25, Z24)
	SIXTEEN(128, Z30, Z29)
	ADDQ $64, BX
	ADDQ $2048, DX
	SUBQ $16, R10
	JGE  sixteen

rest:
	ADDQ $16, R10
	JEQ  scale
	ADDQ BX, R8

one:
	GATHERED(384, Z25, Z24)
	GATHERED(448, Z30, Z29)
	ADDQ $4, R8
	ADDQ $128, DX
	DECQ R10
	JNZ  one

scale:
	TESTQ R11, R11
	JEQ  scaled
	SCALED(256, Z24)
	SCALED(320, Z29)

scaled:
	VMOVUPS Z24, 512(SP)
	VMOVUPS Z29, 576(SP)
	XORL BX, BX

pair:
	MOVQ (SI)(BX*8), AX
	MOVL AX, DX
	ANDL $31, DX
	VMOVSS 512(SP)(BX*4), X0
	VUCOMISS (R12)(DX*4), X0
	JLS  next
	VMOVSS X0, (R12)(DX*4)
	SHRQ $32, AX
	MOVL AX, (R13)(DX*4)

next:
	INCQ BX
	CMPQ BX, $32
	JLT  pair
	ADDQ $256, SI
	SUBQ $32, CX
	JNZ  group

end:
	VZEROUPPER
	RET
