//go:build !purego

#include "textflag.h"
#include "tiles_amd64.h"

// Sums are stored as integers where the products belong, and converted one block of 16
// rows later, while the tiles are multiplied.
//
//	SI      levels of the block        BX  bytes of a row
//	DX      panel                      CX  128, bytes of a row of products
//	DI, R9  products of the block, and of the block before
//	R10     remaining bytes of a row   R13 remaining rows
//	R11     levels to prefetch         R8  levels of the block
//	Z24, Z25 start
//
// Tiles 0 and 1 are the sums of 16 rows with 16 columns and the next 16; 2 and 3 are 64
// dimensions of the rows and the remaining ones at the end, 4 and 5 the columns of the
// former, 6 and 7 those of the latter.

// AHEAD is how far ahead levels are prefetched, in bytes: to the second-level cache, as
// prefetches to the first one wait for free line fill buffers.
#define AHEAD 8192

#define FETCH4(at) \
	PREFETCHT1 (at)(R11)     \
	PREFETCHT1 (at+64)(R11)  \
	PREFETCHT1 (at+128)(R11) \
	PREFETCHT1 (at+192)(R11)

// FETCH prefetches 64 bytes of 16 rows.
#define FETCH \
	FETCH4(0)         \
	FETCH4(256)       \
	FETCH4(512)       \
	FETCH4(768)       \
	ADDQ $1024, R11

// CONVERT adds start to the sums of row u and rounds them to float32, exactly.
#define CONVERT(u) \
	VPADDD (u*128)(R9), Z24, Z0    \
	VPADDD (u*128+64)(R9), Z25, Z1 \
	VCVTDQ2PS Z0, Z0               \
	VCVTDQ2PS Z1, Z1               \
	VMOVUPS Z0, (u*128)(R9)        \
	VMOVUPS Z1, (u*128+64)(R9)

#define CONVERT16 \
	CONVERT(0)  \
	CONVERT(1)  \
	CONVERT(2)  \
	CONVERT(3)  \
	CONVERT(4)  \
	CONVERT(5)  \
	CONVERT(6)  \
	CONVERT(7)  \
	CONVERT(8)  \
	CONVERT(9)  \
	CONVERT(10) \
	CONVERT(11) \
	CONVERT(12) \
	CONVERT(13) \
	CONVERT(14) \
	CONVERT(15)

// BEGIN loads the arguments. The first conversion reads undefined sums; the first sums
// overwrite its result.
#define BEGIN \
	MOVQ config+48(FP), AX  \
	LDTILECFG_AX            \
	MOVQ start+40(FP), AX   \
	VMOVDQU32 (AX), Z24     \
	VMOVDQU32 64(AX), Z25   \
	MOVQ dst+0(FP), DI      \
	MOVQ DI, R9             \
	MOVQ levels+8(FP), R8   \
	MOVQ m+16(FP), R13      \
	MOVQ stride+24(FP), BX  \
	MOVQ panel+32(FP), DX   \
	MOVQ $128, CX           \
	LEAQ AHEAD(R8), R11

// FINISH ends a block, and advances to the next 16 rows or the last 16, some of which are
// multiplied again.
#define FINISH(block) \
	CONVERT16            \
	MOVQ $128, AX        \
	STORE_DI_AX(0, 0)    \
	STORE_DI_AX(1, 64)   \
	MOVQ DI, R9          \
	SUBQ $16, R13        \
	JEQ  last            \
	MOVQ $16, AX         \
	CMPQ R13, AX         \
	CMOVQLT R13, AX      \
	MOVQ AX, R10         \
	IMULQ BX, R10        \
	ADDQ R10, R8         \
	SHLQ $7, AX          \
	ADDQ AX, DI          \
	CMPQ R13, $16        \
	JGE  block           \
	MOVQ $16, R13        \
	JMP  block           \
last:                        \
	CONVERT16            \
	TILERELEASE          \
	VZEROUPPER           \
	RET

// func screen(dst *[32]float32, levels *byte, m, stride int, panel *byte, start *[32]int32, config *[64]byte)
TEXT ·screen(SB), NOSPLIT, $0-56
	BEGIN

block:
	TILEZERO(0)
	TILEZERO(1)
	MOVQ R8, SI
	MOVQ panel+32(FP), DX
	MOVQ BX, R10
	LEAQ AHEAD(R8), R11
	JMP  more

step:
	LOAD_SI_BX(2)
	LOAD_DX_CX(4, 0)
	TDPBUSD(0, 2, 4)
	LOAD_DX_CX(5, 64)
	TDPBUSD(1, 2, 5)
	FETCH
	ADDQ $64, SI
	ADDQ $2048, DX

more:
	SUBQ $64, R10
	JGT  step
	LOAD_SI_BX(3)
	LOAD_DX_CX(6, 0)
	TDPBUSD(0, 3, 6)
	LOAD_DX_CX(7, 64)
	TDPBUSD(1, 3, 7)
	FETCH
	FINISH(block)

// screen2 is screen for strides of 68 to 128, where the panel stays in tiles.

// func screen2(dst *[32]float32, levels *byte, m, stride int, panel *byte, start *[32]int32, config *[64]byte)
TEXT ·screen2(SB), NOSPLIT, $0-56
	BEGIN
	LOAD_DX_CX(4, 0)
	LOAD_DX_CX(5, 64)
	LOAD_DX_CX(6, 2048)
	LOAD_DX_CX(7, 2112)

block:
	TILEZERO(0)
	TILEZERO(1)
	MOVQ R8, SI
	LOAD_SI_BX(2)
	TDPBUSD(0, 2, 4)
	TDPBUSD(1, 2, 5)
	ADDQ $64, SI
	LOAD_SI_BX(3)
	TDPBUSD(0, 3, 6)
	TDPBUSD(1, 3, 7)
	LEAQ AHEAD(R8), R11
	FETCH
	FETCH
	FINISH(block)
