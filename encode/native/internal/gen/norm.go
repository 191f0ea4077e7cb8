package main

import "github.com/plaid-ir/plaid/encode/native/internal/plain"

func writeNorm(a *asm)    { a.writeNormForm(normForm{name: "Norm", center: true}) }
func writeAddNorm(a *asm) { a.writeNormForm(normForm{name: "AddNorm", add: true, center: true}) }
func writeRMS(a *asm)     { a.writeNormForm(normForm{name: "RMS"}) }
func writeAddRMS(a *asm)  { a.writeNormForm(normForm{name: "AddRMS", add: true}) }

// normForm is a function of package plain: a norm of the sum x + r if add, and of the differences from the
// mean if center.
type normForm struct {
	name        string
	add, center bool
}

// writeNormForm writes a norm.
func (a *asm) writeNormForm(form normForm) {
	rows := "dst, x"
	if form.add {
		rows += ", r"
	}
	a.beginFunction(form.name, rows+" []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32")
	dst, x := a.loadArg("dst_base"), a.loadArg("x_base")
	stride, m, n := a.strideArg("stride"), a.loadArg("m"), a.loadArg("n")
	a.shiftReg(n, -4)
	var r reg
	if form.add {
		r = a.loadArg("r_base")
	}
	p, q, count, g, b := a.newReg(), a.newReg(), a.newReg(), a.newReg(), a.newReg()
	acc, mean, v, w, t := a.newVecs(a.sumRegisters()), a.newVec(), a.newVec(), a.newVec(), a.newVec()
	epsilon, inverse := a.newVec(), a.newVec()
	a.spreadArg(epsilon, "epsilon")
	a.spreadArg(inverse, "inverse")
	oneConstant := a.float32Constant("one", 1)
	a.pinConstants(oneConstant)
	zero := func() {
		for _, s := range acc {
			a.setZero(s)
		}
	}
	a.emitRows(m, func() {
		zero()
		a.moveReg(x, p)
		if form.add {
			a.moveReg(r, q)
		}
		a.emitBlocks("sum", n, count, func() {
			a.visitVectors(func(i, disp int) {
				a.load(v, p, disp)
				if form.add {
					a.load(w, q, disp)
					a.vadd(v, v, w)
					a.store(v, p, disp)
				}
				if form.center {
					a.vadd(acc[i], acc[i], v)
				} else {
					a.fma(acc[i], v, v)
				}
			})
			a.add(p, block)
			if form.add {
				a.add(q, block)
			}
		})
		a.sumLanes(acc, v)
		if form.center {
			a.vmul(mean, acc[0], inverse)
			zero()
			a.moveReg(x, p)
			a.emitStream("square", n, count, func(i, disp int) {
				a.load(v, p, disp)
				a.vsub(v, v, mean)
				a.fma(acc[i], v, v)
			}, p)
			a.sumLanes(acc, v)
		}
		a.copy(t, epsilon)
		a.fma(t, acc[0], inverse)
		a.vsqrt(t, t)
		a.copy(v, oneConstant)
		a.vdiv(t, v, t)
		a.moveReg(x, p)
		a.moveReg(dst, q)
		a.loadArgTo("gamma_base", g)
		a.loadArgTo("beta_base", b)
		a.emitStream("scale", n, count, func(_, disp int) {
			a.load(v, p, disp)
			if form.center {
				a.vsub(v, v, mean)
			}
			a.vmul(v, v, t)
			a.load(w, b, disp)
			a.loadFMA(w, v, g, disp, acc[0])
			a.store(w, q, disp)
		}, p, g, b, q)
		a.addReg(x, stride)
		a.addReg(dst, stride)
		if form.add {
			a.addReg(r, stride)
		}
	})
}

// loadFMA emits d += x·y with y from memory. It overwrites tmp.
func (a *asm) loadFMA(d, x vec, r reg, disp int, tmp vec) {
	a.load(tmp, r, disp)
	a.fma(d, x, tmp)
}

// writeQuantize writes plain.Quantize.
func writeQuantize(a *asm) {
	a.beginFunction("Quantize", "dst []byte, dstStride int, scales, x []float32, stride, m, n int, magic float32")
	dst, dstStride := a.loadArg("dst_base"), a.loadArg("dstStride")
	scales, x := a.loadArg("scales_base"), a.loadArg("x_base")
	stride, m, n := a.strideArg("stride"), a.loadArg("m"), a.loadArg("n")
	a.shiftReg(n, -4)
	p, q, count := a.newReg(), a.newReg(), a.newReg()
	acc, v, magic := a.newVecs(a.sumRegisters()), a.newVecs(4), a.newVec()
	a.spreadArg(magic, "magic")
	least, top := a.float32Constant("least", plain.QuantMin), a.float32Constant("top", plain.QuantTop)
	scale := a.float32Constant("scale", plain.QuantScale)
	abs, low := a.constant("abs", 0x7fffffff), a.constant("low", 0xff)
	a.pinConstants(least, top, scale, abs, low)
	a.emitRows(m, func() {
		for _, s := range acc {
			a.copy(s, least)
		}
		a.moveReg(x, p)
		a.emitStream("max", n, count, func(i, disp int) {
			a.load(v[0], p, disp)
			a.andMask(v[0], v[0], abs)
			a.vmax(acc[i], acc[i], v[0])
		}, p)
		a.maxLanes(acc, v[0])
		s := acc[0]
		a.vmul(v[0], s, scale)
		if a.isARM64() {
			a.emitLine("FMOVS F%d, (%s)", v[0], scales)
		} else {
			a.emitLine("VMOVSS X%d, (%s)", v[0], scales)
		}
		a.copy(v[0], top)
		a.vdiv(s, v[0], s)
		a.moveReg(x, p)
		a.moveReg(dst, q)
		a.emitBlocks("round", n, count, func() {
			a.visitVectors(func(i, disp int) {
				t := v[i]
				a.copy(t, magic)
				a.loadFMA(t, s, p, disp, a.spareRegister(acc, v))
			})
			a.storeBytes(v, low, q)
			a.add(p, block)
			a.add(q, 16)
		})
		a.add(scales, 4)
		a.addReg(dst, dstStride)
		a.addReg(x, stride)
	})
}

// spareRegister returns a register that the rounding of a row does not use.
func (a *asm) spareRegister(acc, v []vec) vec {
	if len(acc) > 1 {
		return acc[1]
	}
	return v[3]
}
