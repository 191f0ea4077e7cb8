// Instructions that the Go assembler does not know. Registers are numbers, in
// the order of the Go assembler: m, n, d stand for Vd = Vn op Vm.

// 4 lanes of float32
#define FMLA4S(m, n, d)  WORD $(0x4e20cc00|(m)<<16|(n)<<5|(d))
#define FADD4S(m, n, d)  WORD $(0x4e20d400|(m)<<16|(n)<<5|(d))
#define FSUB4S(m, n, d)  WORD $(0x4ea0d400|(m)<<16|(n)<<5|(d))
#define FMUL4S(m, n, d)  WORD $(0x6e20dc00|(m)<<16|(n)<<5|(d))
#define FMAX4S(m, n, d)  WORD $(0x4e20f400|(m)<<16|(n)<<5|(d))
#define FADDP4S(m, n, d) WORD $(0x6e20d400|(m)<<16|(n)<<5|(d))
#define FABS4S(n, d)     WORD $(0x4ea0f800|(n)<<5|(d))
#define FMAXV4S(n, d)    WORD $(0x6e30f800|(n)<<5|(d))
// all ones where n > m
#define FCMGT4S(m, n, d) WORD $(0x6ea0e400|(m)<<16|(n)<<5|(d))

// conversions: to float32, towards 0, to the nearest (ties to even)
#define SCVTF4S(n, d)    WORD $(0x4e21d800|(n)<<5|(d))
#define FCVTZS4S(n, d)   WORD $(0x4ea1b800|(n)<<5|(d))
#define FCVTNS4S(n, d)   WORD $(0x4e21a800|(n)<<5|(d))
// float16 to float32, of lanes 0 to 3 and 4 to 7
#define FCVTL4S(n, d)    WORD $(0x0e217800|(n)<<5|(d))
#define FCVTL24S(n, d)   WORD $(0x4e217800|(n)<<5|(d))

// 4 lanes of int32
#define SMAX4S(m, n, d)  WORD $(0x4ea06400|(m)<<16|(n)<<5|(d))
#define SMIN4S(m, n, d)  WORD $(0x4ea06c00|(m)<<16|(n)<<5|(d))
// all ones where n ≥ m
#define CMGE4S(m, n, d)  WORD $(0x4ea03c00|(m)<<16|(n)<<5|(d))
#define UMAXV4S(n, d)    WORD $(0x6eb0a800|(n)<<5|(d))

// products of 16-bit lanes, 0 to 3 and 4 to 7
#define SMULL4S(m, n, d)  WORD $(0x0e60c000|(m)<<16|(n)<<5|(d))
#define SMULL24S(m, n, d) WORD $(0x4e60c000|(m)<<16|(n)<<5|(d))
#define UMULL4S(m, n, d)  WORD $(0x2e60c000|(m)<<16|(n)<<5|(d))
#define UMULL24S(m, n, d) WORD $(0x6e60c000|(m)<<16|(n)<<5|(d))

// adds products of four signed bytes, with those of n or with lane i of m
#define SDOT4S(m, n, d)        WORD $(0x4e809400|(m)<<16|(n)<<5|(d))
#define SDOTLANE4S(i, m, n, d) WORD $(0x4f80e000|((i)&1)<<21|((i)>>1)<<11|(m)<<16|(n)<<5|(d))

// float32 to float64, of lanes 0 and 1 and 2 and 3; 2 lanes of float64: d += n·m
#define FCVTL2D(n, d)    WORD $(0x0e617800|(n)<<5|(d))
#define FCVTL22D(n, d)   WORD $(0x4e617800|(n)<<5|(d))
#define FMLA2D(m, n, d)  WORD $(0x4e60cc00|(m)<<16|(n)<<5|(d))
