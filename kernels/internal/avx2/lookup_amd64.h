// Table look-up: the rows that the bytes of a residual select, added up.
//
//	SI  the residual, advanced    R8 first table
//	R11 table of byte (SI)        DX number of tables left
//
// A table has 256 rows of 64 bytes. Sums go to Y0 and Y1; Y2 and Y3 are
// scratch, which keeps four chains of additions going, as do AX, R10, R12 and R14.

#define LOOKUP1(ADD, n, reg, x, y) \
	MOVBLZX n(SI), reg \
	SHLL    $6, reg    \
	ADD     (n*16384)(R11)(reg*1), x, x \
	ADD     (n*16384+32)(R11)(reg*1), y, y

#define LOOKUP(ADD, eight, rest, one, done) \
	VPXOR Y0, Y0, Y0          \
	VPXOR Y1, Y1, Y1          \
	VPXOR Y2, Y2, Y2          \
	VPXOR Y3, Y3, Y3          \
	MOVQ   R8, R11            \
	CMPQ   DX, $8             \
	JLT    rest               \
eight:                            \
	LOOKUP1(ADD, 0, AX, Y0, Y1)   \
	LOOKUP1(ADD, 1, R10, Y2, Y3)  \
	LOOKUP1(ADD, 2, R12, Y0, Y1)  \
	LOOKUP1(ADD, 3, R14, Y2, Y3)  \
	LOOKUP1(ADD, 4, AX, Y0, Y1)   \
	LOOKUP1(ADD, 5, R10, Y2, Y3)  \
	LOOKUP1(ADD, 6, R12, Y0, Y1)  \
	LOOKUP1(ADD, 7, R14, Y2, Y3)  \
	ADDQ   $(8*16384), R11    \
	ADDQ   $8, SI             \
	SUBQ   $8, DX             \
	CMPQ   DX, $8             \
	JGE    eight              \
rest:                             \
	TESTQ  DX, DX             \
	JEQ    done               \
one:                              \
	LOOKUP1(ADD, 0, AX, Y0, Y1) \
	ADDQ   $16384, R11        \
	INCQ   SI                 \
	DECQ   DX                 \
	JNZ    one                \
done:                             \
	ADD    Y2, Y0, Y0         \
	ADD    Y3, Y1, Y1

// ADDRESS sets SI to the residual of token BX.
#define ADDRESS \
	MOVQ  tables_len+56(FP), SI      \
	IMULQ BX, SI                     \
	ADDQ  residuals_base+128(FP), SI

// CODE sets R15 to the code of token BX and AX to that of a later token of
// the document, whose row of S is prefetched.
#define CODE(wide, done) \
	MOVQ    codes_base+96(FP), R10 \
	LEAQ    8(BX), R12             \
	CMPQ    R12, CX                \
	CMOVQGE BX, R12                \
	CMPQ    codeBytes+120(FP), $2  \
	JNE     wide                   \
	MOVWLZX (R10)(BX*2), R15       \
	MOVWLZX (R10)(R12*2), AX       \
	JMP     done                   \
wide:                                  \
	MOVL    (R10)(BX*4), R15       \
	MOVL    (R10)(R12*4), AX       \
done:

// FETCH prefetches the start of the document of the range after (R13), if there
// is one: first residuals, codes and factors. The frame has the end of the list.
#define FETCH(none) \
	LEAQ  8(R13), AX                    \
	CMPQ  AX, end-8(SP)                 \
	JEQ   none                          \
	MOVL  8(R13), R12                   \
	MOVQ  tables_len+56(FP), R10        \
	IMULQ R12, R10                      \
	ADDQ  residuals_base+128(FP), R10   \
	PREFETCHT0 (R10)                    \
	PREFETCHT0 64(R10)                  \
	PREFETCHT0 128(R10)                 \
	PREFETCHT0 192(R10)                 \
	MOVQ  factors_base+152(FP), R10     \
	PREFETCHT0 (R10)(R12*2)             \
	MOVQ  codes_base+96(FP), R10        \
	IMULQ codeBytes+120(FP), R12        \
	PREFETCHT0 (R10)(R12*1)             \
none:
