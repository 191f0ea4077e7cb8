//go:build !purego

#include "textflag.h"
#include "lookup_arm64.h"

// func Accumulate(acc [][8]uint64, tables [][256][8]uint64, vectors []byte, stride int)
TEXT ·Accumulate(SB), NOSPLIT, $0-80
	MOVD acc_base+0(FP), R7
	MOVD acc_len+8(FP), R8
	MOVD tables_base+24(FP), R1
	MOVD tables_len+32(FP), R2
	MOVD vectors_base+48(FP), R9
	MOVD stride+72(FP), R10
	CBZ  R8, return

vector:
	MOVD R9, R0
	LOOKUP(D2, eight, rest, one, summed)
	FLDPQ (R7), (F16, F17)
	FLDPQ 32(R7), (F18, F19)
	VADD V16.D2, V0.D2, V0.D2
	VADD V17.D2, V1.D2, V1.D2
	VADD V18.D2, V2.D2, V2.D2
	VADD V19.D2, V3.D2, V3.D2
	FSTPQ (F0, F1), (R7)
	FSTPQ (F2, F3), 32(R7)
	ADD  $64, R7
	ADD  R10, R9
	SUBS $1, R8
	BNE  vector

return:
	RET

// func Compose(table *[256][8]uint64, lo, hi *[16][8]uint64)
TEXT ·Compose(SB), NOSPLIT, $0-24
	MOVD table+0(FP), R0
	MOVD lo+8(FP), R1
	MOVD hi+16(FP), R2
	MOVD $0, R4

entry:
	UBFIZ $6, R4, $4, R6
	ADD  R1, R6
	LSR  $4, R4, R5
	ADD  R5<<6, R2, R7
	FLDPQ (R6), (F0, F1)
	FLDPQ 32(R6), (F2, F3)
	FLDPQ (R7), (F4, F5)
	FLDPQ 32(R7), (F6, F7)
	VADD V4.D2, V0.D2, V0.D2
	VADD V5.D2, V1.D2, V1.D2
	VADD V6.D2, V2.D2, V2.D2
	VADD V7.D2, V3.D2, V3.D2
	FSTPQ (F0, F1), (R0)
	FSTPQ (F2, F3), 32(R0)
	ADD  $64, R0
	ADD  $1, R4
	CMP  $256, R4
	BLT  entry
	RET
