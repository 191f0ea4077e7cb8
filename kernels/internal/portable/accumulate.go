package portable

// Accumulate adds to acc[i] the rows that the bytes of vector i select, one
// from each table: byte p of the vector, at i·stride + p, selects from table p.
//
// Tables are taken eight at a time (128 KiB, which stays in L2) over the whole
// block of vectors, so that large sets of tables do not stream through the
// cache once for each vector.
func Accumulate(acc []row, tables []byteTable, vectors []byte, stride int) {
	if len(acc) == 0 {
		return
	}
	p := 0
	for ; p+8 <= len(tables); p += 8 {
		accumulate8(acc, (*[8]byteTable)(tables[p:]), vectors[p:], stride)
	}
	for ; p < len(tables); p++ {
		accumulate1(acc, &tables[p], vectors[p:], stride)
	}
}

func accumulate8(acc []row, t *[8]byteTable, vectors []byte, stride int) {
	for i := range acc {
		a := &acc[i]
		b := (*[8]byte)(vectors[i*stride:])
		r0, r1, r2, r3 := &t[0][b[0]], &t[1][b[1]], &t[2][b[2]], &t[3][b[3]]
		r4, r5, r6, r7 := &t[4][b[4]], &t[5][b[5]], &t[6][b[6]], &t[7][b[7]]
		a[0] += r0[0] + r1[0] + r2[0] + r3[0] + r4[0] + r5[0] + r6[0] + r7[0]
		a[1] += r0[1] + r1[1] + r2[1] + r3[1] + r4[1] + r5[1] + r6[1] + r7[1]
		a[2] += r0[2] + r1[2] + r2[2] + r3[2] + r4[2] + r5[2] + r6[2] + r7[2]
		a[3] += r0[3] + r1[3] + r2[3] + r3[3] + r4[3] + r5[3] + r6[3] + r7[3]
		a[4] += r0[4] + r1[4] + r2[4] + r3[4] + r4[4] + r5[4] + r6[4] + r7[4]
		a[5] += r0[5] + r1[5] + r2[5] + r3[5] + r4[5] + r5[5] + r6[5] + r7[5]
		a[6] += r0[6] + r1[6] + r2[6] + r3[6] + r4[6] + r5[6] + r6[6] + r7[6]
		a[7] += r0[7] + r1[7] + r2[7] + r3[7] + r4[7] + r5[7] + r6[7] + r7[7]
	}
}

func accumulate1(acc []row, t *byteTable, vectors []byte, stride int) {
	for i := range acc {
		a, r := &acc[i], &t[vectors[i*stride]]
		for w := range a {
			a[w] += r[w]
		}
	}
}

// Compose fills a byte table from the rows of its two nibbles: the entry of
// byte b is lo[b&15] + hi[b>>4].
func Compose(t *byteTable, lo, hi *[16]row) {
	for b := range t {
		x, y, z := &lo[b&15], &hi[b>>4&15], &t[b]
		z[0], z[1], z[2], z[3] = x[0]+y[0], x[1]+y[1], x[2]+y[2], x[3]+y[3]
		z[4], z[5], z[6], z[7] = x[4]+y[4], x[5]+y[5], x[6]+y[6], x[7]+y[7]
	}
}
