// Table look-up: the rows that the bytes of a residual select, added up in
// lanes of type T (H8, S4, D2).
//
//	R0 the residual, advanced   R1 first table   R2 number of tables
//
// A table has 256 rows of 64 bytes. Sums go to V0 to V3; V4 to V7, which keep
// as many chains of additions going, V16 to V23 and R3 to R6 are scratch.

#define LOOKUPEVEN(T) \
	ADD   R6<<6, R3, R6         \
	FLDPQ (R6), (F16, F17)      \
	FLDPQ 32(R6), (F18, F19)    \
	ADD   $16384, R3            \
	VADD  V16.T, V0.T, V0.T     \
	VADD  V17.T, V1.T, V1.T     \
	VADD  V18.T, V2.T, V2.T     \
	VADD  V19.T, V3.T, V3.T

#define LOOKUPODD(T) \
	ADD   R6<<6, R3, R6         \
	FLDPQ (R6), (F20, F21)      \
	FLDPQ 32(R6), (F22, F23)    \
	ADD   $16384, R3            \
	VADD  V20.T, V4.T, V4.T     \
	VADD  V21.T, V5.T, V5.T     \
	VADD  V22.T, V6.T, V6.T     \
	VADD  V23.T, V7.T, V7.T

#define LOOKUP(T, eight, rest, one, done) \
	VEOR  V0.B16, V0.B16, V0.B16 \
	VEOR  V1.B16, V1.B16, V1.B16 \
	VEOR  V2.B16, V2.B16, V2.B16 \
	VEOR  V3.B16, V3.B16, V3.B16 \
	VEOR  V4.B16, V4.B16, V4.B16 \
	VEOR  V5.B16, V5.B16, V5.B16 \
	VEOR  V6.B16, V6.B16, V6.B16 \
	VEOR  V7.B16, V7.B16, V7.B16 \
	MOVD  R1, R3                 \
	SUBS  $8, R2, R4             \
	BLT   rest                   \
eight:                               \
	MOVD.P 8(R0), R5             \
	UBFX  $0, R5, $8, R6         \
	LOOKUPEVEN(T)                \
	UBFX  $8, R5, $8, R6         \
	LOOKUPODD(T)                 \
	UBFX  $16, R5, $8, R6        \
	LOOKUPEVEN(T)                \
	UBFX  $24, R5, $8, R6        \
	LOOKUPODD(T)                 \
	UBFX  $32, R5, $8, R6        \
	LOOKUPEVEN(T)                \
	UBFX  $40, R5, $8, R6        \
	LOOKUPODD(T)                 \
	UBFX  $48, R5, $8, R6        \
	LOOKUPEVEN(T)                \
	UBFX  $56, R5, $8, R6        \
	LOOKUPODD(T)                 \
	SUBS  $8, R4, R4             \
	BGE   eight                  \
rest:                                \
	ADDS  $8, R4, R4             \
	BEQ   done                   \
one:                                 \
	MOVBU.P 1(R0), R6            \
	LOOKUPEVEN(T)                \
	SUBS  $1, R4, R4             \
	BNE   one                    \
done:                                \
	VADD  V4.T, V0.T, V0.T       \
	VADD  V5.T, V1.T, V1.T       \
	VADD  V6.T, V2.T, V2.T       \
	VADD  V7.T, V3.T, V3.T

// The loops over the tokens of documents keep
//
//	R8  best of the document    R9  rows of S
//	R10 range                   R11 end of the ranges
//	R12 token                   R13 end of the document
//	R14 codes                   R15 bytes of a code
//	R16 factors                 R17 scales, or nil
//	R19 code of the token       R20 scratch
//	R21 residuals

// CODE sets R19 to the code of token R12 and R20 to that of a later token of
// the document, whose row of S is prefetched.
#define CODE(wide, done) \
	ADD   $8, R12, R20           \
	CMP   R13, R20               \
	CSEL  LT, R20, R12, R20      \
	CMP   $2, R15                \
	BNE   wide                   \
	ADD   R12<<1, R14, R19       \
	MOVHU (R19), R19             \
	ADD   R20<<1, R14, R20       \
	MOVHU (R20), R20             \
	B     done                   \
wide:                                \
	ADD   R12<<2, R14, R19       \
	MOVWU (R19), R19             \
	ADD   R20<<2, R14, R20       \
	MOVWU (R20), R20             \
done:

// FETCH prefetches the start of the document of the next range, if R10 has
// one: first residuals, and codes and factors.
#define FETCH(none) \
	ADD   $8, R10, R3            \
	CMP   R11, R3                \
	BEQ   none                   \
	MOVWU 8(R10), R3             \
	MADD  R2, R21, R3, R4        \
	PRFM  (R4), PLDL1KEEP        \
	PRFM  64(R4), PLDL1KEEP      \
	PRFM  128(R4), PLDL1KEEP     \
	PRFM  192(R4), PLDL1KEEP     \
	ADD   R3<<1, R16, R4         \
	PRFM  (R4), PLDL1KEEP        \
	MADD  R15, R14, R3, R4       \
	PRFM  (R4), PLDL1KEEP        \
none:
