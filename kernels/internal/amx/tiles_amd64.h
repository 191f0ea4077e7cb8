// AMX instructions, which Go's assembler does not know. Tile numbers are
// literals 0 to 7; of an address, the displacement is one too.
#define LDTILECFG_AX  BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0x00
#define TILERELEASE   BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0
#define TILEZERO(t)   BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $(0xc0|t<<3)
// TILELOADD tile, (SI)(BX*1)
#define LOAD_SI_BX(t) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $0x1e; LONG $0
// TILELOADD tile, disp(DX)(CX*1)
#define LOAD_DX_CX(t, disp) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $0x0a; LONG $disp
// TILESTORED disp(DI)(AX*1), tile
#define STORE_DI_AX(t, disp) BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $0x07; LONG $disp
// TDPBUSD c, a, b: c += a·b, a unsigned, b signed
#define TDPBUSD(c, a, b) BYTE $0xc4; BYTE $0xe2; BYTE $(0x01|(15-b)<<3); BYTE $0x5e; BYTE $(0xc0|c<<3|a)
// TILELOADD tile, disp(DX)(BX*1) and tile, disp(DI)(BX*1)
#define LOAD_DX_BX(t, disp) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $0x1a; LONG $disp
#define LOAD_DI_BX(t, disp) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $0x1f; LONG $disp
// TILESTORED disp(AX)(BX*1), tile
#define STORE_AX_BX(t, disp) BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $(0x84|t<<3); BYTE $0x18; LONG $disp
// TDPBF16PS c, a, b: c += a·b, of pairs of bfloat16, in float32
#define TDPBF16PS(c, a, b) BYTE $0xc4; BYTE $0xe2; BYTE $(0x02|(15-b)<<3); BYTE $0x5c; BYTE $(0xc0|c<<3|a)
