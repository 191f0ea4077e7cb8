//go:build !purego

#include "textflag.h"

//	SI  products              R10  the row
//	DI  words                 R8   bytes
//	R9  rows found            R11  how many       AX  columns that are above
//	DX  scales, or 0          CX   rows
//	Z16 to Z19  units of the bytes    Z20 to Z23  of the words
//	Z24, Z25    limits                Z26         bias
//	Z27         0
//	Z29, Z30    orders of the bytes of two rows after packing, and of words

// PREFETCHW at(base) for stores
#define PREFETCHW_DI(at) BYTE $0x0f; BYTE $0x0d; BYTE $0x8f; LONG $at
#define PREFETCHW_R8(at) BYTE $0x41; BYTE $0x0f; BYTE $0x0d; BYTE $0x88; LONG $at

// ROW writes the words of row u from here and leaves its bytes as 16 bits in y. It notes the
// row in any case: the next one overwrites it unless it is above.
#define ROW(u, x, y, unscaled) \
	VMOVUPS (u*128)(SI), x          \
	VMOVUPS (u*128+64)(SI), y       \
	VCMPPS $30, Z24, x, K1          \
	VCMPPS $30, Z25, y, K2          \
	KUNPCKWD K1, K2, K1             \
	KMOVD K1, AX                    \
	MOVL AX, (R9)(R11*8)            \
	MOVL R10, 4(R9)(R11*8)          \
	INCQ R10                        \
	NEGL AX                         \
	ADCQ $0, R11                    \
	TESTQ DX, DX                    \
	JEQ  unscaled                   \
	VMULPS.BCST (DX)(R10*4), Z22, Z6 \
	VMULPS.BCST (DX)(R10*4), Z23, Z7 \
unscaled:                               \
	VMULPS Z20, x, Z4               \
	VMULPS Z21, y, Z5               \
	VADDPS Z6, Z4, Z4               \
	VADDPS Z7, Z5, Z5               \
	VADDPS Z26, Z4, Z4              \
	VADDPS Z26, Z5, Z5              \
	VCVTTPS2DQ Z4, Z4               \
	VCVTTPS2DQ Z5, Z5               \
	VPERMT2W Z5, Z30, Z4            \
	VMOVDQU64 Z4, (u*64)(DI)        \
	VMULPS Z16, x, x                \
	VMULPS Z17, y, y                \
	VADDPS Z18, x, x                \
	VADDPS Z19, y, y                \
	VCVTTPS2DQ x, x                 \
	VCVTTPS2DQ y, y                 \
	VPACKSSDW y, x, y

DATA order<>+0(SB)/8, $0x0000000400000000
DATA order<>+8(SB)/8, $0x0000000c00000008
DATA order<>+16(SB)/8, $0x0000000500000001
DATA order<>+24(SB)/8, $0x0000000d00000009
DATA order<>+32(SB)/8, $0x0000000600000002
DATA order<>+40(SB)/8, $0x0000000e0000000a
DATA order<>+48(SB)/8, $0x0000000700000003
DATA order<>+56(SB)/8, $0x0000000f0000000b
DATA order<>+64(SB)/8, $0x0006000400020000
DATA order<>+72(SB)/8, $0x000e000c000a0008
DATA order<>+80(SB)/8, $0x0016001400120010
DATA order<>+88(SB)/8, $0x001e001c001a0018
DATA order<>+96(SB)/8, $0x0026002400220020
DATA order<>+104(SB)/8, $0x002e002c002a0028
DATA order<>+112(SB)/8, $0x0036003400320030
DATA order<>+120(SB)/8, $0x003e003c003a0038
GLOBL order<>(SB), RODATA|NOPTR, $128

// func Coarse(words [][8]uint64, bytes [][4]uint64, found []uint64, products [][32]float32, mulBytes, addBytes, mulWords, lowWords, limits *[32]float32, bias float32, scales []float32) int
TEXT ·Coarse(SB), NOSPLIT, $0-176
	MOVQ words_base+0(FP), DI
	MOVQ bytes_base+24(FP), R8
	MOVQ found_base+48(FP), R9
	MOVQ products_base+72(FP), SI
	MOVQ products_len+80(FP), CX
	MOVQ mulBytes+96(FP), AX
	VMOVUPS (AX), Z16
	VMOVUPS 64(AX), Z17
	MOVQ addBytes+104(FP), AX
	VMOVUPS (AX), Z18
	VMOVUPS 64(AX), Z19
	MOVQ mulWords+112(FP), AX
	VMOVUPS (AX), Z20
	VMOVUPS 64(AX), Z21
	MOVQ lowWords+120(FP), AX
	VMOVUPS (AX), Z22
	VMOVUPS 64(AX), Z23
	MOVQ limits+128(FP), AX
	VMOVUPS (AX), Z24
	VMOVUPS 64(AX), Z25
	VBROADCASTSS bias+136(FP), Z26
	MOVQ scales_base+144(FP), DX
	VMOVAPS Z22, Z6 // the same for all rows, or overwritten
	VMOVAPS Z23, Z7
	VPXORD Z27, Z27, Z27
	VMOVDQU32 order<>+0(SB), Z29
	VMOVDQU32 order<>+64(SB), Z30
	XORL R10, R10
	XORL R11, R11
	TESTQ DX, DX
	JEQ  pairs
	SUBQ $4, DX // read when the row was counted

pairs:
	SUBQ $2, CX
	JLT  rest
	PREFETCHW_DI(2048)
	PREFETCHW_DI(2112)
	PREFETCHW_R8(1024)
	ROW(0, Z0, Z1, unscaled0)
	ROW(1, Z2, Z3, unscaled1)
	VPACKSSWB Z3, Z1, Z1
	VPMAXSB Z27, Z1, Z1
	VPERMD Z1, Z29, Z1
	VMOVDQU64 Z1, (R8)
	ADDQ $256, SI
	ADDQ $128, DI
	ADDQ $64, R8
	JMP  pairs

rest:
	CMPQ CX, $-1
	JNE  return
	ROW(0, Z0, Z1, unscaled2)
	VPACKSSWB Z1, Z1, Z1
	VPMAXSB Z27, Z1, Z1
	VPERMD Z1, Z29, Z1
	VMOVDQU Y1, (R8)

return:
	MOVQ R11, ret+168(FP)
	VZEROUPPER
	RET
