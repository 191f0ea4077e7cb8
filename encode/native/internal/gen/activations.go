package main

import (
	"fmt"

	"github.com/plaid-ir/plaid/encode/native/internal/plain"
)

// activation writes a function of each value of m rows of n. prepare takes registers and
// constants, and returns a function that writes the value of v to v.
func (a *asm) activation(name, more string, prepare func() (value func(v vec))) {
	a.function(name, "x []float32, stride, m, n int"+more)
	x, stride, m, n := a.arg("x_base"), a.strideArg("stride"), a.arg("m"), a.arg("n")
	a.shift(n, -4)
	p, count := a.reg(), a.reg()
	v := a.vec()
	value := prepare()
	a.rows(m, func() {
		a.move(x, p)
		a.stream("value", n, count, func(_, disp int) {
			a.load(v, p, disp)
			value(v)
			a.store(v, p, disp)
		}, p)
		a.addReg(x, stride)
	})
}

type geluConstants struct {
	limit, minus, scale, minusOne, half *constant
	c                                   []*constant
}

func (a *asm) geluConstants() geluConstants {
	g := geluConstants{
		limit: a.float("limit", plain.GELULimit), minus: a.float("-limit", -plain.GELULimit),
		scale: a.float("scale", plain.GELUScale), minusOne: a.float("-1", -1), half: a.float("half", 0.5),
	}
	for i, c := range plain.GELUCoefficients {
		g.c = append(g.c, a.float(fmt.Sprintf("gelu%d", i), c))
	}
	a.pin(g.limit, g.minus, g.scale, g.minusOne, g.half)
	a.pin(g.c...)
	return g
}

// gelu is x = x·Φ(x).
func (a *asm) gelu(x vec, g geluConstants, tmp []vec) {
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

func gelu(a *asm) {
	a.activation("GELU", "", func() func(vec) {
		tmp, g := a.vecs(4), a.geluConstants()
		return func(v vec) { a.gelu(v, g, tmp) }
	})
}

// swish is x = x / (1 + e^−z) with z = y·(linear + cubic·y²) and y near x.
func swish(a *asm) {
	a.activation("Swish", ", linear, cubic float32", func() func(vec) {
		y, q, tmp, linear, cubic := a.vec(), a.vec(), a.vecs(4), a.vec(), a.vec()
		a.spreadArg(q, "linear")
		a.spreadArg(cubic, "cubic")
		a.zero(linear)
		a.vsub(linear, linear, q) // so that z changes its sign
		limit := a.float("limit", -plain.ExpMin)
		a.pin(limit)
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

// tanh is x = 2/(1 + e^−2y) − 1 with y near x, and not a number where x is not.
func tanh(a *asm) {
	a.activation("Tanh", "", func() func(vec) {
		y, z, zero, tmp := a.vec(), a.vec(), a.vec(), a.vecs(4)
		a.zero(zero)
		limit, two, minusTwo := a.float("limit", -plain.ExpMin), a.float("2", 2), a.float("-2", -2)
		a.pin(limit, two, minusTwo)
		e := a.expConstants()
		return func(v vec) {
			// Of two operands x86 takes the second if one is not a number.
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

// relu adds 0 for the sign of zeros, and takes the second operand, which may be not a number.
func relu(a *asm) {
	a.activation("ReLU", "", func() func(vec) {
		zero := a.vec()
		a.zero(zero)
		return func(v vec) {
			a.vmax(v, zero, v)
			a.vadd(v, v, zero)
		}
	})
}

func gate(a *asm) {
	a.function("Gate", "x []float32, stride, m, n int")
	x, stride, m, n := a.arg("x_base"), a.strideArg("stride"), a.arg("m"), a.arg("n")
	p, q, count, bytes := a.reg(), a.reg(), a.reg(), a.reg()
	a.move(n, bytes)
	a.shift(bytes, 2)
	a.shift(n, -4)
	v, w := a.vec(), a.vec()
	a.rows(m, func() {
		a.move(x, p)
		a.move(x, q)
		a.addReg(q, bytes)
		a.stream("gate", n, count, func(_, disp int) {
			a.load(v, p, disp)
			a.load(w, q, disp)
			a.vmul(v, v, w)
			a.store(v, p, disp)
		}, p, q)
		a.addReg(x, stride)
	})
}
