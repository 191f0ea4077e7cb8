package maxsim

import "math"

// The oracle computes calls in float64 from their definitions, with no regard for
// speed. Operands must be batches, and calls must have been checked.

// OracleRow returns row i of a batch, with normalize divided by its length.
func OracleRow(b *Batch, i int, normalize bool) []float64 {
	m := &b.Tokens
	wide := make([]float32, m.Dim)
	m.Widen(wide, i, i+1)
	x := make([]float64, m.Dim)
	scale := float64(m.Scale(i))
	var square float64
	for j, v := range wide {
		x[j] = scale * float64(v)
		square += x[j] * x[j]
	}
	if normalize && square > 0 {
		for j := range x {
			x[j] /= math.Sqrt(square)
		}
	}
	return x
}

// oracleRows returns all rows of a batch.
func oracleRows(b *Batch, normalize bool) [][]float64 {
	rows := make([][]float64, b.Tokens.Rows())
	for i := range rows {
		rows[i] = OracleRow(b, i, normalize)
	}
	return rows
}

// oracleItem returns the rows of item i; masked ones are nil.
func oracleItem(o Operand, i int, normalize bool) [][]float64 {
	b := o.(*Batch)
	lo, hi := b.Span(i)
	rows := make([][]float64, hi-lo)
	for r := range rows {
		if b.IsToken(lo + r) {
			rows[r] = OracleRow(b, lo+r, normalize)
		}
	}
	return rows
}

// dotFloat64 returns ⟨x, y⟩.
func dotFloat64(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// weight returns the weight of a row of the queries.
func (t *Terms) weight(row int) float64 {
	if t.Weights == nil {
		return 1
	}
	return float64(t.Weights[row])
}

// OracleProduct returns the product of row s of query q with row t of document d.
func (c *Call) OracleProduct(q, s, d, t int) float64 {
	qb, db := c.Q.(*Batch), c.D.(*Batch)
	qlo, _ := qb.Span(q)
	dlo, _ := db.Span(d)
	return dotFloat64(OracleRow(qb, qlo+s, c.Normalize), OracleRow(db, dlo+t, c.Normalize))
}

// Oracle computes the scores and argmaxima of a call.
func (c *Call) Oracle() (scores []float64, argmax []int32) {
	q, d := c.Q.Shape(), c.D.Shape()
	n, _ := c.countPairs(q.Len(), d.Len())
	stride := q.MaxRows()
	scores, argmax = make([]float64, n), make([]int32, n*stride)
	docs := make([][][]float64, d.Len())
	for i := range docs {
		docs[i] = oracleItem(c.D, i, c.Normalize)
	}
	queries := make([][][]float64, q.Len())
	for i := range queries {
		queries[i] = oracleItem(c.Q, i, c.Normalize)
	}
	for p := range n {
		row := argmax[p*stride : (p+1)*stride]
		for s := range row {
			row[s] = -1
		}
		qi, di := c.PairAt(p, d.Len())
		first, _ := q.Span(qi)
		for s, x := range queries[qi] {
			best := math.Inf(-1)
			for t, y := range docs[di] {
				if x == nil || y == nil {
					continue
				}
				if v := dotFloat64(x, y); v > best {
					best, row[s] = v, int32(t)
				}
			}
			if row[s] >= 0 {
				scores[p] += c.weight(first+s) * best
			}
		}
	}
	return scores, argmax
}

// Oracle computes the gradients of a call from its argmaxima, [rows, dim] of Q and of D. It
// computes both, even if DQ or DD is nil.
func (g *GradCall) Oracle() (dq, dd []float64) {
	qb, db := g.Q.(*Batch), g.D.(*Batch)
	dim, stride := qb.Tokens.Dim, qb.MaxRows()
	dq, dd = make([]float64, qb.Tokens.Rows()*dim), make([]float64, db.Tokens.Rows()*dim)
	n, _ := g.countPairs(qb.Len(), db.Len())
	qs, ds := oracleRows(qb, g.Normalize), oracleRows(db, g.Normalize)
	for p := range n {
		up := upstream64(g.Upstream, p)
		qi, di := g.PairAt(p, db.Len())
		qlo, _ := qb.Span(qi)
		dlo, _ := db.Span(di)
		for s, a := range g.Argmax[p*stride : (p+1)*stride] {
			if a < 0 {
				continue
			}
			x, y := qs[qlo+s], ds[dlo+int(a)]
			c := up * g.weight(qlo+s)
			for j := range dim {
				dq[(qlo+s)*dim+j] += c * y[j]
				dd[(dlo+int(a))*dim+j] += c * x[j]
			}
		}
	}
	if g.Normalize {
		oracleThroughNorm(dq, qb)
		oracleThroughNorm(dd, db)
	}
	return dq, dd
}

// upstream64 returns the upstream value of a pair; 1 without values.
func upstream64(upstream []float32, pair int) float64 {
	if upstream == nil {
		return 1
	}
	return float64(upstream[pair])
}

// oracleThroughNorm turns derivatives by x/|x| into those by x:
// (g − ⟨g, x̂⟩ x̂) / |x|, and 0 where x is 0.
func oracleThroughNorm(grad []float64, b *Batch) {
	dim := b.Tokens.Dim
	for r := range b.Tokens.Rows() {
		g, x, unit := grad[r*dim:(r+1)*dim], OracleRow(b, r, false), OracleRow(b, r, true)
		length := math.Sqrt(dotFloat64(x, x))
		along := dotFloat64(g, unit)
		for j := range g {
			if length == 0 {
				g[j] = 0
			} else {
				g[j] = (g[j] - along*unit[j]) / length
			}
		}
	}
}

// Distance returns the distance of two vectors.
func Distance[T float32 | float64](m Metric, x, y []T) (sum float64) {
	for i, v := range x {
		d := float64(v) - float64(y[i])
		if m == L1 {
			sum += math.Abs(d)
		} else {
			sum += float64(d * d)
		}
	}
	return sum
}

// Oracle computes distances and the nearest rows.
func (c *ChamferCall) Oracle() (distances []float64, nearestX, nearestY []int32) {
	x, y := c.X.Shape(), c.Y.Shape()
	n, _ := c.countPairs(x.Len(), y.Len())
	sx, sy := x.MaxRows(), y.MaxRows()
	distances, nearestX, nearestY = make([]float64, n), make([]int32, n*sx), make([]int32, n*sy)
	for p := range n {
		xi, yi := c.PairAt(p, y.Len())
		xs, ys := oracleItem(c.X, xi, false), oracleItem(c.Y, yi, false)
		fromX := c.directedOracle(xs, ys, nearestX[p*sx:(p+1)*sx])
		distances[p] = fromX + c.directedOracle(ys, xs, nearestY[p*sy:(p+1)*sy])
	}
	return distances, nearestX, nearestY
}

// directedOracle returns the sum, or mean, of the distances of xs to the nearest of ys, whose
// rows it writes to nearest.
func (c *ChamferCall) directedOracle(xs, ys [][]float64, nearest []int32) (sum float64) {
	for s := range nearest {
		nearest[s] = -1
	}
	n := 0
	for s, x := range xs {
		best := math.Inf(1)
		for t, y := range ys {
			if x == nil || y == nil {
				continue
			}
			if v := Distance(c.Metric, x, y); v < best {
				best, nearest[s] = v, int32(t)
			}
		}
		if nearest[s] >= 0 {
			sum += best
			n++
		}
	}
	if c.Mean && n > 0 {
		sum /= float64(n)
	}
	return sum
}

// Oracle computes the gradients of distances with their nearest rows.
func (g *ChamferGradCall) Oracle() (dx, dy []float64) {
	xb, yb := g.X.(*Batch), g.Y.(*Batch)
	dim, sx, sy := xb.Tokens.Dim, xb.MaxRows(), yb.MaxRows()
	dx, dy = make([]float64, xb.Tokens.Rows()*dim), make([]float64, yb.Tokens.Rows()*dim)
	n, _ := g.countPairs(xb.Len(), yb.Len())
	for p := range n {
		xi, yi := g.PairAt(p, yb.Len())
		xlo, _ := xb.Span(xi)
		ylo, _ := yb.Span(yi)
		up := upstream64(g.Upstream, p)
		g.addDirectedOracle(up, xb, yb, xlo, ylo, g.NearestX[p*sx:(p+1)*sx], dx, dy)
		g.addDirectedOracle(up, yb, xb, ylo, xlo, g.NearestY[p*sy:(p+1)*sy], dy, dx)
	}
	return dx, dy
}

// addDirectedOracle adds the derivatives of the directed distance of a pair, from the rows of
// xb at xlo to those of yb at ylo, to both gradients.
func (g *ChamferGradCall) addDirectedOracle(
	up float64, xb, yb *Batch, xlo, ylo int, nearest []int32, dx, dy []float64,
) {
	n := 0
	for _, a := range nearest {
		if a >= 0 {
			n++
		}
	}
	if g.Mean {
		up /= float64(max(n, 1))
	}
	dim := xb.Tokens.Dim
	for s, a := range nearest {
		if a < 0 {
			continue
		}
		x, y := OracleRow(xb, xlo+s, false), OracleRow(yb, ylo+int(a), false)
		for j := range x {
			v := 2 * (x[j] - y[j])
			if g.Metric == L1 {
				v = float64(sign(x[j] - y[j]))
			}
			dx[(xlo+s)*dim+j] += up * v
			dy[(ylo+int(a))*dim+j] -= up * v
		}
	}
}

// sign returns −1, 0 or 1.
func sign(v float64) int {
	switch {
	case v > 0:
		return 1
	case v < 0:
		return -1
	}
	return 0
}
