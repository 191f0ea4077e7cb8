//go:build !purego

#include "textflag.h"

// func WidenBF16(dst []float32, src []byte)
TEXT ·WidenBF16(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SUBQ $8, CX
	JLT  rest

eight:
	PREFETCHT0 8192(SI) // of the next block of centroids, see avx512
	VPMOVZXWD (SI), Y0
	VPSLLD $16, Y0, Y0
	VMOVDQU Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  eight

rest:
	ADDQ $8, CX
	JEQ  return

one:
	MOVWLZX (SI), AX
	SHLL $16, AX
	MOVL AX, (DI)
	ADDQ $2, SI
	ADDQ $4, DI
	DECQ CX
	JNZ  one

return:
	VZEROUPPER
	RET

// func WidenI8(dst []float32, src []int8)
TEXT ·WidenI8(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SUBQ $8, CX
	JLT  rest

eight:
	VPMOVSXBD (SI), Y0
	VCVTDQ2PS Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $8, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  eight

rest:
	ADDQ $8, CX
	JEQ  done

one:
	MOVBLSX (SI), AX
	VMOVD AX, X0
	VCVTDQ2PS X0, X0
	VMOVSS X0, (DI)
	INCQ SI
	ADDQ $4, DI
	DECQ CX
	JNZ  one

done:
	VZEROUPPER
	RET
