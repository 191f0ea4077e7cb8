package main

import "fmt"

// tileRows is the number that the caller's m is a multiple of.
const tileRows = 8

// writeProducts writes the products of float32. The sums of a tile of rows and a panel stay in registers
// during the loop over k. On x86, a tile has 8 (AVX-512) or 4 rows (AVX2) and up to three vectors, and
// each value of a is spread over a register. On arm64, it has 8 rows and two vectors, and
// instructions multiply with a lane.
func writeProducts(a *asm) {
	a.beginFunction("Products", "c []float32, ldc int, a []float32, lda, m, k int, b, bias []float32, vectors int")
	a.emitTiles(a.vectors, false)
}

// byteParameters are the parameters of products of bytes.
const byteParameters = "c []float32, ldc int, a []byte, lda int, scales []float32, m, k int, " +
	"b []int8, starts []int32, columns []float32, vectors int"

func writeByteProducts(a *asm) {
	a.beginFunction("ByteProducts", byteParameters)
	a.emitTiles(a.byteVectors, true)
}

// tile holds the registers and sizes for the code of a tile.
type tile struct {
	rows, vectors     int
	bytes             bool
	c, ldc, x, ldx, b reg
	scales, columns   reg // of bytes
	bias              reg // of float32. For bytes it points to starts
	count             reg
	lda3, y           reg   // of x86: three strides, and the address of row 4
	m                 reg   // counts tiles
	pointers          []reg // of arm64: the address of each row
}

// emitTiles emits the loops over tiles, one for each number of vectors up to maxVectors.
func (a *asm) emitTiles(maxVectors int, bytes bool) {
	t := tile{rows: tileRows, bytes: bytes}
	if a.lanes == 8 {
		t.rows = 4
	}
	t.c, t.ldc = a.loadArg("c_base"), a.strideArg("ldc")
	t.x, t.ldx, t.m = a.loadArg("a_base"), a.loadArg("lda"), a.loadArg("m")
	if !bytes {
		a.shiftReg(t.ldx, 2)
		t.bias = a.loadArg("bias_base")
	} else {
		t.bias, t.scales, t.columns = a.loadArg("starts_base"), a.loadArg("scales_base"), a.loadArg("columns_base")
	}
	// Groups of four steps: of k, or of four bytes of k.
	shift := -2
	if bytes {
		shift = -4
	}
	t.b, t.count = a.newReg(), a.newReg()
	a.shiftReg(t.m, map[int]int{8: -3, 4: -2}[t.rows]) // m / rows, the number of tiles
	a.jumpZero(t.m, "return")
	a.loadArgTo("vectors", t.count)
	for v := maxVectors; v > 1; v-- {
		a.emitEither("CMP $%d, %s", "CMPQ %[2]s, $%[1]d", v, t.count)
		a.emitEither("BEQ vectors%d", "JEQ vectors%d", v)
	}
	free := a.free
	for v := 1; v <= maxVectors; v++ {
		if v > 1 {
			a.writeLabel(fmt.Sprintf("vectors%d", v))
		}
		t.vectors = v
		a.free, a.used = free, 0
		if a.isARM64() {
			a.armTile(t, shift)
		} else {
			a.x86Tile(t, shift)
		}
		a.emitJump("return")
	}
	a.writeLabel("return")
	a.emitReturn()
}

// rowAddress returns the memory operand of row i. x is the address of row 0, and y of row 4.
func rowAddress(t *tile, i, disp int) string {
	base := t.x
	if i >= 4 {
		base = t.y
	}
	switch i % 4 {
	case 0:
		return fmt.Sprintf("%d(%s)", disp, base)
	case 3:
		return fmt.Sprintf("%d(%s)(%s*1)", disp, base, t.lda3)
	}
	return fmt.Sprintf("%d(%s)(%s*%d)", disp, base, t.ldx, i%4)
}

// x86Tile emits the loop over tiles for x86. shift turns k into the count of its loop.
func (a *asm) x86Tile(t tile, shift int) {
	x := t.x
	t.x, t.lda3, t.y = a.newReg(), a.newReg(), a.newReg()
	a.emitLine("LEAQ (%s)(%s*2), %s", t.ldx, t.ldx, t.lda3)
	size := 4 * a.lanes // bytes of a vector, of float32 or of four bytes a column
	n := t.vectors
	sums, w := a.newVecs(t.rows*n), a.newVecs(n)
	a.writeLabel(fmt.Sprintf("tile%d", n))
	a.moveReg(x, t.x)
	if t.rows == 8 {
		a.emitLine("LEAQ (%s)(%s*4), %s", t.x, t.ldx, t.y)
	}
	for j := range n {
		a.load(sums[j], t.bias, j*size)
		for i := 1; i < t.rows; i++ {
			a.copy(sums[i*n+j], sums[j])
		}
	}
	a.loadArgTo("b_base", t.b)
	a.loadArgTo("k", t.count)
	a.shiftReg(t.count, shift)
	var step func(s int)
	if !t.bytes || a.lanes == 16 {
		spread, multiply := "VBROADCASTSS", "VFMADD231PS"
		if t.bytes {
			spread, multiply = "VPBROADCASTD", "VPDPBUSD"
		}
		v := a.newVecs(min(a.registers-int(a.used), 2))
		step = func(s int) {
			for i := range t.rows {
				v := v[i%len(v)]
				a.emitLine("%s %s, %s", spread, rowAddress(&t, i, 4*s), a.operandName(v))
				for j := range n {
					a.emitLine("%s %s, %s, %s",
						multiply, a.operandName(w[j]), a.operandName(v), a.operandName(sums[i*n+j]))
				}
			}
		}
	} else {
		// |x|·(w with the sign of x): the sum of a pair is at most 2·127², which fits into 16 bits.
		v, m, p, q, ones := a.newVec(), a.newVec(), a.newVec(), a.newVec(), a.newVec()
		a.emitLine("VPCMPEQW Y%d, Y%d, Y%d", ones, ones, ones)
		a.emitLine("VPSRLW $15, Y%d, Y%d", ones, ones)
		step = func(s int) {
			for i := range t.rows {
				a.emitLine("VPBROADCASTD %s, %s", rowAddress(&t, i, 4*s), a.operandName(v))
				a.emitLine("VPABSB Y%d, Y%d", v, m)
				for j := range n {
					r := []vec{p, q}[j%2]
					a.emitLine("VPSIGNB Y%d, Y%d, Y%d", v, w[j], r)
					a.emitLine("VPMADDUBSW Y%d, Y%d, Y%d", r, m, r)
					a.emitLine("VPMADDWD Y%d, Y%d, Y%d", ones, r, r)
					a.emitLine("VPADDD Y%d, Y%d, Y%d", r, sums[i*n+j], sums[i*n+j])
				}
			}
		}
	}
	a.emitLoop(fmt.Sprintf("k%d_", n), t.count, func() {
		for s := range 4 {
			for j := range n {
				a.load(w[j], t.b, (s*n+j)*size)
			}
			step(s)
		}
		a.add(t.x, 16)
		if t.rows == 8 {
			a.add(t.y, 16)
		}
		a.add(t.b, 4*n*size)
	})
	a.moveReg(t.c, t.b)
	for i := range t.rows {
		if t.bytes {
			v := w[0]
			a.emitLine("VBROADCASTSS %d(%s), %s", 4*i, t.scales, a.operandName(v))
			for j := range n {
				s := sums[i*n+j]
				a.emitLine("VCVTDQ2PS %s, %s", a.operandName(s), a.operandName(s))
				a.vmul(s, s, v)
			}
		}
		for j := range n {
			s := sums[i*n+j]
			if t.bytes { // s = s·scale + bias
				r := a.operandName(vec(int(w[0]) + n)) // a register that the steps used before
				a.emitLine("VMOVUPS %d(%s), %s", j*size, t.columns, r)
				a.emitLine("VFMADD213PS %d(%s), %s, %s", (n+j)*size, t.columns, r, a.operandName(s))
			}
			a.store(s, t.b, j*size)
		}
		a.addReg(t.b, t.ldc)
	}
	a.moveReg(t.b, t.c)
	if t.bytes {
		a.add(t.scales, 4*t.rows)
	}
	a.emitLine("LEAQ (%s)(%s*%d), %s", x, t.ldx, t.rows, x)
	a.countDown(t.m, fmt.Sprintf("tile%d", n))
}

// armTile emits the loop over tiles for arm64. shift turns k into the count of its loop.
func (a *asm) armTile(t tile, shift int) {
	for range t.rows {
		t.pointers = append(t.pointers, a.newReg())
	}
	n := t.vectors
	sums, v, w := a.newVecs(t.rows*n), a.newVecs(t.rows), a.newVecs(2*n)
	a.writeLabel(fmt.Sprintf("tile%d", n))
	for i, p := range t.pointers {
		if i == 0 {
			a.moveReg(t.x, p)
		} else {
			a.emitLine("ADD %s, %s, %s", t.ldx, t.pointers[i-1], p)
		}
	}
	for j := range n {
		a.load(sums[j], t.bias, 16*j)
		for i := 1; i < t.rows; i++ {
			a.copy(sums[i*n+j], sums[j])
		}
	}
	a.loadArgTo("b_base", t.b)
	a.loadArgTo("k", t.count)
	a.shiftReg(t.count, shift)
	multiply, comment := uint32(0x4f801000), "FMLA" // by a lane
	if t.bytes {
		multiply, comment = 0x4f80e000, "SDOT"
	}
	a.emitLoop(fmt.Sprintf("k%d_", n), t.count, func() {
		for i, p := range t.pointers {
			a.emitLine("FMOVQ (%s), F%d", p, v[i])
			a.add(p, 16)
		}
		for s := range 4 {
			u := w[s%2*n:][:n]
			for j := range n {
				a.load(u[j], t.b, 16*(s*n+j))
			}
			for i := range t.rows {
				for j := range n {
					sum := sums[i*n+j]
					lane := uint32(s&1)<<21 | uint32(s>>1)<<11
					a.emitLine("WORD $%#08x // %s V%d.4S, V%d.4S, V%d.S[%d]",
						multiply|lane|uint32(v[i])<<16|uint32(u[j])<<5|uint32(sum), comment, sum, u[j], v[i], s)
				}
			}
		}
		a.add(t.b, 64*n)
	})
	for i := range t.rows {
		if t.bytes {
			a.emitLine("FMOVS %d(%s), F%d", 4*i, t.scales, v[0])
			a.spread(v[0])
		}
		for j := range n {
			s := sums[i*n+j]
			if t.bytes {
				a.emitWord(0x4e21d800, "SCVTF", vec(0), s, s)
				a.vmul(s, s, v[0])
				a.load(v[1], t.columns, 16*j)
				a.load(v[2], t.columns, 16*(n+j))
				a.fma(v[2], s, v[1])
				s = v[2]
			}
			a.store(s, t.c, 16*j)
		}
		a.addReg(t.c, t.ldc)
	}
	if t.bytes {
		a.add(t.scales, 4*t.rows)
	}
	a.emitLine("ADD %s<<3, %s", t.ldx, t.x)
	a.countDown(t.m, fmt.Sprintf("tile%d", n))
}
