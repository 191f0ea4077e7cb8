package main

import "github.com/plaid-ir/plaid/encode/native/internal/plain"

func norm(a *asm)    { normRows(a, "Norm", false, true) }
func addNorm(a *asm) { normRows(a, "AddNorm", true, true) }
func rms(a *asm)     { normRows(a, "RMS", false, false) }
func addRMS(a *asm)  { normRows(a, "AddRMS", true, false) }

// normRows writes a norm: of the sum x + r if add, and of the differences from the mean if center.
func normRows(a *asm, name string, add, center bool) {
	rows := "dst, x"
	if add {
		rows += ", r"
	}
	a.function(name, rows+" []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32")
	dst, x, stride, m, n := a.arg("dst_base"), a.arg("x_base"), a.strideArg("stride"), a.arg("m"), a.arg("n")
	a.shift(n, -4)
	var r reg
	if add {
		r = a.arg("r_base")
	}
	p, q, count, g, b := a.reg(), a.reg(), a.reg(), a.reg(), a.reg()
	acc, mean, v, w, t := a.vecs(a.parts()), a.vec(), a.vec(), a.vec(), a.vec()
	epsilon, inverse := a.vec(), a.vec()
	a.spreadArg(epsilon, "epsilon")
	a.spreadArg(inverse, "inverse")
	one := a.float("one", 1)
	a.pin(one)
	zero := func() {
		for _, s := range acc {
			a.zero(s)
		}
	}
	a.rows(m, func() {
		zero()
		a.move(x, p)
		if add {
			a.move(r, q)
		}
		a.blocks("sum", n, count, func() {
			a.each(func(i, disp int) {
				a.load(v, p, disp)
				if add {
					a.load(w, q, disp)
					a.vadd(v, v, w)
					a.store(v, p, disp)
				}
				if center {
					a.vadd(acc[i], acc[i], v)
				} else {
					a.fma(acc[i], v, v)
				}
			})
			a.add(p, block)
			if add {
				a.add(q, block)
			}
		})
		a.sum(acc, v)
		if center {
			a.vmul(mean, acc[0], inverse)
			zero()
			a.move(x, p)
			a.stream("square", n, count, func(i, disp int) {
				a.load(v, p, disp)
				a.vsub(v, v, mean)
				a.fma(acc[i], v, v)
			}, p)
			a.sum(acc, v)
		}
		a.copy(t, epsilon)
		a.fma(t, acc[0], inverse)
		a.vsqrt(t, t)
		a.copy(v, one)
		a.vdiv(t, v, t)
		a.move(x, p)
		a.move(dst, q)
		a.argTo("gamma_base", g)
		a.argTo("beta_base", b)
		a.stream("scale", n, count, func(_, disp int) {
			a.load(v, p, disp)
			if center {
				a.vsub(v, v, mean)
			}
			a.vmul(v, v, t)
			a.load(w, b, disp)
			a.loadFMA(w, v, g, disp, acc[0])
			a.store(w, q, disp)
		}, p, g, b, q)
		a.addReg(x, stride)
		a.addReg(dst, stride)
		if add {
			a.addReg(r, stride)
		}
	})
}

// loadFMA emits d += x·y with y from memory. It overwrites tmp.
func (a *asm) loadFMA(d, x vec, r reg, disp int, tmp vec) {
	a.load(tmp, r, disp)
	a.fma(d, x, tmp)
}

// quantize writes plain.Quantize.
func quantize(a *asm) {
	a.function("Quantize", "dst []byte, dstStride int, scales, x []float32, stride, m, n int, magic float32")
	dst, dstStride, scales, x := a.arg("dst_base"), a.arg("dstStride"), a.arg("scales_base"), a.arg("x_base")
	stride, m, n := a.strideArg("stride"), a.arg("m"), a.arg("n")
	a.shift(n, -4)
	p, q, count := a.reg(), a.reg(), a.reg()
	acc, v, magic := a.vecs(a.parts()), a.vecs(4), a.vec()
	a.spreadArg(magic, "magic")
	least, top := a.float("least", plain.QuantMin), a.float("top", plain.QuantTop)
	scale := a.float("scale", plain.QuantScale)
	abs, low := a.constant("abs", 0x7fffffff), a.constant("low", 0xff)
	a.pin(least, top, scale, abs, low)
	a.rows(m, func() {
		for _, s := range acc {
			a.copy(s, least)
		}
		a.move(x, p)
		a.stream("max", n, count, func(i, disp int) {
			a.load(v[0], p, disp)
			a.and(v[0], v[0], abs)
			a.vmax(acc[i], acc[i], v[0])
		}, p)
		a.largest(acc, v[0])
		s := acc[0]
		a.vmul(v[0], s, scale)
		if a.arm() {
			a.emit("FMOVS F%d, (%s)", v[0], scales)
		} else {
			a.emit("VMOVSS X%d, (%s)", v[0], scales)
		}
		a.copy(v[0], top)
		a.vdiv(s, v[0], s)
		a.move(x, p)
		a.move(dst, q)
		a.blocks("round", n, count, func() {
			a.each(func(i, disp int) {
				t := v[i]
				a.copy(t, magic)
				a.loadFMA(t, s, p, disp, a.spare(acc, v))
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

// spare returns a register that the rounding of a row does not use.
func (a *asm) spare(acc, v []vec) vec {
	if len(acc) > 1 {
		return acc[1]
	}
	return v[3]
}
