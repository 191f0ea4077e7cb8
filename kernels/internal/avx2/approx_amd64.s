//go:build !purego

#include "textflag.h"

//	DI  best of the document    R9  rows
//	CX  tokens left             AX, BX, DX, R8  codes of tokens
//	R10 codes                   R13 range
//	SI  codes of the token      AX to BX  codes of the next document, to prefetch
//	Y0 to Y3 running maxima

#define MAX2(n, reg, y) \
	MOVWLZX (n*2)(SI), reg   \
	SHLL    $5, reg          \
	VPMAXUB (R9)(reg*1), y, y

#define MAX4(n, reg, y) \
	MOVL    (n*4)(SI), reg   \
	SHLQ    $5, reg          \
	VPMAXUB (R9)(reg*1), y, y

#define FETCH2(n, reg) \
	MOVWLZX (n*2)(SI), reg   \
	SHLL    $5, reg          \
	PREFETCHT0 (R9)(reg*1)

#define FETCH4(n, reg) \
	MOVL    (n*4)(SI), reg   \
	SHLQ    $5, reg          \
	PREFETCHT0 (R9)(reg*1)

#define APPROX(MAX, FETCH, log) \
	MOVQ  best_base+0(FP), DI        \
	MOVQ  ranges_base+24(FP), R13    \
	MOVQ  ranges_len+32(FP), R15     \
	LEAQ  (R13)(R15*8), R15          \
	MOVQ  rows_base+48(FP), R9       \
	MOVQ  codes_base+72(FP), R10     \
document:                                \
	CMPQ  R13, R15                   \
	JEQ   return                     \
	MOVL  0(R13), SI                 \
	MOVL  4(R13), CX                 \
	SUBQ  SI, CX                     \
	JLE   next                       \
	LEAQ  8(R13), AX                 \
	CMPQ  AX, R15                    \
	JEQ   last                       \
	MOVL  8(R13), AX                 \
	MOVL  12(R13), BX                \
	SHLQ  $log, AX                   \
	SHLQ  $log, BX                   \
	LEAQ  2048(AX), DX               \
	CMPQ  BX, DX                     \
	CMOVQGT DX, BX                   \
	ADDQ  R10, AX                    \
	ADDQ  R10, BX                    \
	ANDQ  $~63, AX                   \
ahead:                                   \
	PREFETCHT0 (AX)                  \
	ADDQ  $64, AX                    \
	CMPQ  AX, BX                     \
	JCS   ahead                      \
last:                                    \
	SHLQ  $log, SI                   \
	ADDQ  R10, SI                    \
	VMOVDQU (DI), Y0                 \
	VPXOR Y1, Y1, Y1                 \
	VPXOR Y2, Y2, Y2                 \
	VPXOR Y3, Y3, Y3                 \
	SUBQ  $24, CX                    \
	JLT   few                        \
eight:                                   \
	FETCH(16, AX)                    \
	FETCH(17, BX)                    \
	FETCH(18, DX)                    \
	FETCH(19, R8)                    \
	FETCH(20, AX)                    \
	FETCH(21, BX)                    \
	FETCH(22, DX)                    \
	FETCH(23, R8)                    \
	MAX(0, AX, Y0)                   \
	MAX(1, BX, Y1)                   \
	MAX(2, DX, Y2)                   \
	MAX(3, R8, Y3)                   \
	MAX(4, AX, Y0)                   \
	MAX(5, BX, Y1)                   \
	MAX(6, DX, Y2)                   \
	MAX(7, R8, Y3)                   \
	ADDQ  $(8<<log), SI              \
	SUBQ  $8, CX                     \
	JGE   eight                      \
few:                                     \
	ADDQ  $20, CX                    \
	JLT   rest                       \
four:                                    \
	MAX(0, AX, Y0)                   \
	MAX(1, BX, Y1)                   \
	MAX(2, DX, Y2)                   \
	MAX(3, R8, Y3)                   \
	ADDQ  $(4<<log), SI              \
	SUBQ  $4, CX                     \
	JGE   four                       \
rest:                                    \
	ADDQ  $4, CX                     \
	JEQ   done                       \
one:                                     \
	MAX(0, AX, Y0)                   \
	ADDQ  $(1<<log), SI              \
	DECQ  CX                         \
	JNZ   one                        \
done:                                    \
	VPMAXUB Y1, Y0, Y0               \
	VPMAXUB Y3, Y2, Y2               \
	VPMAXUB Y2, Y0, Y0               \
	VMOVDQU Y0, (DI)                 \
next:                                    \
	ADDQ  $32, DI                    \
	ADDQ  $8, R13                    \
	JMP   document                   \
return:                                  \
	VZEROUPPER                       \
	RET

// func MaxBytes2(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)
TEXT ·MaxBytes2(SB), NOSPLIT, $0-96
	APPROX(MAX2, FETCH2, 1)

// func MaxBytes4(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)
TEXT ·MaxBytes4(SB), NOSPLIT, $0-96
	APPROX(MAX4, FETCH4, 2)
