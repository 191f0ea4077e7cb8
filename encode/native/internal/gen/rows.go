package main

import (
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/encode/native/internal/plain"
)

// block is the size of 16 values in bytes.
const block = 16 * 4

// visitVectors calls body for each vector of a block, with its number and its offset in bytes.
func (a *asm) each(body func(i, disp int)) {
	for i := range a.parts() {
		body(i, i*a.lanes*4)
	}
}

// emitRows emits a loop that runs body for each of m rows, and returns. body advances its pointers.
func (a *asm) rows(m reg, body func()) {
	a.jumpZero(m, "return")
	a.loop("row", m, body)
	a.label("return")
	a.ret()
}

// strideArg loads a stride, converted from values to bytes.
func (a *asm) strideArg(name string) reg {
	r := a.arg(name)
	a.shift(r, 2)
	return r
}

// blocks emits a loop that runs body for each of the n blocks of a row, and leaves count 0.
func (a *asm) blocks(name string, n, count reg, body func()) {
	a.move(n, count)
	a.loop(name, count, body)
}

// stream emits a loop that runs body for each vector of a row of n blocks, with its offset in the block.
// pointers advance with the blocks. It leaves count 0.
func (a *asm) stream(name string, n, count reg, body func(i, disp int), pointers ...reg) {
	a.blocks(name, n, count, func() {
		a.each(body)
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

func (a *asm) expConstants() expConstants {
	e := expConstants{
		least: a.float("least", plain.ExpMin),
		log2e: a.float("log2e", plain.Log2E),
		magic: a.float("magic", plain.Magic),
		hi:    a.float("ln2hi", plain.Ln2Hi),
		lo:    a.float("ln2lo", plain.Ln2Lo),
		one:   a.float("one", 1),
	}
	for i, c := range plain.ExpCoefficients {
		e.c = append(e.c, a.float(fmt.Sprintf("exp%d", i), c))
	}
	a.pin(e.least, e.log2e, e.magic, e.hi, e.lo, e.one)
	a.pin(e.c...)
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

// softmax writes plain.Softmax.
func softmax(a *asm) {
	a.function("Softmax", "x []float32, stride, m, n int, scale float32")
	x, stride, m, n := a.arg("x_base"), a.strideArg("stride"), a.arg("m"), a.arg("n")
	a.shift(n, -4)
	p, count := a.reg(), a.reg()
	acc, scale, top, v, tmp := a.vecs(a.parts()), a.vec(), a.vec(), a.vec(), a.vecs(4)
	a.spreadArg(scale, "scale")
	least := a.float("-inf", float32(math.Inf(-1)))
	a.pin(least)
	e := a.expConstants()
	a.rows(m, func() {
		for _, s := range acc {
			a.copy(s, least)
		}
		a.move(x, p)
		a.stream("max", n, count, func(i, disp int) {
			a.load(v, p, disp)
			a.vmax(acc[i], acc[i], v)
		}, p)
		a.largest(acc, v)
		a.copy(top, acc[0])
		for _, s := range acc {
			a.zero(s)
		}
		a.move(x, p)
		a.stream("exp", n, count, func(i, disp int) {
			a.load(v, p, disp)
			a.vsub(v, v, top)
			a.vmul(v, v, scale)
			r := a.exp(v, e, tmp)
			a.store(r, p, disp)
			a.vadd(acc[i], acc[i], r)
		}, p)
		a.sum(acc, v)
		a.copy(v, e.one)
		a.vdiv(top, v, acc[0])
		a.move(x, p)
		a.stream("divide", n, count, func(_, disp int) {
			a.load(v, p, disp)
			a.vmul(v, v, top)
			a.store(v, p, disp)
		}, p)
		a.addReg(x, stride)
	})
}

// rotate writes plain.Rotate.
func rotate(a *asm) {
	a.function("Rotate", "x []float32, stride, m, heads, half int, cos, sin []float32")
	x, stride, m := a.arg("x_base"), a.strideArg("stride"), a.arg("m")
	heads, half := a.arg("heads"), a.strideArg("half")
	cos, sin := a.arg("cos_base"), a.arg("sin_base")
	p, q, c, head, count := a.reg(), a.reg(), a.reg(), a.reg(), a.reg()
	s := a.reg()
	u, v, vc, vs, t := a.vec(), a.vec(), a.vec(), a.vec(), a.vec()
	a.rows(m, func() {
		a.move(x, p)
		a.move(heads, head)
		a.loop("head", head, func() {
			a.move(p, q)
			a.addReg(q, half)
			a.move(cos, c)
			a.move(sin, s)
			a.move(half, count)
			a.shift(count, -6)
			a.loop("pair", count, func() {
				a.each(func(_, disp int) {
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
			a.move(q, p)
		})
		a.addReg(cos, half)
		a.addReg(sin, half)
		a.addReg(x, stride)
	})
}
