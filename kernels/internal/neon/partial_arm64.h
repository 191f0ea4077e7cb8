// Loads and stores of the first n lanes of 16, in registers of four.

// LOAD16 loads n ≤ 16 values at addr into V16 to V19, 0 beyond. V20 and tmp are
// scratch.
#define LOAD16(addr, n, tmp, part, single, rest, four, two, one, done) \
	CMP  $16, n                      \
	BNE  part                        \
	FLDPQ (addr), (F16, F17)         \
	FLDPQ 32(addr), (F18, F19)       \
	B    done                        \
part:                                    \
	AND  $12, n, tmp                 \
	ADD  tmp<<2, addr, tmp           \
	VEOR V20.B16, V20.B16, V20.B16   \
	TBZ  $1, n, single               \
	FMOVD (tmp), F20                 \
	TBZ  $0, n, rest                 \
	ADD  $8, tmp                     \
	VLD1 (tmp), V20.S[2]             \
	B    rest                        \
single:                                  \
	TBZ  $0, n, rest                 \
	FMOVS (tmp), F20                 \
rest:                                    \
	VEOR V17.B16, V17.B16, V17.B16   \
	VEOR V18.B16, V18.B16, V18.B16   \
	VEOR V19.B16, V19.B16, V19.B16   \
	TBZ  $3, n, two                  \
	FLDPQ (addr), (F16, F17)         \
	TBZ  $2, n, four                 \
	FMOVQ 32(addr), F18              \
	VMOV V20.B16, V19.B16            \
	B    done                        \
four:                                    \
	VMOV V20.B16, V18.B16            \
	B    done                        \
two:                                     \
	TBZ  $2, n, one                  \
	FMOVQ (addr), F16                \
	VMOV V20.B16, V17.B16            \
	B    done                        \
one:                                     \
	VMOV V20.B16, V16.B16            \
done:

// STORE16 stores n ≤ 16 values of V16 to V19, which it changes, at addr. tmp is
// scratch.
#define STORE16(addr, n, tmp, part, four, two, one, done) \
	CMP  $16, n                      \
	BNE  part                        \
	FSTPQ (F16, F17), (addr)         \
	FSTPQ (F18, F19), 32(addr)       \
	B    done                        \
part:                                    \
	MOVD addr, tmp                   \
	TBZ  $3, n, four                 \
	FSTPQ (F16, F17), (tmp)          \
	ADD  $32, tmp                    \
	VMOV V18.B16, V16.B16            \
	VMOV V19.B16, V17.B16            \
four:                                    \
	TBZ  $2, n, two                  \
	FMOVQ F16, (tmp)                 \
	ADD  $16, tmp                    \
	VMOV V17.B16, V16.B16            \
two:                                     \
	TBZ  $1, n, one                  \
	FMOVD F16, (tmp)                 \
	ADD  $8, tmp                     \
	VEXT $8, V16.B16, V16.B16, V16.B16 \
one:                                     \
	TBZ  $0, n, done                 \
	FMOVS F16, (tmp)                 \
done:
