package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
)

// isa is an instruction set: the number of its vector registers and of the float32 in each, and the
// maximum of vectors in a panel of products, of float32 and of bytes.
type isa struct {
	name, arch           string
	lanes, registers     int
	vectors, byteVectors int
}

var (
	avx512 = isa{"avx512", "amd64", 16, 32, 3, 3}
	avx2   = isa{"avx2", "amd64", 8, 16, 3, 2}
	neon   = isa{"neon", "arm64", 4, 32, 2, 2}
)

type (
	// vec is the number of a vector register, reg the name of a general one.
	vec int
	reg string
	// operand is a vec or a *constant, which is in memory or in a register.
	operand  any
	constant struct {
		name string
		bits uint32
		in   vec // the register that holds it. -1 means that it is in memory
	}
)

// asm writes functions for one instruction set.
type asm struct {
	isa
	out       bytes.Buffer
	constants []*constant

	// Of the current function.
	params map[string]int // offsets of parameters
	free   []reg          // general registers
	used   vec            // the number of vector registers in use
	labels int
}

// isARM64 reports whether the instruction set is of arm64.
func (a *asm) isARM64() bool { return a.arch == "arm64" }

// sumRegisters returns how many registers hold the 16 partial sums of a row.
func (a *asm) sumRegisters() int { return 16 / a.lanes }

// emitLine writes an instruction.
func (a *asm) emitLine(format string, args ...any) { fmt.Fprintf(&a.out, "\t"+format+"\n", args...) }

// writeLabel writes a label.
func (a *asm) writeLabel(name string) { fmt.Fprintf(&a.out, "\n%s:\n", name) }

// newLabel returns a unique label.
func (a *asm) newLabel(name string) string {
	a.labels++
	return fmt.Sprintf("%s%d", name, a.labels)
}

// beginFunction begins a function with the parameters of its Go declaration.
func (a *asm) beginFunction(name, parameters string) {
	a.params, a.used, a.labels = map[string]int{}, 0, 0
	list := strings.Split(parameters, ", ")
	offset := 0
	for i, p := range list {
		name, kind, _ := strings.Cut(p, " ")
		for j := i + 1; kind == ""; j++ {
			_, kind, _ = strings.Cut(list[j], " ")
		}
		size, align := 8, 8
		switch kind {
		case "float32":
			size, align = 4, 4
		case "byte":
			size, align = 1, 1
		}
		offset = (offset + align - 1) / align * align
		a.params[name] = offset
		if kind[0] == '[' {
			size = 24
		}
		offset += size
	}
	if a.isARM64() {
		a.free = []reg{
			"R0", "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
			"R19", "R20", "R21", "R22", "R23",
		}
	} else {
		a.free = []reg{"AX", "BX", "CX", "DX", "SI", "DI", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"}
	}
	for _, c := range a.constants {
		c.in = -1
	}
	fmt.Fprintf(&a.out, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, parameters, name, offset)
}

// emitReturn ends a function.
func (a *asm) emitReturn() {
	if !a.isARM64() {
		a.emitLine("VZEROUPPER")
	}
	a.emitLine("RET")
}

// newReg allocates a general register.
func (a *asm) newReg() reg {
	if len(a.free) == 0 {
		panic("no general register left")
	}
	r := a.free[0]
	a.free = a.free[1:]
	return r
}

// newVec allocates a vector register.
func (a *asm) newVec() vec {
	if int(a.used) == a.registers {
		panic("no vector register left")
	}
	a.used++
	return a.used - 1
}

// newVecs allocates n vector registers.
func (a *asm) newVecs(n int) []vec {
	v := make([]vec, n)
	for i := range v {
		v[i] = a.newVec()
	}
	return v
}

// loadArg loads a parameter into a new register. For a slice, NAME_base is its address.
func (a *asm) loadArg(name string) reg {
	r := a.newReg()
	a.loadArgTo(name, r)
	return r
}

// loadArgTo loads a parameter into a register.
func (a *asm) loadArgTo(name string, r reg) {
	param, _, _ := strings.Cut(name, "_")
	offset, ok := a.params[param]
	if !ok {
		panic("no parameter " + name)
	}
	a.emitEither("MOVD %s+%d(FP), %s", "MOVQ %s+%d(FP), %s", name, offset, r)
}

// emitEither emits an instruction that has the same operands on arm64 and on x86.
func (a *asm) emitEither(arm, x86 string, args ...any) {
	if a.isARM64() {
		a.emitLine(arm, args...)
	} else {
		a.emitLine(x86, args...)
	}
}

// add emits r += n.
func (a *asm) add(r reg, n int) { a.emitEither("ADD $%d, %s", "ADDQ $%d, %s", n, r) }

// addReg emits r += s.
func (a *asm) addReg(r, s reg) { a.emitEither("ADD %s, %s", "ADDQ %s, %s", s, r) }

// shiftReg emits a shift of r to the left, or to the right if left is negative.
func (a *asm) shiftReg(r reg, left int) {
	if left >= 0 {
		a.emitEither("LSL $%d, %s", "SHLQ $%d, %s", left, r)
	} else {
		a.emitEither("LSR $%d, %s", "SHRQ $%d, %s", -left, r)
	}
}

// moveReg emits dst = src.
func (a *asm) moveReg(src, dst reg) { a.emitEither("MOVD %s, %s", "MOVQ %s, %s", src, dst) }

// emitLoop emits a loop that runs body count times, at least once, and leaves count 0.
func (a *asm) emitLoop(name string, count reg, body func()) {
	l := a.newLabel(name)
	a.writeLabel(l)
	body()
	a.countDown(count, l)
}

// countDown emits a decrement of count, and a jump to label unless it is 0.
func (a *asm) countDown(count reg, label string) {
	a.emitEither("SUBS $1, %s", "DECQ %s", count)
	a.emitEither("BNE %s", "JNZ %s", label)
}

// jumpZero emits a jump to label if a register is 0.
func (a *asm) jumpZero(r reg, label string) {
	if a.isARM64() {
		a.emitLine("CBZ %s, %s", r, label)
	} else {
		a.emitLine("TESTQ %s, %s", r, r)
		a.emitLine("JEQ %s", label)
	}
}

// emitJump emits a jump to label.
func (a *asm) emitJump(label string) { a.emitEither("B %s", "JMP %s", label) }

// constant returns a constant that functions of the file may use as an operand.
func (a *asm) constant(name string, bits uint32) *constant {
	i := slices.IndexFunc(a.constants, func(c *constant) bool { return c.bits == bits })
	if i < 0 {
		i = len(a.constants)
		a.constants = append(a.constants, &constant{name, bits, -1})
	}
	return a.constants[i]
}

// float32Constant is constant for a float32.
func (a *asm) float32Constant(name string, x float32) *constant {
	return a.constant(name, math.Float32bits(x))
}

// pinConstants loads constants into registers if the instruction set has 32. arm64 requires that, since its
// operations have no operands in memory.
func (a *asm) pinConstants(cs ...*constant) {
	if a.registers < 32 {
		return
	}
	var table reg
	if a.isARM64() {
		table = a.newReg()
		a.emitLine("MOVD $constants<>(SB), %s", table)
	}
	for _, c := range cs {
		if c.in >= 0 {
			continue
		}
		c.in = a.newVec()
		if a.isARM64() {
			a.emitLine("FMOVQ %d(%s), F%d", 4*a.lanes*slices.Index(a.constants, c), table, c.in)
		} else {
			a.emitLine("VMOVUPS constants<>+%d(SB), %s", 4*a.lanes*slices.Index(a.constants, c), a.operandName(c.in))
		}
	}
	if table != "" {
		a.free = append([]reg{table}, a.free...)
	}
}
