//go:build !purego

#include "textflag.h"

//	SI, DI      the row, and its levels        R9, R8  bytes of both
//	R10         whole strips of 16 dimensions  R12     bytes of the levels beyond those
//	R13, R14    units, sums                    R11     rows left
//	K1, K2      dimensions of the last strip, and its levels
//	Z28, Z29    sums of squares of the values and of the errors
//	Z30, Z31    constants

// SUMS stores the sums of the lanes of Z28 and Z29, side by side, and goes on to the
// next row.
#define SUMS(row) \
	VUNPCKLPS Z28, Z29, Z0        \
	VUNPCKHPS Z28, Z29, Z1        \
	VADDPS Z1, Z0, Z0             \
	VEXTRACTF64X4 $1, Z0, Y1      \
	VADDPS Y1, Y0, Y0             \
	VEXTRACTF128 $1, Y0, X1       \
	VADDPS X1, X0, X0             \
	VPSHUFD $0x4e, X0, X1         \
	VADDPS X1, X0, X0             \
	VMOVSD X0, (R14)              \
	ADDQ $4, R13                  \
	ADDQ $8, R14                  \
	ADDQ R9, SI                   \
	ADDQ R8, DI                   \
	DECQ R11                      \
	JNZ  row

// BYTES rounds the strip in Z4, to X6; Z2 is 1/unit, Z3 the unit.
#define BYTES \
	VMULPS Z4, Z2, Z5             \
	VCVTPS2DQ Z5, Z5              \
	VFMADD231PS Z4, Z4, Z28       \
	VPXORD Z30, Z5, Z6            \
	VPMOVDB Z6, X6                \
	VCVTDQ2PS Z5, Z5              \
	VFNMADD231PS Z3, Z5, Z4       \
	VFMADD231PS Z4, Z4, Z29

// func RoundBytes(dst []byte, stride int, rows []float32, dim int, units []float32, sums [][2]float32)
TEXT ·RoundBytes(SB), NOSPLIT, $0-112
	MOVQ dst_base+0(FP), DI
	MOVQ stride+24(FP), R8
	MOVQ rows_base+32(FP), SI
	MOVQ dim+56(FP), R9
	MOVQ units_base+64(FP), R13
	MOVQ units_len+72(FP), R11
	MOVQ sums_base+88(FP), R14
	MOVQ R9, R10
	SHRQ $4, R10
	MOVQ R10, R12
	SHLQ $4, R12
	NEGQ R12
	ADDQ R8, R12
	MOVQ R9, CX
	ANDL $15, CX
	MOVL $1, AX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K1
	MOVL $1, AX
	MOVL R12, CX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K2
	SHLQ $2, R9
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z31
	MOVL $0x80, AX
	VPBROADCASTD AX, Z30
	MOVL $0x42fe0000, AX          // 127
	VMOVD AX, X26
	MOVL $0x3c010204, AX          // 1/127
	VMOVD AX, X27
	TESTQ R11, R11
	JEQ  done

row:
	VPXORD Z28, Z28, Z28
	VPXORD Z29, Z29, Z29
	VPXORD Z0, Z0, Z0
	MOVQ SI, AX
	MOVQ R10, CX
	TESTQ CX, CX
	JEQ  mosttail

most:
	VPANDD (AX), Z31, Z1
	VMAXPS Z1, Z0, Z0
	ADDQ $64, AX
	DECQ CX
	JNZ  most

mosttail:
	VMOVUPS.Z (AX), K1, Z1
	VPANDD Z31, Z1, Z1
	VMAXPS Z1, Z0, Z0
	VEXTRACTF64X4 $1, Z0, Y1
	VMAXPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VMAXPS X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VMAXPS X1, X0, X0
	VDIVSS X0, X26, X2
	VMULSS X0, X27, X3
	VMOVSS X3, (R13)
	VBROADCASTSS X2, Z2
	VBROADCASTSS X3, Z3
	MOVQ SI, AX
	MOVQ DI, BX
	MOVQ R10, CX
	TESTQ CX, CX
	JEQ  tail

strip:
	VMOVUPS (AX), Z4
	BYTES
	VMOVDQU X6, (BX)
	ADDQ $64, AX
	ADDQ $16, BX
	DECQ CX
	JNZ  strip

tail:
	TESTQ R12, R12
	JEQ  sums
	VMOVUPS.Z (AX), K1, Z4
	BYTES
	VMOVDQU8 X6, K2, (BX)

sums:
	SUMS(row)

done:
	VZEROUPPER
	RET

// HALVES rounds the strip in Z4 to the nearest bfloat16, of two to the even one, to Y6.
#define HALVES \
	VPSRLD $16, Z4, Z5            \
	VPANDD Z31, Z5, Z5            \
	VPADDD Z30, Z5, Z5            \
	VPADDD Z4, Z5, Z5             \
	VPSRLD $16, Z5, Z5            \
	VPMOVDW Z5, Y6                \
	VPSLLD $16, Z5, Z5            \
	VFMADD231PS Z4, Z4, Z28       \
	VSUBPS Z5, Z4, Z4             \
	VFMADD231PS Z4, Z4, Z29

// func RoundHalves(dst []byte, stride int, rows []float32, dim int, units []float32, sums [][2]float32)
TEXT ·RoundHalves(SB), NOSPLIT, $0-112
	MOVQ dst_base+0(FP), DI
	MOVQ stride+24(FP), R8
	MOVQ rows_base+32(FP), SI
	MOVQ dim+56(FP), R9
	MOVQ units_base+64(FP), R13
	MOVQ units_len+72(FP), R11
	MOVQ sums_base+88(FP), R14
	MOVQ R9, R10
	SHRQ $4, R10
	MOVQ R10, R12
	SHLQ $5, R12
	NEGQ R12
	ADDQ R8, R12
	MOVQ R9, CX
	ANDL $15, CX
	MOVL $1, AX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K1
	SHLQ $2, R9
	MOVL $1, AX
	VPBROADCASTD AX, Z31
	MOVL $0x7fff, AX
	VPBROADCASTD AX, Z30
	MOVL $0x3f800000, DX          // 1
	TESTQ R11, R11
	JEQ  halvesdone

halvesrow:
	VPXORD Z28, Z28, Z28
	VPXORD Z29, Z29, Z29
	MOVL DX, (R13)
	MOVQ SI, AX
	MOVQ DI, BX
	MOVQ R10, CX
	TESTQ CX, CX
	JEQ  halvestail

halvesstrip:
	VMOVUPS (AX), Z4
	HALVES
	VMOVDQU Y6, (BX)
	ADDQ $64, AX
	ADDQ $32, BX
	DECQ CX
	JNZ  halvesstrip

halvestail:
	TESTQ R12, R12
	JEQ  halvessums
	VMOVUPS.Z (AX), K1, Z4
	HALVES
	VMOVDQU Y6, (BX)
	CMPQ R12, $32
	JEQ  halvessums
	VPXOR Y6, Y6, Y6
	VMOVDQU Y6, 32(BX)

halvessums:
	SUMS(halvesrow)

halvesdone:
	VZEROUPPER
	RET
