package main

import (
	"fmt"
	"slices"
)

// operandName returns the name of a vector register, or of the memory that holds an operand.
func (a *asm) operandName(o operand) string {
	switch o := o.(type) {
	case vec:
		switch a.lanes {
		case 16:
			return fmt.Sprintf("Z%d", o)
		case 8:
			return fmt.Sprintf("Y%d", o)
		}
		return fmt.Sprintf("V%d", o)
	case *constant:
		if o.in >= 0 {
			return a.operandName(o.in)
		}
		if a.isARM64() {
			panic("constant " + o.name + " is not pinned")
		}
		return fmt.Sprintf("constants<>+%d(SB)", 4*a.lanes*slices.Index(a.constants, o))
	}
	panic(fmt.Sprintf("operand %v", o))
}

// number returns the number of an operand's register, on arm64.
func (a *asm) number(o operand) int {
	if c, ok := o.(*constant); ok {
		if c.in < 0 {
			panic("constant " + c.name + " is not pinned")
		}
		return int(c.in)
	}
	return int(o.(vec))
}

// emitWord emits an instruction of arm64 that Go's assembler does not support: d = n op m.
func (a *asm) emitWord(code uint32, comment string, m, n, d operand) {
	a.emitLine("WORD $%#08x // %s V%d.4S, V%d.4S, V%d.4S",
		code|uint32(a.number(m))<<16|uint32(a.number(n))<<5|uint32(a.number(d)),
		comment, a.number(d), a.number(n), a.number(m))
}

// emitBinary emits d = x op y.
func (a *asm) emitBinary(mnemonic string, code uint32, d vec, x, y operand) {
	if a.isARM64() {
		a.emitWord(code, mnemonic, y, x, d)
		return
	}
	xv, ok := x.(vec)
	if c, isConstant := x.(*constant); isConstant && c.in >= 0 {
		xv, ok = c.in, true
	}
	if !ok {
		panic(mnemonic + ": first operand in memory")
	}
	a.emitLine("V%sPS %s, %s, %s", mnemonic, a.operandName(y), a.operandName(xv), a.operandName(d))
}

func (a *asm) vadd(d vec, x, y operand) { a.emitBinary("ADD", 0x4e20d400, d, x, y) }
func (a *asm) vsub(d vec, x, y operand) { a.emitBinary("SUB", 0x4ea0d400, d, x, y) }
func (a *asm) vmul(d vec, x, y operand) { a.emitBinary("MUL", 0x6e20dc00, d, x, y) }
func (a *asm) vdiv(d vec, x, y operand) { a.emitBinary("DIV", 0x6e20fc00, d, x, y) }
func (a *asm) vmax(d vec, x, y operand) { a.emitBinary("MAX", 0x4e20f400, d, x, y) }
func (a *asm) vmin(d vec, x, y operand) { a.emitBinary("MIN", 0x4ea0f400, d, x, y) }

// vsqrt emits d = √x.
func (a *asm) vsqrt(d, x vec) {
	if a.isARM64() {
		a.emitWord(0x6ea1f800, "FSQRT", vec(0), x, d) // bits 16 to 20 belong to the code, so m is 0
		return
	}
	a.emitLine("VSQRTPS %s, %s", a.operandName(x), a.operandName(d))
}

// fma emits d += x·y.
func (a *asm) fma(d vec, x vec, y operand) {
	if a.isARM64() {
		a.emitWord(0x4e20cc00, "FMLA", y, x, d)
		return
	}
	a.emitLine("VFMADD231PS %s, %s, %s", a.operandName(y), a.operandName(x), a.operandName(d))
}

// fnma emits d −= x·y.
func (a *asm) fnma(d vec, x vec, y operand) {
	if a.isARM64() {
		a.emitWord(0x4ea0cc00, "FMLS", y, x, d)
		return
	}
	a.emitLine("VFNMADD231PS %s, %s, %s", a.operandName(y), a.operandName(x), a.operandName(d))
}

// horner emits p = p·x + c. On arm64 it computes the result in tmp, and swaps the two
// registers.
func (a *asm) horner(p, tmp *vec, x vec, c operand) {
	if a.isARM64() {
		a.copy(*tmp, c)
		a.fma(*tmp, *p, x)
		*p, *tmp = *tmp, *p
		return
	}
	a.emitLine("VFMADD213PS %s, %s, %s", a.operandName(c), a.operandName(x), a.operandName(*p))
}

// copy emits d = x.
func (a *asm) copy(d vec, x operand) {
	if a.isARM64() {
		a.emitLine("VMOV V%d.B16, V%d.B16", a.number(x), d)
		return
	}
	a.emitLine("VMOVUPS %s, %s", a.operandName(x), a.operandName(d))
}

// andMask emits d = x & y, bit by bit.
func (a *asm) andMask(d vec, x vec, y operand) {
	if a.isARM64() {
		a.emitLine("VAND V%d.B16, V%d.B16, V%d.B16", a.number(y), x, d)
		return
	}
	a.emitLine("VANDPS %s, %s, %s", a.operandName(y), a.operandName(x), a.operandName(d))
}

// setZero emits d = 0.
func (a *asm) setZero(d vec) {
	switch a.lanes {
	case 16:
		a.emitLine("VPXORD Z%d, Z%d, Z%d", d, d, d)
	case 8:
		a.emitLine("VXORPS Y%d, Y%d, Y%d", d, d, d)
	default:
		a.emitLine("VEOR V%d.B16, V%d.B16, V%d.B16", d, d, d)
	}
}

// exponent emits d = t<<23 + addend, in integers.
func (a *asm) exponent(d, t vec, addend operand) {
	if a.isARM64() {
		a.emitLine("VSHL $23, V%d.S4, V%d.S4", t, d)
		a.emitLine("VADD V%d.S4, V%d.S4, V%d.S4", a.number(addend), d, d)
		return
	}
	a.emitLine("VPSLLD $23, %s, %s", a.operandName(t), a.operandName(d))
	a.emitLine("VPADDD %s, %s, %s", a.operandName(addend), a.operandName(d), a.operandName(d))
}

// load emits a load of d from memory at disp(r).
func (a *asm) load(d vec, r reg, disp int) {
	if a.isARM64() {
		a.emitLine("FMOVQ %d(%s), F%d", disp, r, d)
		return
	}
	a.emitLine("VMOVUPS %d(%s), %s", disp, r, a.operandName(d))
}

// store emits a store of s to memory at disp(r).
func (a *asm) store(s vec, r reg, disp int) {
	if a.isARM64() {
		a.emitLine("FMOVQ F%d, %d(%s)", s, disp, r)
		return
	}
	a.emitLine("VMOVUPS %s, %d(%s)", a.operandName(s), disp, r)
}

// spreadArg emits code that fills a register with a float32 parameter.
func (a *asm) spreadArg(d vec, name string) {
	if a.isARM64() {
		a.emitLine("FMOVS %s+%d(FP), F%d", name, a.params[name], d)
		a.emitLine("VDUP V%d.S[0], V%d.S4", d, d)
		return
	}
	a.emitLine("VBROADCASTSS %s+%d(FP), %s", name, a.params[name], a.operandName(d))
}

// spread emits code that fills a register with its lane 0.
func (a *asm) spread(d vec) {
	if a.isARM64() {
		a.emitLine("VDUP V%d.S[0], V%d.S4", d, d)
		return
	}
	a.emitLine("VBROADCASTSS X%d, %s", d, a.operandName(d))
}

// foldLanes emits code that combines the 16 lanes of parts: those eight apart, then four, two and
// one. Every lane of parts[0] gets the result. tmp is overwritten.
func (a *asm) foldLanes(parts []vec, tmp vec, op func(d vec, x, y operand), mnemonic string) {
	for n := len(parts) / 2; n > 0; n /= 2 {
		for i := range n {
			op(parts[i], parts[i], parts[i+n])
		}
	}
	d := parts[0]
	if a.isARM64() {
		a.emitLine("VEXT $8, V%d.B16, V%d.B16, V%d.B16", d, d, tmp)
		op(d, d, tmp)
		a.emitLine("VDUP V%d.S[1], V%d.S4", d, tmp)
		op(d, d, tmp)
		a.spread(d)
		return
	}
	if a.lanes == 16 {
		a.emitLine("VEXTRACTF64X4 $1, Z%d, Y%d", d, tmp)
		a.emitLine("V%sPS Y%d, Y%d, Y%d", mnemonic, tmp, d, d)
	}
	a.emitLine("VEXTRACTF128 $1, Y%d, X%d", d, tmp)
	a.emitLine("V%sPS X%d, X%d, X%d", mnemonic, tmp, d, d)
	a.emitLine("VPERMILPS $0x4e, X%d, X%d", d, tmp)
	a.emitLine("V%sPS X%d, X%d, X%d", mnemonic, tmp, d, d)
	a.emitLine("VPERMILPS $0xb1, X%d, X%d", d, tmp)
	a.emitLine("V%sPS X%d, X%d, X%d", mnemonic, tmp, d, d)
	a.spread(d)
}

func (a *asm) sumLanes(parts []vec, tmp vec) { a.foldLanes(parts, tmp, a.vadd, "ADD") }
func (a *asm) maxLanes(parts []vec, tmp vec) { a.foldLanes(parts, tmp, a.vmax, "MAX") }

// storeBytes emits code that stores the low bytes of the 16 lanes of v. Each lane of mask is 255.
func (a *asm) storeBytes(v []vec, mask operand, r reg) {
	switch a.lanes {
	case 16:
		a.emitLine("VPMOVDB Z%d, (%s)", v[0], r)
	case 8:
		a.andMask(v[0], v[0], mask)
		a.andMask(v[1], v[1], mask)
		a.emitLine("VPACKUSDW Y%d, Y%d, Y%d", v[1], v[0], v[0])
		a.emitLine("VPERMQ $0xd8, Y%d, Y%d", v[0], v[0])
		a.emitLine("VEXTRACTI128 $1, Y%d, X%d", v[0], v[1])
		a.emitLine("VPACKUSWB X%d, X%d, X%d", v[1], v[0], v[0])
		a.emitLine("VMOVDQU X%d, (%s)", v[0], r)
	default:
		a.emitLine("VUZP1 V%d.H8, V%d.H8, V%d.H8", v[1], v[0], v[0])
		a.emitLine("VUZP1 V%d.H8, V%d.H8, V%d.H8", v[3], v[2], v[2])
		a.emitLine("VUZP1 V%d.B16, V%d.B16, V%d.B16", v[2], v[0], v[0])
		a.emitLine("FMOVQ F%d, (%s)", v[0], r)
	}
}
