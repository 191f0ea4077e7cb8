//go:build !purego

#include "textflag.h"

#define WIDEN(CONVERT, sixteen, rest, done) \
	MOVQ dst_base+0(FP), DI      \
	MOVQ dst_len+8(FP), CX       \
	MOVQ src_base+24(FP), SI     \
	SUBQ $16, CX                 \
	JLT  rest                    \
sixteen:                             \
	VMOVDQU (SI), Y0             \
	CONVERT                      \
	VMOVUPS Z0, (DI)             \
	ADDQ $32, SI                 \
	ADDQ $64, DI                 \
	SUBQ $16, CX                 \
	JGE  sixteen                 \
rest:                                \
	ADDQ $16, CX                 \
	JEQ  done                    \
	MOVL $1, AX                  \
	SHLL CX, AX                  \
	DECL AX                      \
	KMOVW AX, K1                 \
	VMOVDQU16.Z (SI), K1, Y0     \
	CONVERT                      \
	VMOVUPS Z0, K1, (DI)         \
done:                                \
	VZEROUPPER                   \
	RET

#define BF16 \
	VPMOVZXWD Y0, Z0             \
	VPSLLD $16, Z0, Z0

#define F16 \
	VCVTPH2PS Y0, Z0

// func WidenBF16(dst []float32, src []byte)
TEXT ·WidenBF16(SB), NOSPLIT, $0-48
	WIDEN(BF16, sixteen, rest, done)

// func WidenF16(dst []float32, src []byte)
TEXT ·WidenF16(SB), NOSPLIT, $0-48
	WIDEN(F16, sixteen, rest, done)

// func WidenI8(dst []float32, src []int8)
TEXT ·WidenI8(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SUBQ $16, CX
	JLT  rest

sixteen:
	VPMOVSXBD (SI), Z0
	VCVTDQ2PS Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $16, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JGE  sixteen

rest:
	ADDQ $16, CX
	JEQ  done
	MOVL $1, AX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K1
	VMOVDQU8.Z (SI), K1, X0
	VPMOVSXBD X0, Z0
	VCVTDQ2PS Z0, Z0
	VMOVUPS Z0, K1, (DI)

done:
	VZEROUPPER
	RET
