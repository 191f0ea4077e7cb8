//go:build !purego

#include "textflag.h"

//	SI  products              R10  the row
//	DI  words                 R8   bytes
//	R9  rows found            R11  how many
//	DX  scales, or 0          CX   columns that are above, of which R15 has 8
//	AX  limits                BX, R12, R13, R14  units of the bytes and of the words
//	Y4 to Y7  bytes, in 32 bits
//	Y10 bias                  Y11  0
//	Y12 order of the bytes after packing         Y13  scale of the row

// STRIP makes of 8 products 32 bits of bytes and of words.
#define STRIP(col, bytes, words) \
	VMOVUPS (col*4)(SI), Y0             \
	VCMPPS  $0x1e, (col*4)(AX), Y0, Y2  \
	VMOVMSKPS Y2, R15                   \
	SHLL    $col, R15                   \
	ORL     R15, CX                     \
	VMULPS  (col*4)(BX), Y0, bytes      \
	VADDPS  (col*4)(R12), bytes, bytes  \
	VCVTTPS2DQ bytes, bytes             \
	VMULPS  (col*4)(R13), Y0, words     \
	VMULPS  (col*4)(R14), Y13, Y2       \
	VADDPS  Y2, words, words            \
	VADDPS  Y10, words, words           \
	VCVTTPS2DQ words, words

DATA order<>+0(SB)/8, $0x0000000400000000
DATA order<>+8(SB)/8, $0x0000000500000001
DATA order<>+16(SB)/8, $0x0000000600000002
DATA order<>+24(SB)/8, $0x0000000700000003
GLOBL order<>(SB), RODATA|NOPTR, $32

// func Coarse(words [][8]uint64, bytes [][4]uint64, found []uint64, products [][32]float32, mulBytes, addBytes, mulWords, lowWords, limits *[32]float32, bias float32, scales []float32) int
TEXT ·Coarse(SB), NOSPLIT, $0-176
	MOVQ words_base+0(FP), DI
	MOVQ bytes_base+24(FP), R8
	MOVQ found_base+48(FP), R9
	MOVQ products_base+72(FP), SI
	MOVQ mulBytes+96(FP), BX
	MOVQ addBytes+104(FP), R12
	MOVQ mulWords+112(FP), R13
	MOVQ lowWords+120(FP), R14
	VBROADCASTSS bias+136(FP), Y10
	MOVQ scales_base+144(FP), DX
	MOVL $0x3f800000, AX
	VMOVD AX, X13
	VPBROADCASTD X13, Y13
	MOVQ limits+128(FP), AX
	VPXOR Y11, Y11, Y11
	VMOVDQU order<>+0(SB), Y12
	XORL R10, R10
	XORL R11, R11

row:
	CMPQ R10, products_len+80(FP)
	JGE  return
	TESTQ DX, DX
	JEQ  unscaled
	VBROADCASTSS (DX)(R10*4), Y13

unscaled:
	XORL CX, CX
	STRIP(0, Y4, Y8)
	STRIP(8, Y5, Y9)
	VPACKUSDW Y9, Y8, Y8
	VPERMQ $0xd8, Y8, Y8
	VMOVDQU Y8, (DI)
	STRIP(16, Y6, Y8)
	STRIP(24, Y7, Y9)
	VPACKUSDW Y9, Y8, Y8
	VPERMQ $0xd8, Y8, Y8
	VMOVDQU Y8, 32(DI)

	VPACKSSDW Y5, Y4, Y4
	VPACKSSDW Y7, Y6, Y6
	VPACKSSWB Y6, Y4, Y4
	VPMAXSB Y11, Y4, Y4
	VPERMD Y4, Y12, Y4
	VMOVDQU Y4, (R8)

	MOVL CX, (R9)(R11*8) // to stay, or to be overwritten
	MOVL R10, 4(R9)(R11*8)
	NEGL CX              // carry: not 0
	ADCQ $0, R11
	ADDQ $128, SI
	ADDQ $64, DI
	ADDQ $32, R8
	INCQ R10
	JMP  row

return:
	MOVQ R11, ret+168(FP)
	VZEROUPPER
	RET
