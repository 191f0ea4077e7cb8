//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "tiles_amd64.h"

// Block by block of 16 tokens: while one is multiplied, the next is decoded and
// the one before it finished. The tile instructions come first and take long, so
// the processor does the others meanwhile.
//
//	AX, CX  scratch                        BX   64, the stride of tiles
//	DX      operand to multiply            DI   tiles of the query
//	SI      residual of the row to decode  R8   the block to multiply
//	R9      bytes of a residual            R10  rows of scores
//	R11     operand to decode to           R12  products
//	R13     tokens of a block              R14  bytes of a row of scores
//	R15     scales, or 0
//	Z31, Z30 window and mask               Z24, Z25 unit    Z26, Z27 mid
//	Z22, Z23 maxima of the document        K1, K2 query tokens in use
//
// Tiles 0 to 3 are the products with the high part of the query, of either half,
// and with the low part; 4 is the operand of the block, 5 to 7 those of the query.
// The tokens of a block are 16 words each of codes, factors and scales.

// UNPACK writes 64 fields of the residual at SI to row u of the operand.
#define UNPACK(load, u) \
	load (SI), Z0                \
	ADDQ R9, SI                  \
	VPMULTISHIFTQB Z0, Z31, Z1   \
	VPANDQ Z30, Z1, Z1           \
	VMOVDQU64 Z1, (u*64)(R11)

#define UNPACK4(load, u) \
	UNPACK(load, (u+0)) \
	UNPACK(load, (u+1)) \
	UNPACK(load, (u+2)) \
	UNPACK(load, (u+3))

// ROW prefetches the row of scores of token u.
#define ROW(u) \
	MOVL (u*4)(R13), AX      \
	IMULQ R14, AX            \
	PREFETCHT0 (R10)(AX*1)   \
	PREFETCHT0 64(R10)(AX*1)

// RAISE raises the maxima to factor · (S + a · (mid + unit · sum)) of token u, each
// operation rounded; the sum is 256 · high + low.
#define RAISE(u) \
	MOVL (u*4)(R13), AX                   \
	IMULQ R14, AX                         \
	VMOVDQU32 (u*64)(R12), Z0             \
	VMOVDQU32 (u*64+1024)(R12), Z1        \
	VPSLLD $8, Z0, Z0                     \
	VPSLLD $8, Z1, Z1                     \
	VPADDD (u*64+2048)(R12), Z0, Z0       \
	VPADDD (u*64+3072)(R12), Z1, Z1       \
	VCVTDQ2PS Z0, Z0                      \
	VCVTDQ2PS Z1, Z1                      \
	VMULPS Z24, Z0, Z0                    \
	VMULPS Z25, Z1, Z1                    \
	VADDPS Z26, Z0, Z0                    \
	VADDPS Z27, Z1, Z1                    \
	VMULPS.BCST (u*4+128)(R13), Z0, Z0    \
	VMULPS.BCST (u*4+128)(R13), Z1, Z1    \
	VMOVUPS.Z (R10)(AX*1), K1, Z2         \
	VMOVUPS.Z 64(R10)(AX*1), K2, Z3       \
	VADDPS Z2, Z0, Z0                     \
	VADDPS Z3, Z1, Z1                     \
	VMULPS.BCST (u*4+64)(R13), Z0, Z0     \
	VMULPS.BCST (u*4+64)(R13), Z1, Z1     \
	VMAXPS Z22, Z0, Z22                   \
	VMAXPS Z23, Z1, Z23

// FINE is the body of the functions. The scratch has the products of two blocks, the
// tokens of four and the operands of two. The entries before the first block name an
// extra document and row 0 of the scores: it receives the products of operands that are
// not decoded yet, and the maxima of products that are not computed yet.
#define FINE(load) \
	MOVQ config+16(FP), AX             \
	LDTILECFG_AX                       \
	MOVQ win+8(FP), AX                 \
	VMOVDQU64 window_from(AX), Z31     \
	VMOVDQU64 window_mask(AX), Z30     \
	MOVQ f+0(FP), AX                   \
	MOVQ fine_Mid(AX), CX              \
	VMOVUPS (CX), Z26                  \
	VMOVUPS 64(CX), Z27                \
	MOVQ fine_Unit(AX), CX             \
	VMOVUPS (CX), Z24                  \
	VMOVUPS 64(CX), Z25                \
	MOVQ fine_N(AX), CX                \
	MOVQ $1, DX                        \
	SHLQ CX, DX                        \
	DECQ DX                            \
	KMOVW DX, K1                       \
	SHRQ $16, DX                       \
	KMOVW DX, K2                       \
	MOVQ fine_Stride(AX), R14          \
	SHLQ $2, R14                       \
	MOVQ fine_Rows(AX), R10            \
	MOVQ fine_RowScales(AX), R15       \
	MOVQ rerank_RowBytes(AX), R9       \
	MOVQ rerank_Scratch(AX), R12       \
	MOVQ R12, products-8(SP)           \
	LEAQ 8192(R12), CX                 \
	MOVQ CX, tokens-16(SP)             \
	VPXORD Z0, Z0, Z0                  \
	VMOVDQU32 Z0, (CX)                 \
	VMOVDQU32 Z0, 64(CX)               \
	VMOVDQU32 Z0, 128(CX)              \
	VMOVDQU32 Z0, 256(CX)              \
	VMOVDQU32 Z0, 320(CX)              \
	VMOVDQU32 Z0, 384(CX)              \
	LEAQ 9216(R12), CX                 \
	MOVQ CX, decode-24(SP)             \
	MOVQ (rerank_Offsets+8)(AX), DX    \
	SHLQ $10, DX                       \
	ADDQ DX, CX                        \
	MOVQ CX, multiply-32(SP)           \
	MOVQ rerank_Blocks(AX), R8         \
	MOVQ (rerank_Blocks+8)(AX), CX     \
	LEAQ -72(R8)(CX*8), CX             \
	MOVQ CX, end-40(SP)                \
	ADDQ $24, R8                       \
	MOVQ $512, turn-48(SP)             \
	MOVQ $64, BX                       \
block:                                     \
	TILEZERO(0)                        \
	TILEZERO(1)                        \
	TILEZERO(2)                        \
	TILEZERO(3)                        \
	MOVQ f+0(FP), AX                   \
	MOVQ rerank_Tiles(AX), DI          \
	MOVQ multiply-32(SP), DX           \
	MOVQ decode-24(SP), R11            \
	MOVQ R11, multiply-32(SP)          \
	MOVQ DX, decode-24(SP)             \
	MOVQ (rerank_Offsets+8)(AX), CX    \
fields:                                    \
	LOAD_DX_BX(4, 0)                   \
	LOAD_DI_BX(5, 0)                   \
	TDPBUSD(0, 4, 5)                   \
	LOAD_DI_BX(6, 1024)                \
	TDPBUSD(1, 4, 6)                   \
	LOAD_DI_BX(7, 2048)                \
	TDPBUSD(2, 4, 7)                   \
	LOAD_DI_BX(5, 3072)                \
	TDPBUSD(3, 4, 5)                   \
	ADDQ $1024, DX                     \
	ADDQ $4096, DI                     \
	DECQ CX                            \
	JNZ  fields                        \
	MOVQ turn-48(SP), CX               \
	MOVQ tokens-16(SP), R13            \
	ADDQ CX, R13                       \
	ADDQ $256, CX                      \
	ANDQ $1023, CX                     \
	MOVQ CX, turn-48(SP)               \
	MOVL 8(R8), CX                     \
	MOVQ rerank_Residuals(AX), SI      \
	MOVQ rerank_Codes(AX), DI          \
	MOVQ rerank_Factors(AX), DX        \
	BTRL $31, CX                       \
	JCC  whole                         \
	MOVQ rerank_ShortResiduals(AX), SI \
	MOVQ rerank_ShortCodes(AX), DI     \
	MOVQ rerank_ShortFactors(AX), DX   \
whole:                                     \
	CMPQ rerank_CodeBytes(AX), $2      \
	JNE  wide                          \
	VPMOVZXWD (DI)(CX*2), Z0           \
	JMP  coded                         \
wide:                                      \
	VMOVDQU32 (DI)(CX*4), Z0           \
coded:                                     \
	VMOVDQU32 Z0, (R13)                \
	VPMOVSXWD (DX)(CX*2), Z1           \
	VCVTDQ2PS Z1, Z1                   \
	VMOVUPS Z1, 64(R13)                \
	MOVL $0x3f800000, DX               \
	VPBROADCASTD DX, Z1                \
	TESTQ R15, R15                     \
	JEQ  unscaled                      \
	KXNORW K3, K3, K3                  \
	VGATHERDPS (R15)(Z0*4), K3, Z1     \
unscaled:                                  \
	VMOVUPS Z1, 128(R13)               \
	IMULQ R9, CX                       \
	ADDQ CX, SI                        \
	MOVQ SI, row-56(SP)                \
	ROW(0)                             \
	ROW(1)                             \
	ROW(2)                             \
	ROW(3)                             \
	ROW(4)                             \
	ROW(5)                             \
	ROW(6)                             \
	ROW(7)                             \
	ROW(8)                             \
	ROW(9)                             \
	ROW(10)                            \
	ROW(11)                            \
	ROW(12)                            \
	ROW(13)                            \
	ROW(14)                            \
	ROW(15)                            \
	MOVQ f+0(FP), AX                   \
	MOVL 32(R8), CX                    \
	TESTL CX, CX                       \
	JLT  near                          \
	MOVQ rerank_Factors(AX), DX        \
	PREFETCHT0 (DX)(CX*2)              \
	MOVQ rerank_Codes(AX), DI          \
	MOVQ rerank_CodeBytes(AX), DX      \
	IMULQ CX, DX                       \
	PREFETCHT0 (DI)(DX*1)              \
	IMULQ R9, CX                       \
	ADDQ rerank_Residuals(AX), CX      \
	MOVQ R9, DX                        \
	SHLQ $4, DX                        \
	ADDQ CX, DX                        \
line:                                      \
	PREFETCHT0 (CX)                    \
	ADDQ $64, CX                       \
	CMPQ CX, DX                        \
	JLT  line                          \
near:                                      \
	MOVQ rerank_Offsets(AX), DI        \
	MOVQ (rerank_Offsets+8)(AX), CX    \
unpack:                                    \
	MOVQ row-56(SP), SI                \
	ADDQ (DI), SI                      \
	UNPACK4(load, 0)                   \
	UNPACK4(load, 4)                   \
	UNPACK4(load, 8)                   \
	UNPACK4(load, 12)                  \
	ADDQ $1024, R11                    \
	ADDQ $8, DI                        \
	DECQ CX                            \
	JNZ  unpack                        \
	MOVQ tokens-16(SP), R13            \
	MOVQ turn-48(SP), CX               \
	LEAQ 256(CX), DX                   \
	ANDQ $1023, DX                     \
	ADDQ DX, R13                       \
	MOVQ products-8(SP), R12           \
	ANDQ $256, CX                      \
	SHLQ $4, CX                        \
	LEAQ (R12)(CX*1), DX               \
	XORQ $4096, CX                     \
	ADDQ CX, R12                       \
	MOVL -4(R8), CX                    \
	SHLQ $7, CX                        \
	ADDQ fine_Maxima(AX), CX           \
	VMOVUPS (CX), Z22                  \
	VMOVUPS 64(CX), Z23                \
	RAISE(0)                           \
	RAISE(1)                           \
	RAISE(2)                           \
	RAISE(3)                           \
	RAISE(4)                           \
	RAISE(5)                           \
	RAISE(6)                           \
	RAISE(7)                           \
	RAISE(8)                           \
	RAISE(9)                           \
	RAISE(10)                          \
	RAISE(11)                          \
	RAISE(12)                          \
	RAISE(13)                          \
	RAISE(14)                          \
	RAISE(15)                          \
	VMOVUPS Z22, (CX)                  \
	VMOVUPS Z23, 64(CX)                \
	MOVQ DX, AX                        \
	STORE_AX_BX(0, 0)                  \
	STORE_AX_BX(1, 1024)               \
	STORE_AX_BX(2, 2048)               \
	STORE_AX_BX(3, 3072)               \
	ADDQ $8, R8                        \
	CMPQ R8, end-40(SP)                \
	JLT  block                         \
	TILERELEASE                        \
	VZEROUPPER                         \
	RET

// func fine1(f *fine, win *window, config *[64]byte)
TEXT ·fine1(SB), NOSPLIT, $56-24
	FINE(VPBROADCASTQ)

// func fine2(f *fine, win *window, config *[64]byte)
TEXT ·fine2(SB), NOSPLIT, $56-24
	FINE(VBROADCASTI64X2)

// func fine4(f *fine, win *window, config *[64]byte)
TEXT ·fine4(SB), NOSPLIT, $56-24
	FINE(VBROADCASTI64X4)

// func fine8(f *fine, win *window, config *[64]byte)
TEXT ·fine8(SB), NOSPLIT, $56-24
	FINE(VMOVDQU64)
