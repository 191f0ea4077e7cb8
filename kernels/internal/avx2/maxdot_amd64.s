//go:build !purego

#include "textflag.h"

//	AX, BX      dimension k of rows 0 and 3 of the tile
//	R8          bytes of a row
//	DX          dimension k of 16 columns     R10 dimensions left
//	SI          rows of the tile              R13 rows left
//	R11         number of the first row       R12 scales of the tile, or 0
//	R9          bytes of the panel's row before the 16 columns
//	DI          address to prefetch in the next tile, 24 bytes for each dimension
//	Y0 to Y11   products of 6 rows with two vectors of columns

DATA one<>+0(SB)/4, $1
GLOBL one<>(SB), RODATA|NOPTR, $4

#define ROW(addr, x, y) \
	VBROADCASTSS addr, Y14     \
	VFMADD231PS Y12, Y14, x    \
	VFMADD231PS Y13, Y14, y

#define SCALE(n, x, y) \
	VBROADCASTSS (n*4)(R12), Y14 \
	VMULPS Y14, x, x             \
	VMULPS Y14, y, y

// RAISE raises the maxima Y12 by a row of products, and sets Y13 to its number Y14.
#define RAISE(x) \
	VCMPPS $30, Y12, x, Y15      \
	VBLENDVPS Y15, x, Y12, Y12   \
	VBLENDVPS Y15, Y14, Y13, Y13

#define NUMBER(x) \
	RAISE(x)                  \
	VPBROADCASTD one<>(SB), Y15 \
	VPADDD Y15, Y14, Y14

#define COLUMN(off, a, b, c, d, e, f) \
	VMOVUPS off(DI), Y12      \
	VMOVDQU off(DX), Y13      \
	VMOVD R11, X14            \
	VPBROADCASTD X14, Y14     \
	NUMBER(a)                 \
	NUMBER(b)                 \
	NUMBER(c)                 \
	NUMBER(d)                 \
	NUMBER(e)                 \
	RAISE(f)                  \
	VMOVUPS Y12, off(DI)      \
	VMOVDQU Y13, off(DX)

// func MaxDot(best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32)
TEXT ·MaxDot(SB), NOSPLIT, $0-120
	XORL R9, R9

columns:
	MOVQ rows_base+16(FP), SI
	MOVQ m+40(FP), R13
	MOVQ dim+48(FP), R8
	SHLQ $2, R8
	MOVQ first+56(FP), R11
	MOVQ scales_base+96(FP), R12

tile:
	MOVQ SI, AX
	LEAQ (R8)(R8*2), BX
	ADDQ SI, BX
	MOVQ panel_base+64(FP), DX
	ADDQ R9, DX
	LEAQ (BX)(R8*2), DI
	ADDQ R8, DI
	MOVQ dim+48(FP), R10
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	VXORPS Y9, Y9, Y9
	VXORPS Y10, Y10, Y10
	VXORPS Y11, Y11, Y11

dims:
	VMOVUPS (DX), Y12
	VMOVUPS 32(DX), Y13
	ROW((AX), Y0, Y1)
	ROW((AX)(R8*1), Y2, Y3)
	ROW((AX)(R8*2), Y4, Y5)
	ROW((BX), Y6, Y7)
	ROW((BX)(R8*1), Y8, Y9)
	ROW((BX)(R8*2), Y10, Y11)
	PREFETCHT0 (DI)
	ADDQ $24, DI
	ADDQ $4, AX
	ADDQ $4, BX
	ADDQ $128, DX
	DECQ R10
	JNZ  dims

	TESTQ R12, R12
	JEQ  scaled
	SCALE(0, Y0, Y1)
	SCALE(1, Y2, Y3)
	SCALE(2, Y4, Y5)
	SCALE(3, Y6, Y7)
	SCALE(4, Y8, Y9)
	SCALE(5, Y10, Y11)

scaled:
	MOVQ best+0(FP), DI
	ADDQ R9, DI
	MOVQ arg+8(FP), DX
	ADDQ R9, DX
	COLUMN(0, Y0, Y2, Y4, Y6, Y8, Y10)
	COLUMN(32, Y1, Y3, Y5, Y7, Y9, Y11)
	// The next 6 rows, or the last 6, some of them again.
	SUBQ $6, R13
	JEQ  next
	MOVQ $6, R10
	CMPQ R13, R10
	CMOVQLT R13, R10
	ADDQ R10, R11
	MOVQ R10, AX
	IMULQ R8, AX
	ADDQ AX, SI
	SHLQ $2, R10
	XORL AX, AX
	TESTQ R12, R12
	CMOVQEQ AX, R10
	ADDQ R10, R12
	CMPQ R13, $6
	JGE  tile
	MOVQ $6, R13
	JMP  tile

next:
	TESTQ R9, R9
	JNE  return
	CMPQ n+88(FP), $16
	JLE  return
	MOVQ $64, R9
	JMP  columns

return:
	VZEROUPPER
	RET
