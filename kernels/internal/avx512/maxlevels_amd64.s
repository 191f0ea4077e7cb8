//go:build !purego

#include "textflag.h"

// Four tokens at a time: their levels are unpacked to bytes, one plane for each
// field of a residual byte, and multiplied with 32 query tokens. A step of the
// product takes four bytes of each token; a query token's four bytes for it lie
// in one 32-bit lane.
//
//	BX  token             CX  end of the document
//	R13 range             DI  best of the document
//	R8  bytes of a token  R9  three times that
//	Z0-Z7    sums of tokens 0 to 3, query tokens 0-15 and 16-31
//	Z8-Z15   more of them; sums of the low parts of the query, if there are two
//	Z22, Z23 running maxima
//	Z24, Z25 unit         Z26, Z27 mid
//	Z28 mask of a field   X29 its width   Z30 1
//	Z31 −32768
//	K1, K2   query tokens in use

#define STEP(offset, a, b, c, d, e, f, g, h) \
	VMOVDQU32 offset(DX), Z16      \
	VMOVDQU32 (offset+64)(DX), Z17 \
	VPDPBUSD  Z16, Z18, a          \
	VPDPBUSD  Z17, Z18, b          \
	VPDPBUSD  Z16, Z19, c          \
	VPDPBUSD  Z17, Z19, d          \
	VPDPBUSD  Z16, Z20, e          \
	VPDPBUSD  Z17, Z20, f          \
	VPDPBUSD  Z16, Z21, g          \
	VPDPBUSD  Z17, Z21, h

#define QUADS(n) \
	VPBROADCASTD n(SI), Z18        \
	VPBROADCASTD n(SI)(R8*1), Z19  \
	VPBROADCASTD n(SI)(R8*2), Z20  \
	VPBROADCASTD n(SI)(R9*1), Z21

// CODE loads the code of token r.
#define CODE(r, out, wide, done) \
	MOVQ codes_base+136(FP), AX   \
	CMPQ codeBytes+160(FP), $2    \
	JNE  wide                     \
	MOVWLZX (AX)(r*2), out        \
	JMP  done                     \
wide:                                 \
	MOVL (AX)(r*4), out           \
done:

// SCORE raises the maxima to factor · (S + a · (mid + unit · sum)) of token BX,
// each operation rounded, and goes to the next token, if there is one.
#define SCORE(a, b, wide, coded, scaled, words, scores, done) \
	CODE(BX, R10, wide, coded)              \
	VMOVAPS Z30, Z16                        \
	MOVQ    scales_base+224(FP), AX         \
	TESTQ   AX, AX                          \
	JEQ     scaled                          \
	VBROADCASTSS (AX)(R10*4), Z16           \
scaled:                                         \
	MOVQ    words_base+280(FP), AX          \
	TESTQ   AX, AX                          \
	JNE     words                           \
	IMULQ   stride+248(FP), R10             \
	MOVQ    scores_base+112(FP), AX         \
	VMOVUPS.Z (AX)(R10*4), K1, Z18          \
	VMOVUPS.Z 64(AX)(R10*4), K2, Z19        \
	JMP     scores                          \
words:                                          \
	SHLQ    $6, R10                         \
	MOVQ    step+304(FP), R12               \
	VPMOVZXWD (AX)(R10*1), Z18              \
	VPMOVZXWD 32(AX)(R10*1), Z19            \
	VPADDD  Z31, Z18, Z18                   \
	VPADDD  Z31, Z19, Z19                   \
	VCVTDQ2PS Z18, Z18                      \
	VCVTDQ2PS Z19, Z19                      \
	VMULPS  (R12), Z18, Z18                 \
	VMULPS  64(R12), Z19, Z19               \
scores:                                         \
	MOVQ    factors_base+200(FP), AX        \
	MOVWLSX (AX)(BX*2), AX                  \
	VPBROADCASTD AX, Z17                    \
	VCVTDQ2PS Z17, Z17                      \
	VCVTDQ2PS a, a                          \
	VCVTDQ2PS b, b                          \
	VMULPS  Z24, a, a                       \
	VMULPS  Z25, b, b                       \
	VADDPS  Z26, a, a                       \
	VADDPS  Z27, b, b                       \
	VMULPS  Z16, a, a                       \
	VMULPS  Z16, b, b                       \
	VADDPS  Z18, a, a                       \
	VADDPS  Z19, b, b                       \
	VMULPS  Z17, a, a                       \
	VMULPS  Z17, b, b                       \
	VMAXPS  Z22, a, Z22                     \
	VMAXPS  Z23, b, Z23                     \
	INCQ    BX                              \
	CMPQ    BX, CX                          \
	JGE     done

// FETCH prefetches the row of S, or its words, of token BX + n.
#define FETCH(n, wide, coded, words, none) \
	LEAQ n(BX), R12               \
	CMPQ R12, CX                  \
	JGE  none                     \
	CODE(R12, R10, wide, coded)   \
	MOVQ  words_base+280(FP), AX  \
	TESTQ AX, AX                  \
	JNE   words                   \
	IMULQ stride+248(FP), R10     \
	MOVQ  scores_base+112(FP), AX \
	PREFETCHT0 (AX)(R10*4)        \
	PREFETCHT0 64(AX)(R10*4)      \
	JMP   none                    \
words:                                \
	SHLQ  $6, R10                 \
	PREFETCHT0 (AX)(R10*1)        \
none:

// func MaxLevels(best [][32]float32, ranges [][2]uint32, query []byte, levels []byte, nbits, parts int, scores []float32, codes []byte, codeBytes, rowBytes int, residuals, factors []byte, scales []float32, stride, n int, mid, unit *[32]float32, words [][8]uint64, step *[32]float32)
TEXT ·MaxLevels(SB), NOSPLIT, $32-312
	MOVQ  n+256(FP), CX
	MOVQ  $1, AX
	SHLQ  CX, AX
	DECQ  AX
	KMOVW AX, K1
	SHRQ  $16, AX
	KMOVW AX, K2
	MOVQ  mid+264(FP), AX
	VMOVUPS (AX), Z26
	VMOVUPS 64(AX), Z27
	MOVQ  unit+272(FP), AX
	VMOVUPS (AX), Z24
	VMOVUPS 64(AX), Z25
	MOVL  $0x3f800000, AX
	VPBROADCASTD AX, Z30
	MOVL  $-32768, AX
	VPBROADCASTD AX, Z31
	MOVQ  nbits+96(FP), CX
	VMOVQ CX, X29
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX
	VPBROADCASTB AX, Z28
	MOVL  $8, AX
	XORL  DX, DX
	DIVL  CX
	MOVQ  AX, planes-8(SP)
	MOVQ  rowBytes+168(FP), R8
	LEAQ  (R8)(R8*2), R9
	// A plane has four tokens, and room for one more vector.
	LEAQ  64(R8*4), AX
	MOVQ  AX, plane-16(SP)
	MOVQ  best_base+0(FP), DI
	MOVQ  ranges_base+24(FP), R13
	MOVQ  ranges_len+32(FP), AX
	LEAQ  (R13)(AX*8), AX
	MOVQ  AX, end-24(SP)

document:
	CMPQ R13, end-24(SP)
	JEQ  return
	MOVL 0(R13), BX
	MOVL 4(R13), CX
	CMPQ BX, CX
	JGE  next
	VMOVUPS (DI), Z22
	VMOVUPS 64(DI), Z23

	// The start of the next document.
	LEAQ 8(R13), AX
	CMPQ AX, end-24(SP)
	JEQ  block
	MOVL 8(R13), R12
	MOVQ R8, R10
	IMULQ R12, R10
	ADDQ residuals_base+176(FP), R10
	PREFETCHT0 (R10)
	PREFETCHT0 64(R10)
	PREFETCHT0 128(R10)
	PREFETCHT0 192(R10)
	PREFETCHT0 256(R10)
	PREFETCHT0 320(R10)
	PREFETCHT0 384(R10)
	PREFETCHT0 448(R10)
	PREFETCHT0 512(R10)
	PREFETCHT0 576(R10)
	PREFETCHT0 640(R10)
	PREFETCHT0 704(R10)
	PREFETCHT0 768(R10)
	PREFETCHT0 832(R10)
	PREFETCHT0 896(R10)
	PREFETCHT0 960(R10)
	MOVQ factors_base+200(FP), R10
	PREFETCHT0 (R10)(R12*2)
	MOVQ codes_base+136(FP), R10
	IMULQ codeBytes+160(FP), R12
	PREFETCHT0 (R10)(R12*1)

block:
	FETCH(4, fwide0, fcoded0, fwords0, fnone0)
	FETCH(5, fwide1, fcoded1, fwords1, fnone1)
	FETCH(6, fwide2, fcoded2, fwords2, fnone2)
	FETCH(7, fwide3, fcoded3, fwords3, fnone3)

	// Unpack min(4, CX−BX) tokens.
	MOVQ  CX, R10
	SUBQ  BX, R10
	CMPQ  R10, $4
	JLE   counted
	MOVL  $4, R10
counted:
	IMULQ R8, R10
	MOVQ  BX, SI
	IMULQ R8, SI
	ADDQ  residuals_base+176(FP), SI
	MOVQ  levels_base+72(FP), DX
unpack:
	MOVQ  $-1, AX
	KMOVQ AX, K3
	CMPQ  R10, $64
	JGE   whole
	BZHIQ R10, AX, AX
	KMOVQ AX, K3
whole:
	PREFETCHT0 1024(SI)
	VMOVDQU8.Z (SI), K3, Z0
	MOVQ  DX, R12
	MOVQ  planes-8(SP), R11
field:
	VPANDD Z28, Z0, Z1
	VMOVDQU32 Z1, (R12)
	VPSRLW X29, Z0, Z0
	ADDQ  plane-16(SP), R12
	DECQ  R11
	JNZ   field
	ADDQ  $64, SI
	ADDQ  $64, DX
	SUBQ  $64, R10
	JG    unpack

	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	VPXORD Z12, Z12, Z12
	VPXORD Z13, Z13, Z13
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15
	MOVQ  query_base+48(FP), DX
	MOVQ  levels_base+72(FP), R12
	MOVQ  planes-8(SP), R11
	CMPQ  parts+104(FP), $2
	JEQ   both

plane:
	MOVQ  R12, SI
	LEAQ  3(R8), R10
	SHRQ  $2, R10
	SUBQ  $2, R10
	JLT   odd
step: // two quads, for sixteen chains of sums
	QUADS(0)
	STEP(0, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	QUADS(4)
	STEP(128, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	ADDQ  $8, SI
	ADDQ  $256, DX
	SUBQ  $2, R10
	JGE   step
odd:
	CMPQ  R10, $-1
	JNE   even
	QUADS(0)
	STEP(0, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	ADDQ  $128, DX
even:
	ADDQ  plane-16(SP), R12
	DECQ  R11
	JNZ   plane
	JMP   added

both:
	MOVQ  R12, SI
	LEAQ  3(R8), R10
	SHRQ  $2, R10
step2:
	QUADS(0)
	STEP(0, Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	STEP(128, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	ADDQ  $4, SI
	ADDQ  $256, DX
	DECQ  R10
	JNZ   step2
	ADDQ  plane-16(SP), R12
	DECQ  R11
	JNZ   both

	// 256 · high, to which low is added
	VPSLLD $8, Z0, Z0
	VPSLLD $8, Z1, Z1
	VPSLLD $8, Z2, Z2
	VPSLLD $8, Z3, Z3
	VPSLLD $8, Z4, Z4
	VPSLLD $8, Z5, Z5
	VPSLLD $8, Z6, Z6
	VPSLLD $8, Z7, Z7

added:
	VPADDD Z8, Z0, Z0
	VPADDD Z9, Z1, Z1
	VPADDD Z10, Z2, Z2
	VPADDD Z11, Z3, Z3
	VPADDD Z12, Z4, Z4
	VPADDD Z13, Z5, Z5
	VPADDD Z14, Z6, Z6
	VPADDD Z15, Z7, Z7

	SCORE(Z0, Z1, swide0, scoded0, scaled0, words0, scores0, scored)
	SCORE(Z2, Z3, swide1, scoded1, scaled1, words1, scores1, scored)
	SCORE(Z4, Z5, swide2, scoded2, scaled2, words2, scores2, scored)
	SCORE(Z6, Z7, swide3, scoded3, scaled3, words3, scores3, scored)
	JMP  block

scored:
	VMOVUPS Z22, (DI)
	VMOVUPS Z23, 64(DI)

next:
	ADDQ $128, DI
	ADDQ $8, R13
	JMP  document

return:
	VZEROUPPER
	RET
