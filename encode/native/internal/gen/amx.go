package main

import "fmt"

// AMX has eight tiles of 16 rows of 64 bytes: 0 to 3 hold sums, 4 and 5
// rows of a, 6 and 7 columns of b. It uses the same panels as VNNI: 16 groups
// of four bytes of k are the rows of a tile.
const (
	amxRows  = 16
	amxFrame = 4*1024 + 64 // four tiles of sums, and 63 bytes to align them
)

// emitBytes emits an instruction that Go's assembler does not support.
func (a *asm) emitBytes(comment string, code ...byte) {
	line := ""
	for _, c := range code {
		line += fmt.Sprintf("BYTE $%#02x; ", c)
	}
	a.emitLine("%s// %s", line, comment)
}

// amxBase and amxIndex hold the numbers of the registers that address tiles. R9 and R10 need a prefix.
var amxBase = map[string]byte{"DX": 2, "DI": 7, "R9": 9, "R10": 10}
var amxIndex = map[string]byte{"BX": 3, "CX": 1}

// tileMove emits TILELOADD (prefix 7b) or TILESTORED (7a) at disp(base)(index*1).
func (a *asm) tileMove(name string, prefix byte, tile, disp int, base, index string) {
	b := amxBase[base]
	first := byte(0xe2)
	if b >= 8 {
		first = 0xc2 // the bit that extends the base register is inverted
	}
	a.emitBytes(fmt.Sprintf("%s T%d, %d(%s)(%s*1)", name, tile, disp, base, index),
		0xc4, first, prefix, 0x4b, 0x84|byte(tile)<<3, amxIndex[index]<<3|b&7,
		byte(disp), byte(disp>>8), byte(disp>>16), byte(disp>>24))
}

func (a *asm) tileLoad(tile, disp int, base, index string) {
	a.tileMove("TILELOADD", 0x7b, tile, disp, base, index)
}

// writeAMXProducts writes byteTiles, and the table of the shapes of tiles.
func writeAMXProducts(a *asm) {
	// 184 bytes: six slices of 24, and five numbers of 8.
	fmt.Fprintf(&a.out, "\n// func byteTiles(%s)\nTEXT ·byteTiles(SB), 0, $%d-184\n", byteParameters, amxFrame)
	a.emitLine("NO_LOCAL_POINTERS")
	a.emitLine("LEAQ config<>(SB), AX")
	a.emitBytes("LDTILECFG (AX)", 0xc4, 0xe2, 0x78, 0x49, 0x00)
	a.emitLine("LEAQ 63(SP), DI")
	a.emitLine("ANDQ $~63, DI")
	a.emitLine("MOVQ c_base+0(FP), R11")
	a.emitLine("MOVQ ldc+24(FP), R8")
	a.emitLine("SHLQ $2, R8")
	a.emitLine("MOVQ a_base+32(FP), SI")
	a.emitLine("MOVQ lda+56(FP), BX")
	a.emitLine("MOVQ scales_base+64(FP), R12")
	a.emitLine("MOVQ m+88(FP), R13")
	a.emitLine("SHRQ $4, R13")
	a.emitLine("MOVQ vectors+176(FP), CX")
	a.emitLine("SHLQ $6, CX")
	a.emitLine("CMPQ CX, $64")
	a.emitLine("JEQ vectors1")
	for v := 2; v >= 1; v-- {
		a.writeLabel(fmt.Sprintf("vectors%d", v))
		a.emitLine("CMPQ R13, $2")
		a.emitLine("JLT rest%d", v)
		a.amxBlock(2, v)
		a.emitLine("SUBQ $2, R13")
		a.emitLine("JMP vectors%d", v)
		a.writeLabel(fmt.Sprintf("rest%d", v))
		a.emitLine("TESTQ R13, R13")
		a.emitLine("JEQ return")
		a.amxBlock(1, v)
		a.emitLine("JMP return")
	}
	a.writeLabel("return")
	a.emitBytes("TILERELEASE", 0xc4, 0xe2, 0x78, 0x49, 0xc0)
	a.emitReturn()
	// The shapes of the tiles.
	config := make([]byte, 64)
	config[0] = 1
	for t := range 8 {
		config[16+2*t], config[48+t] = 64, amxRows
	}
	fmt.Fprintln(&a.out)
	for i := 0; i < len(config); i += 8 {
		var word uint64
		for j := range 8 {
			word |= uint64(config[i+j]) << (8 * j)
		}
		fmt.Fprintf(&a.out, "DATA config<>+%d(SB)/8, $%#x\n", i, word)
	}
	fmt.Fprintf(&a.out, "GLOBL config<>(SB), RODATA|NOPTR, $64\n")
}

// amxBlock emits the product of one or two tiles of rows with one or two tiles of columns.
func (a *asm) amxBlock(rows, vectors int) {
	for t := range rows * vectors {
		a.emitBytes(fmt.Sprintf("TILEZERO T%d", t), 0xc4, 0xe2, 0x7b, 0x49, 0xc0|byte(t)<<3)
	}
	a.emitLine("MOVQ SI, R9")
	a.emitLine("MOVQ BX, R10")
	a.emitLine("SHLQ $4, R10")
	a.emitLine("ADDQ SI, R10")
	a.emitLine("MOVQ b_base+104(FP), DX")
	a.emitLine("MOVQ k+96(FP), AX")
	a.emitLine("SHRQ $6, AX")
	k := fmt.Sprintf("k%d_%d", rows, vectors)
	a.writeLabel(k)
	for j := range vectors {
		a.tileLoad(6+j, 64*j, "DX", "CX")
	}
	for i := range rows {
		a.tileLoad(4+i, 0, []string{"R9", "R10"}[i], "BX")
		for j := range vectors {
			x, y, sum := byte(4+i), byte(6+j), byte(i*vectors+j)
			a.emitBytes(fmt.Sprintf("TDPBUSD T%d += T%d·T%d", sum, x, y),
				0xc4, 0xe2, 0x01|(15-y)<<3, 0x5e, 0xc0|sum<<3|x)
		}
	}
	a.emitLine("ADDQ $64, R9")
	a.emitLine("ADDQ $64, R10")
	a.emitLine("ADDQ $%d, DX", 1024*vectors)
	a.emitLine("DECQ AX")
	a.emitLine("JNZ %s", k)

	for i := range rows {
		for j := range vectors {
			a.tileMove("TILESTORED", 0x7a, i*vectors+j, i*1024*vectors+64*j, "DI", "CX")
		}
	}
	a.emitLine("MOVQ starts_base+128(FP), AX")
	a.emitLine("MOVQ columns_base+152(FP), DX")
	for j := range vectors {
		a.emitLine("VMOVDQU32 %d(AX), Z%d", 64*j, 8+j)
		a.emitLine("VMOVUPS %d(DX), Z%d", 64*j, 16+j)
		a.emitLine("VMOVUPS %d(DX), Z%d", 64*(vectors+j), 24+j)
	}
	a.emitLine("MOVQ DI, DX")
	a.emitLine("MOVL $%d, AX", amxRows*rows)
	row := fmt.Sprintf("row%d_%d", rows, vectors)
	a.writeLabel(row)
	a.emitLine("VBROADCASTSS (R12), Z31")
	for j := range vectors {
		a.emitLine("VPADDD %d(DX), Z%d, Z%d", 64*j, 8+j, j)
		a.emitLine("VCVTDQ2PS Z%d, Z%d", j, j)
		a.emitLine("VMULPS Z31, Z%d, Z%d", j, j)
		a.emitLine("VFMADD213PS Z%d, Z%d, Z%d", 24+j, 16+j, j)
		a.emitLine("VMOVUPS Z%d, %d(R11)", j, 64*j)
	}
	a.emitLine("ADDQ $4, R12")
	a.emitLine("ADDQ CX, DX")
	a.emitLine("ADDQ R8, R11")
	a.emitLine("DECL AX")
	a.emitLine("JNZ %s", row)
	a.emitLine("MOVQ BX, AX")
	a.emitLine("SHLQ $%d, AX", 3+rows) // 16 or 32 rows
	a.emitLine("ADDQ AX, SI")
}
