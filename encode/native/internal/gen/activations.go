package main

import (
	"fmt"

	"github.com/plaid-ir/plaid/encode/native/internal/plain"
)

// writeActivation writes an assembler function that replaces each value of m rows of n. prepare allocates
// registers and constants, and returns a function that emits the code for a vector v.
func (a *asm) writeActivation(name, parameters string, prepare func() (value func(v vec))) {
	a.beginFunction(name, "x []float32, stride, m, n int"+parameters)
	x, stride, m, n := a.loadArg("x_base"), a.strideArg("stride"), a.loadArg("m"), a.loadArg("n")
	a.shiftReg(n, -4)
	p, count := a.newReg(), a.newReg()
	v := a.newVec()
	value := prepare()
	a.emitRows(m, func() {
		a.moveReg(x, p)
		a.emitStream("value", n, count, func(_, disp int) {
			a.load(v, p, disp)
			value(v)
			a.store(v, p, disp)
		}, p)
		a.addReg(x, stride)
	})
}

// geluConstants are the constants of plain.GELUOf.
type geluConstants struct {
	limit, minus, scale, minusOne, half *constant
	c                                   []*constant
}

// geluConstants returns the constants in registers.
func (a *asm) geluConstants() geluConstants {
	g := geluConstants{
		limit: a.float32Constant("limit", plain.GELULimit), minus: a.float32Constant("-limit", -plain.GELULimit),
		scale:    a.float32Constant("scale", plain.GELUScale),
		minusOne: a.float32Constant("-1", -1),
		half:     a.float32Constant("half", 0.5),
	}
	for i, c := range plain.GELUCoefficients {
		g.c = append(g.c, a.float32Constant(fmt.Sprintf("gelu%d", i), c))
	}
	a.pinConstants(g.limit, g.minus, g.scale, g.minusOne, g.half)
	a.pinConstants(g.c...)
	return g
}

// emitGELU emits x = x·Φ(x).
func (a *asm) emitGELU(x vec, g geluConstants, tmp []vec) {
	y, t, q, s := tmp[0], tmp[1], tmp[2], tmp[3]
	a.vmin(y, x, g.limit)
	a.vmax(y, y, g.minus)
	a.vmul(q, y, y)
	a.copy(t, g.minusOne)
	a.fma(t, q, g.scale)
	a.copy(q, g.c[15])
	for i := 14; i >= 0; i-- {
		a.horner(&q, &s, t, g.c[i])
	}
	a.copy(t, g.half)
	a.fma(t, y, q)
	a.vmul(x, x, t)
}

// writeGELU writes plain.GELU.
func writeGELU(a *asm) {
	a.writeActivation("GELU", "", func() func(vec) {
		tmp, g := a.newVecs(4), a.geluConstants()
		return func(v vec) { a.emitGELU(v, g, tmp) }
	})
}

// writeSwish writes x = x / (1 + e^−z) with z = y·(linear + cubic·y²) and y = x, clamped.
func writeSwish(a *asm) {
	a.writeActivation("Swish", ", linear, cubic float32", func() func(vec) {
		y, q, tmp, linear, cubic := a.newVec(), a.newVec(), a.newVecs(4), a.newVec(), a.newVec()
		a.spreadArg(q, "linear")
		a.spreadArg(cubic, "cubic")
		a.setZero(linear)
		a.vsub(linear, linear, q) // −linear, for the sign of −z
		limit := a.float32Constant("limit", -plain.ExpMin)
		a.pinConstants(limit)
		e := a.expConstants()
		return func(v vec) {
			a.vmin(y, v, limit)
			a.vmax(y, y, e.least)
			a.vmul(q, y, y)
			t := tmp[0]
			a.copy(t, linear)
			a.fnma(t, q, cubic)
			a.vmul(y, y, t)
			a.vmin(y, y, limit)
			r := a.exp(y, e, tmp)
			a.vadd(r, r, e.one)
			a.vdiv(v, v, r)
		}
	})
}

// writeTanh writes x = 2/(1 + e^−2y) − 1 with y = x, clamped. NaN stays NaN.
func writeTanh(a *asm) {
	a.writeActivation("Tanh", "", func() func(vec) {
		y, z, zero, tmp := a.newVec(), a.newVec(), a.newVec(), a.newVecs(4)
		a.setZero(zero)
		limit := a.float32Constant("limit", -plain.ExpMin)
		two, minusTwo := a.float32Constant("2", 2), a.float32Constant("-2", -2)
		a.pinConstants(limit, two, minusTwo)
		e := a.expConstants()
		return func(v vec) {
			// Minimum and maximum of x86 return the second operand if one is NaN.
			a.copy(z, limit)
			a.vmin(z, z, v)
			a.copy(y, e.least)
			a.vmax(y, y, z)
			a.vmul(z, y, minusTwo)
			a.vmin(z, z, limit)
			r := a.exp(z, e, tmp)
			a.vadd(r, r, e.one)
			a.copy(v, two)
			a.vdiv(v, v, r)
			a.vsub(v, v, e.one)
			a.fma(v, y, zero)
		}
	})
}

// writeReLU writes x = max(0, x), with x as the second operand so that NaN stays. Adding 0 turns −0 into 0.
func writeReLU(a *asm) {
	a.writeActivation("ReLU", "", func() func(vec) {
		zero := a.newVec()
		a.setZero(zero)
		return func(v vec) {
			a.vmax(v, zero, v)
			a.vadd(v, v, zero)
		}
	})
}

// writeGate writes the product of each row's first n values and the n values after them.
func writeGate(a *asm) {
	a.beginFunction("Gate", "x []float32, stride, m, n int")
	x, stride, m, n := a.loadArg("x_base"), a.strideArg("stride"), a.loadArg("m"), a.loadArg("n")
	p, q, count, bytes := a.newReg(), a.newReg(), a.newReg(), a.newReg()
	a.moveReg(n, bytes)
	a.shiftReg(bytes, 2)
	a.shiftReg(n, -4)
	v, w := a.newVec(), a.newVec()
	a.emitRows(m, func() {
		a.moveReg(x, p)
		a.moveReg(x, q)
		a.addReg(q, bytes)
		a.emitStream("gate", n, count, func(_, disp int) {
			a.load(v, p, disp)
			a.load(w, q, disp)
			a.vmul(v, v, w)
			a.store(v, p, disp)
		}, p, q)
		a.addReg(x, stride)
	})
}
