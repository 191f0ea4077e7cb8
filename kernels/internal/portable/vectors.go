package portable

import "github.com/plaid-ir/plaid/internal/floats"

// MaxDotRows is the least number of rows of MaxDot.
const MaxDotRows = 2

var noBias [32]float32

// MaxDot implements tier.Vectors.MaxDot.
func MaxDot(
	best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32,
) {
	var c [2 * 32]float32
	for r := 0; r < m; r += 2 {
		r = min(r, m-2) // an odd number repeats a row, which cannot beat itself
		floats.Products(c[:], 32, rows[r*dim:], dim, 2, dim, panel, noBias[:], 32)
		for i := range 2 {
			if scales != nil {
				s := scales[r+i]
				for j, v := range c[32*i : 32*i+n] {
					c[32*i+j] = v * s
				}
			}
			for j, v := range c[32*i : 32*i+n] {
				if v > best[j] {
					best[j], arg[j] = v, int32(first+r+i)
				}
			}
		}
	}
}

// Squares implements tier.Vectors.Squares.
func Squares(dst [][8]float64, rows []float32, dim int) {
	for r := range dst {
		row := rows[r*dim : (r+1)*dim]
		var sums [8]float64
		for ; len(row) >= 8; row = row[8:] {
			for j, v := range row[:8] {
				sums[j] += float64(v) * float64(v)
			}
		}
		dst[r] = sums
	}
}

// SumProducts implements tier.Vectors.Products. float64 represents each product exactly;
// only sums are rounded.
func SumProducts(dst *[8]float64, x, y []float32) {
	y = y[:len(x)]
	var s0, s1, s2, s3, s4, s5, s6, s7 float64
	for ; len(x) >= 8; x, y = x[8:], y[8:] {
		s0 += float64(x[0]) * float64(y[0])
		s1 += float64(x[1]) * float64(y[1])
		s2 += float64(x[2]) * float64(y[2])
		s3 += float64(x[3]) * float64(y[3])
		s4 += float64(x[4]) * float64(y[4])
		s5 += float64(x[5]) * float64(y[5])
		s6 += float64(x[6]) * float64(y[6])
		s7 += float64(x[7]) * float64(y[7])
	}
	*dst = [8]float64{s0, s1, s2, s3, s4, s5, s6, s7}
}

// AddScaled implements tier.Vectors.AddScaled.
func AddScaled(dst, x []float32, c float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = floats.FMA(c, v, dst[i])
	}
}
