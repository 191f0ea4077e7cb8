//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "tiles_amd64.h"

// A pipeline over pairs of blocks of 16 tokens. While a pair is multiplied, the
// next is decoded and the one before it finished, row by row between the tile
// instructions: the processor does not look far enough ahead to overlap them by
// itself, and tiles are loaded and stored through the cache, where bytes that
// were just written are not available yet.
//
//	AX      scratch                        BX   64, the stride of tiles
//	CX      block of 64 fields             DX   operand of the pair to multiply
//	DI      tiles of the query             SI   residual of the row to decode
//	R8      the pair to decode             R9   bytes of a residual
//	R10     rows of scores                 R11  operand to decode to
//	R12     products to finish             R13  tokens of the pair to finish
//	R14     tokens of the pair to decode   R15  not 0: there are scales
//	Z31, Z30, Z29, Z28  windows and masks, high and low
//	Z27, Z26 shifts                        Z25  maxima of the document
//
// Tiles 0 to 3 are the products of block 0 with query tokens of either half,
// and of block 1; 4 and 5 the operands of the blocks, 6 and 7 those of the query.
// The tokens of a pair are 32 words each of offsets of rows of scores, factors
// and scales.

// DECODE writes 64 fields of the residual at SI, high and low, to row u of the operand.
#define DECODE(load, u) \
	load (SI), Z0                    \
	ADDQ R9, SI                      \
	VPMULTISHIFTQB Z0, Z31, Z1       \
	VPMULTISHIFTQB Z0, Z29, Z2       \
	VPANDQ Z30, Z1, Z1               \
	VPANDQ Z28, Z2, Z2               \
	VMOVDQU64 Z1, (u*64)(R11)        \
	VMOVDQU64 Z2, (u*64+2048)(R11)

#define DECODE4(load, u) \
	DECODE(load, (u+0)) \
	DECODE(load, (u+1)) \
	DECODE(load, (u+2)) \
	DECODE(load, (u+3))

// FINISH raises the maxima by the products of row u.
#define FINISH(u) \
	VMOVDQU32 (u*64)(R12), Z3        \
	VMOVDQU32 (u*64+1024)(R12), Z4   \
	VPSRAVD Z27, Z3, Z3              \
	VPSRAVD Z26, Z4, Z4              \
	MOVL (u*4)(R13), AX              \
	VPACKSSDW Z4, Z3, Z3             \
	TESTQ R15, R15                   \
	JEQ 3(PC)                        \
	VPBROADCASTD (u*4+256)(R13), Z5  \
	VPMULHRSW Z5, Z3, Z3             \
	VPADDSW (R10)(AX*1), Z3, Z3      \
	VPBROADCASTD (u*4+128)(R13), Z4  \
	VPMULHRSW Z4, Z3, Z3             \
	VPMAXSW Z3, Z25, Z25

// FETCH2 prefetches the rows of scores of tokens u and u+1 of the pair to decode.
#define FETCH2(u) \
	MOVL (u*4)(R14), AX    \
	PREFETCHT0 (R10)(AX*1) \
	MOVL (u*4+4)(R14), AX  \
	PREFETCHT0 (R10)(AX*1)

#define FETCH0(u)
#define FINISH0(u)

// BEST loads the maxima of the document of block CX, 0 or 1, before that block is
// finished. KEEP stores them and advances to the next block.
#define BEST \
	MOVL -28(R8)(CX*8), AX   \
	SHLQ $6, AX              \
	ADDQ bests-40(SP), AX    \
	MOVQ AX, best-48(SP)     \
	VMOVDQU32 (AX), Z25

#define KEEP \
	MOVQ best-48(SP), AX     \
	VMOVDQU32 Z25, (AX)      \
	ADDQ $2048, R12          \
	ADDQ $64, R13            \
	ADDQ $64, R14

// ROWS sets SI to the residuals of a block, at 64 fields.
#define ROWS(at) \
	MOVQ offsets-32(SP), AX  \
	MOVQ (AX)(CX*8), SI      \
	ADDQ at, SI

// STEP multiplies 64 fields of a pair, decodes as many of the next, and
// finishes 16 tokens, or does not.
#define STEP(load, FINISH, FETCH2) \
	ROWS(row0-8(SP))       \
	LOAD_DX_BX(4, 0)       \
	LOAD_DI_BX(6, 0)       \
	TDPBUSD(0, 4, 6)       \
	DECODE4(load, 0)       \
	FETCH2(0)              \
	LOAD_DI_BX(7, 1024)    \
	TDPBUSD(1, 4, 7)       \
	DECODE4(load, 4)       \
	FETCH2(2)              \
	FINISH(0)              \
	LOAD_DX_BX(5, 1024)    \
	TDPBUSD(2, 5, 6)       \
	DECODE4(load, 8)       \
	FETCH2(4)              \
	FINISH(1)              \
	FINISH(2)              \
	TDPBUSD(3, 5, 7)       \
	DECODE4(load, 12)      \
	FETCH2(6)              \
	FINISH(3)              \
	FINISH(4)              \
	ROWS(row1-16(SP))      \
	LOAD_DX_BX(4, 2048)    \
	LOAD_DI_BX(6, 2048)    \
	TDPBUSD(0, 4, 6)       \
	DECODE4(load, 16)      \
	FETCH2(8)              \
	FINISH(5)              \
	FINISH(6)              \
	LOAD_DI_BX(7, 3072)    \
	TDPBUSD(1, 4, 7)       \
	DECODE4(load, 20)      \
	FETCH2(10)             \
	FINISH(7)              \
	FINISH(8)              \
	FINISH(9)              \
	LOAD_DX_BX(5, 3072)    \
	TDPBUSD(2, 5, 6)       \
	DECODE4(load, 24)      \
	FETCH2(12)             \
	FINISH(10)             \
	FINISH(11)             \
	FINISH(12)             \
	TDPBUSD(3, 5, 7)       \
	DECODE4(load, 28)      \
	FETCH2(14)             \
	FINISH(13)             \
	FINISH(14)             \
	FINISH(15)             \
	ADDQ $4096, DX         \
	ADDQ $4096, DI         \
	ADDQ $4096, R11        \
	INCQ CX

// PREPARE reads the tokens of block p of the pair at (R8) from the plan. AX is the
// argument.
#define PREPARE(p, at, short, wide, coded, unscaled) \
	MOVL (p*8)(R8), CX                      \
	MOVQ rerank_Residuals(AX), SI           \
	MOVQ rerank_Codes(AX), DI               \
	MOVQ rerank_Factors(AX), DX             \
	BTRL $31, CX                            \
	JCC  short                              \
	MOVQ rerank_ShortResiduals(AX), SI      \
	MOVQ rerank_ShortCodes(AX), DI          \
	MOVQ rerank_ShortFactors(AX), DX        \
short:                                          \
	CMPQ rerank_CodeBytes(AX), $2           \
	JNE  wide                               \
	VPMOVZXWD (DI)(CX*2), Z0                \
	JMP  coded                              \
wide:                                           \
	VMOVDQU32 (DI)(CX*4), Z0                \
coded:                                          \
	VPSLLD $6, Z0, Z1                       \
	VMOVDQU32 Z1, (p*64)(R14)               \
	VPMOVZXWD (DX)(CX*2), Z1                \
	VPSLLD $16, Z1, Z2                      \
	VPORD Z2, Z1, Z1                        \
	VMOVDQU32 Z1, (p*64+128)(R14)           \
	TESTQ R15, R15                          \
	JEQ  unscaled                           \
	KXNORW K1, K1, K1                       \
	VPXORD Z1, Z1, Z1                       \
	VPGATHERDD (R15)(Z0*4), K1, Z1          \
	VMOVDQU32 Z1, (p*64+256)(R14)           \
unscaled:                                       \
	IMULQ R9, CX                            \
	ADDQ CX, SI                             \
	MOVQ SI, at

// AHEAD prefetches block p of a pair that will be decoded later. AX is the argument.
#define AHEAD(p, line, short) \
	MOVL (p*8+48)(R8), CX                   \
	TESTL CX, CX                            \
	JLT  short                              \
	MOVQ rerank_Factors(AX), DX             \
	PREFETCHT0 (DX)(CX*2)                   \
	MOVQ rerank_Codes(AX), DI               \
	MOVQ rerank_CodeBytes(AX), DX           \
	IMULQ CX, DX                            \
	PREFETCHT0 (DI)(DX*1)                   \
	IMULQ R9, CX                            \
	ADDQ rerank_Residuals(AX), CX           \
	MOVQ R9, DX                             \
	SHLQ $4, DX                             \
	ADDQ CX, DX                             \
line:                                           \
	PREFETCHT0 (CX)                         \
	ADDQ $64, CX                            \
	CMPQ CX, DX                             \
	JLT  line                               \
short:

// RERANK is the body of the functions. The scratch has the products of two pairs, the
// tokens of four, and the operands of two. The list begins with two pairs that
// are finished before anything was decoded, with row 0 of the scores, and ends
// with two that are decoded to finish those before them and three to look ahead.
#define RERANK(load) \
	MOVQ config+16(FP), AX             \
	LDTILECFG_AX                       \
	MOVQ win+8(FP), AX                   \
	VMOVDQU64 windows_from(AX), Z31      \
	VMOVDQU64 (windows_from+64)(AX), Z29 \
	VMOVDQU64 windows_mask(AX), Z30         \
	VMOVDQU64 (windows_mask+64)(AX), Z28    \
	MOVQ r+0(FP), AX                   \
	MOVQ rerank_Shift(AX), CX          \
	VMOVDQU32 (CX), Z27                \
	VMOVDQU32 64(CX), Z26              \
	MOVQ rerank_Offsets(AX), CX        \
	MOVQ CX, offsets-32(SP)            \
	MOVQ (rerank_Offsets+8)(AX), CX    \
	MOVQ CX, blocks-64(SP)             \
	MOVQ rerank_Best(AX), CX           \
	MOVQ CX, bests-40(SP)              \
	MOVQ rerank_Scratch(AX), R12       \
	MOVQ R12, products-56(SP)          \
	LEAQ 8192(R12), R14                \
	MOVQ R14, tokens-72(SP)            \
	LEAQ 10240(R12), R11               \
	MOVQ R11, decode-80(SP)            \
	MOVQ blocks-64(SP), CX             \
	SHLQ $12, CX                       \
	ADDQ R11, CX                       \
	MOVQ CX, multiply-88(SP)           \
	MOVQ rerank_RowBytes(AX), R9       \
	MOVQ rerank_Scores(AX), R10        \
	MOVQ rerank_Scales(AX), R15        \
	MOVQ $64, BX                       \
	MOVQ rerank_Blocks(AX), R8         \
	MOVQ (rerank_Blocks+8)(AX), CX     \
	LEAQ -48(R8)(CX*8), CX \
	MOVQ CX, end-96(SP)                \
	ADDQ $32, R8                       \
	VPXORD Z0, Z0, Z0 \
	VMOVDQU32 Z0, 1024(R14)            \
	VMOVDQU32 Z0, 1088(R14)            \
	VMOVDQU32 Z0, 1536(R14)            \
	VMOVDQU32 Z0, 1600(R14)            \
	MOVQ $0, turn-104(SP)              \
pair:                                      \
	MOVQ tokens-72(SP), R14            \
	MOVQ R14, R13                      \
	MOVQ turn-104(SP), CX              \
	ADDQ CX, R14                       \
	LEAQ 512(CX), DX                   \
	ANDQ $2047, DX                     \
	MOVQ DX, turn-104(SP)              \
	XORQ $1024, CX                     \
	ADDQ CX, R13                       \
	MOVQ r+0(FP), AX                   \
	PREPARE(0, row0-8(SP), short0, wide0, coded0, unscaled0)  \
	PREPARE(1, row1-16(SP), short1, wide1, coded1, unscaled1) \
	AHEAD(0, line0, ahead0)            \
	AHEAD(1, line1, ahead1)            \
	MOVQ rerank_Tiles(AX), DI          \
	MOVQ decode-80(SP), R11            \
	MOVQ multiply-88(SP), DX           \
	MOVQ R11, multiply-88(SP)          \
	MOVQ DX, decode-80(SP)             \
	MOVQ products-56(SP), R12          \
	MOVQ turn-104(SP), AX              \
	ANDQ $512, AX \
	LEAQ (R12)(AX*8), R12              \
	XORL CX, CX                        \
	TILEZERO(0)                        \
	TILEZERO(1)                        \
	TILEZERO(2)                        \
	TILEZERO(3)                        \
both:                                      \
	BEST                               \
	STEP(load, FINISH, FETCH2)         \
	KEEP                               \
	CMPQ CX, blocks-64(SP)             \
	JGE  multiplied                    \
	CMPQ CX, $2                        \
	JLT  both                          \
more:                                      \
	STEP(load, FINISH0, FETCH0)        \
	CMPQ CX, blocks-64(SP)             \
	JLT  more                          \
	JMP  store                         \
multiplied:                                \
	CMPQ CX, $2                        \
	JGE  store                         \
	BEST                               \
	FETCH2(0)                          \
	FETCH2(2)                          \
	FETCH2(4)                          \
	FETCH2(6)                          \
	FETCH2(8)                          \
	FETCH2(10)                         \
	FETCH2(12)                         \
	FETCH2(14)                         \
	FINISH(0)                          \
	FINISH(1)                          \
	FINISH(2)                          \
	FINISH(3)                          \
	FINISH(4)                          \
	FINISH(5)                          \
	FINISH(6)                          \
	FINISH(7)                          \
	FINISH(8)                          \
	FINISH(9)                          \
	FINISH(10)                         \
	FINISH(11)                         \
	FINISH(12)                         \
	FINISH(13)                         \
	FINISH(14)                         \
	FINISH(15)                         \
	KEEP                               \
store:                                     \
	MOVQ turn-104(SP), CX              \
	NOTQ CX                            \
	ANDQ $512, CX                      \
	MOVQ products-56(SP), AX           \
	LEAQ (AX)(CX*8), AX                \
	STORE_AX_BX(0, 0)                  \
	STORE_AX_BX(1, 1024)               \
	STORE_AX_BX(2, 2048)               \
	STORE_AX_BX(3, 3072)               \
	ADDQ $16, R8                       \
	CMPQ R8, end-96(SP)                \
	JLT  pair                          \
	TILERELEASE                        \
	VZEROUPPER                         \
	RET

// func rerank1(r *Rerank, win *windows, config *[64]byte)
TEXT ·rerank1(SB), NOSPLIT, $104-24
	RERANK(VPBROADCASTQ)

// func rerank2(r *Rerank, win *windows, config *[64]byte)
TEXT ·rerank2(SB), NOSPLIT, $104-24
	RERANK(VBROADCASTI64X2)

// func rerank4(r *Rerank, win *windows, config *[64]byte)
TEXT ·rerank4(SB), NOSPLIT, $104-24
	RERANK(VBROADCASTI64X4)

// func rerank8(r *Rerank, win *windows, config *[64]byte)
TEXT ·rerank8(SB), NOSPLIT, $104-24
	RERANK(VMOVDQU64)
