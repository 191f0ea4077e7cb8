package main

import (
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/encode/native/internal/plain"
)

// block is the size of 16 values in bytes.
const block = 16 * 4

// visitVectors calls body for each vector of a block, with its number and its offset in bytes.
func (a *asm) visitVectors(body func(i, disp int)) {
	for i := range a.sumRegisters() {
		body(i, i*a.lanes*4)
	}
}

// emitRows emits a loop that runs body for each of m rows, and returns. body advances its pointers.
func (a *asm) emitRows(m reg, body func()) {
	a.jumpZero(m, "return")
	a.emitLoop("row", m, body)
	a.writeLabel("return")
	a.emitReturn()
}

// strideArg loads a stride, converted from values to bytes.
func (a *asm) strideArg(name string) reg {
	r := a.loadArg(name)
	a.shiftReg(r, 2)
	return r
}

// emitBlocks emits a loop that runs body for each of the n blocks of a row, and leaves count 0.
func (a *asm) emitBlocks(name string, n, count reg, body func()) {
	a.moveReg(n, count)
	a.emitLoop(name, count, body)
}

// emitStream emits a loop that runs body for each vector of a row of n blocks, with its offset in the block.
// pointers advance with the blocks. It leaves count 0.
func (a *asm) emitStream(name string, n, count reg, body func(i, disp int), pointers ...reg) {
	a.emitBlocks(name, n, count, func() {
		a.visitVectors(body)
		for _, p := range pointers {
			a.add(p, block)
		}
	})
}

// expConstants are the constants of plain.Exp.
type expConstants struct {
	least, log2e, magic, hi, lo, one *constant
	c                                []*constant
}

// expConstants returns the constants in registers.
func (a *asm) expConstants() expConstants {
	e := expConstants{
		least: a.float32Constant("least", plain.ExpMin),
		log2e: a.float32Constant("log2e", plain.Log2E),
		magic: a.float32Constant("magic", plain.Magic),
		hi:    a.float32Constant("ln2hi", plain.Ln2Hi),
		lo:    a.float32Constant("ln2lo", plain.Ln2Lo),
		one:   a.float32Constant("one", 1),
	}
	for i, c := range plain.ExpCoefficients {
		e.c = append(e.c, a.float32Constant(fmt.Sprintf("exp%d", i), c))
	}
	a.pinConstants(e.least, e.log2e, e.magic, e.hi, e.lo, e.one)
	a.pinConstants(e.c...)
	return e
}

// exp emits e^x in one of the temporaries, which it returns. x is overwritten.
func (a *asm) exp(x vec, e expConstants, tmp []vec) vec {
	t, n, p, q := tmp[0], tmp[1], tmp[2], tmp[3]
	a.vmax(x, x, e.least)
	a.copy(t, e.magic)
	a.fma(t, x, e.log2e)
	a.vsub(n, t, e.magic)
	a.fnma(x, n, e.hi)
	a.fnma(x, n, e.lo)
	a.copy(p, e.c[6])
	for i := 5; i >= 0; i-- {
		a.horner(&p, &q, x, e.c[i])
	}
	a.exponent(t, t, e.one)
	a.vmul(p, p, t)
	return p
}

// writeSoftmax writes plain.Softmax.
func writeSoftmax(a *asm) {
	a.beginFunction("Softmax", "x []float32, stride, m, n int, scale float32")
	x, stride, m, n := a.loadArg("x_base"), a.strideArg("stride"), a.loadArg("m"), a.loadArg("n")
	a.shiftReg(n, -4)
	p, count := a.newReg(), a.newReg()
	acc, scale, top, v, tmp := a.newVecs(a.sumRegisters()), a.newVec(), a.newVec(), a.newVec(), a.newVecs(4)
	a.spreadArg(scale, "scale")
	least := a.float32Constant("-inf", float32(math.Inf(-1)))
	a.pinConstants(least)
	e := a.expConstants()
	a.emitRows(m, func() {
		for _, s := range acc {
			a.copy(s, least)
		}
		a.moveReg(x, p)
		a.emitStream("max", n, count, func(i, disp int) {
			a.load(v, p, disp)
			a.vmax(acc[i], acc[i], v)
		}, p)
		a.maxLanes(acc, v)
		a.copy(top, acc[0])
		for _, s := range acc {
			a.setZero(s)
		}
		a.moveReg(x, p)
		a.emitStream("exp", n, count, func(i, disp int) {
			a.load(v, p, disp)
			a.vsub(v, v, top)
			a.vmul(v, v, scale)
			r := a.exp(v, e, tmp)
			a.store(r, p, disp)
			a.vadd(acc[i], acc[i], r)
		}, p)
		a.sumLanes(acc, v)
		a.copy(v, e.one)
		a.vdiv(top, v, acc[0])
		a.moveReg(x, p)
		a.emitStream("divide", n, count, func(_, disp int) {
			a.load(v, p, disp)
			a.vmul(v, v, top)
			a.store(v, p, disp)
		}, p)
		a.addReg(x, stride)
	})
}

// writeRotate writes plain.Rotate.
func writeRotate(a *asm) {
	a.beginFunction("Rotate", "x []float32, stride, m, heads, half int, cos, sin []float32")
	x, stride, m := a.loadArg("x_base"), a.strideArg("stride"), a.loadArg("m")
	heads, half := a.loadArg("heads"), a.strideArg("half")
	cos, sin := a.loadArg("cos_base"), a.loadArg("sin_base")
	p, q, c, head, count := a.newReg(), a.newReg(), a.newReg(), a.newReg(), a.newReg()
	s := a.newReg()
	u, v, vc, vs, t := a.newVec(), a.newVec(), a.newVec(), a.newVec(), a.newVec()
	a.emitRows(m, func() {
		a.moveReg(x, p)
		a.moveReg(heads, head)
		a.emitLoop("head", head, func() {
			a.moveReg(p, q)
			a.addReg(q, half)
			a.moveReg(cos, c)
			a.moveReg(sin, s)
			a.moveReg(half, count)
			a.shiftReg(count, -6)
			a.emitLoop("pair", count, func() {
				a.visitVectors(func(_, disp int) {
					a.load(u, p, disp)
					a.load(v, q, disp)
					a.load(vc, c, disp)
					a.load(vs, s, disp)
					a.vmul(t, u, vc)
					a.fnma(t, v, vs)
					a.store(t, p, disp)
					a.vmul(t, v, vc)
					a.fma(t, u, vs)
					a.store(t, q, disp)
				})
				for _, r := range []reg{p, q, c, s} {
					a.add(r, block)
				}
			})
			a.moveReg(q, p)
		})
		a.addReg(cos, half)
		a.addReg(sin, half)
		a.addReg(x, stride)
	})
}
