package native

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// The oracle: the models in float64, each line as it is defined.

type rows [][]float64

func oracle(c *Config, w *Weights, ids []int32, attended int) rows {
	h, x := c.Hidden, make(rows, len(ids))
	for i, id := range ids {
		x[i] = make([]float64, h)
		for j := range h {
			x[i][j] = float64(w.Words[int(id)*h+j])
			if w.Types != nil {
				x[i][j] += float64(w.Types[j])
			}
			if c.LearnedPositions {
				x[i][j] += float64(w.Positions[(i+c.PositionOffset)*h+j])
			}
		}
	}
	x = oracleNorm(c, x, w.Norm)
	for i, l := range w.Layers {
		if c.NormPlace == transformer.PostNorm {
			x = oracleNorm(c, oracleSum(x, oracleAttention(c, &l, i, x, attended)), l.AttentionNorm)
			y := oracleEach(oracleLinear(x, l.Up), oracleGELU)
			x = oracleNorm(c, oracleSum(x, oracleLinear(y, l.Down)), l.FeedForwardNorm)
			continue
		}
		y := x
		if l.AttentionNorm.Gamma != nil {
			y = oracleNorm(c, x, l.AttentionNorm)
		}
		x = oracleSum(x, oracleAttention(c, &l, i, y, attended))
		y = oracleLinear(oracleNorm(c, x, l.FeedForwardNorm), l.Up)
		for t := range y {
			for j := range c.Intermediate {
				y[t][j] = oracleGELU(y[t][j]) * y[t][c.Intermediate+j]
			}
			y[t] = y[t][:c.Intermediate]
		}
		x = oracleSum(x, oracleLinear(y, l.Down))
	}
	if c.NormPlace != transformer.PostNorm {
		x = oracleNorm(c, x, w.Final)
	}
	for _, d := range w.Heads {
		y := oracleEach(oracleLinear(x, d.Linear), oracleActivation(d.Activation))
		switch {
		case d.ResidualWeight != nil:
			y = oracleSum(y, oracleLinear(x, Linear{Weight: d.ResidualWeight}))
		case d.Residual:
			y = oracleSum(y, x)
		}
		x = y
	}
	for _, r := range x {
		s := 0.0
		for _, v := range r {
			s += v * v
		}
		for j := range r {
			r[j] /= max(math.Sqrt(s), 1e-12)
		}
	}
	return x
}

func oracleGELU(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }

func oracleActivation(a Activation) func(float64) float64 {
	return map[Activation]func(float64) float64{
		Identity: func(x float64) float64 { return x },
		ReLU:     func(x float64) float64 { return max(x, 0) },
		GELU:     oracleGELU,
		SiLU:     func(x float64) float64 { return x / (1 + math.Exp(-x)) },
		Tanh:     math.Tanh,
	}[a]
}

func oracleEach(x rows, f func(float64) float64) rows {
	for _, r := range x {
		for j := range r {
			r[j] = f(r[j])
		}
	}
	return x
}

func oracleSum(x, y rows) rows {
	z := make(rows, len(x))
	for i := range x {
		z[i] = make([]float64, len(x[i]))
		for j := range x[i] {
			z[i][j] = x[i][j] + y[i][j]
		}
	}
	return z
}

func oracleLinear(x rows, l Linear) rows {
	y := make(rows, len(x))
	for i, r := range x {
		in := len(r)
		y[i] = make([]float64, len(l.Weight)/in)
		for o := range y[i] {
			s := 0.0
			if l.Bias != nil {
				s = float64(l.Bias[o])
			}
			for j, v := range r {
				s += v * float64(l.Weight[o*in+j])
			}
			y[i][o] = s
		}
	}
	return y
}

func oracleNorm(c *Config, x rows, n Norm) rows {
	y := make(rows, len(x))
	for i, r := range x {
		mean, square := 0.0, 0.0
		for _, v := range r {
			mean += v / float64(len(r))
		}
		for _, v := range r {
			square += (v - mean) * (v - mean) / float64(len(r))
		}
		y[i] = make([]float64, len(r))
		for j, v := range r {
			y[i][j] = (v - mean) / math.Sqrt(square+float64(c.Epsilon)) * float64(n.Gamma[j])
			if n.Beta != nil {
				y[i][j] += float64(n.Beta[j])
			}
		}
	}
	return y
}

func oracleAttention(c *Config, l *Layer, index int, x rows, attended int) rows {
	q, k, v := oracleLinear(x, l.Query), oracleLinear(x, l.Key), oracleLinear(x, l.Value)
	d, form := c.HeadSize, &c.Layers[index]
	if theta := form.Theta; theta != 0 {
		for _, r := range []rows{q, k} {
			for p := range r {
				for i := range c.Hidden / 2 {
					a := i/(d/2)*d + i%(d/2)
					frequency := 1 / float32(math.Pow(theta, float64(float32(2*(i%(d/2)))/float32(d))))
					sin, cos := math.Sincos(float64(float32(p) * frequency))
					r[p][a], r[p][a+d/2] = r[p][a]*cos-r[p][a+d/2]*sin, r[p][a+d/2]*cos+r[p][a]*sin
				}
			}
		}
	}
	out := make(rows, len(x))
	for i := range x {
		out[i] = make([]float64, c.Hidden)
		for head := 0; head < c.Hidden; head += d {
			lo, hi := form.Sees(i, attended)
			scores, top, sum := make([]float64, hi), math.Inf(-1), 0.0
			for j := lo; j < hi; j++ {
				for e := range d {
					scores[j] += q[i][head+e] * k[j][head+e] / math.Sqrt(float64(d))
				}
				top = max(top, scores[j])
			}
			for j := lo; j < hi; j++ {
				scores[j] = math.Exp(scores[j] - top)
				sum += scores[j]
			}
			for j := lo; j < hi; j++ {
				for e := range d {
					out[i][head+e] += scores[j] / sum * v[j][head+e]
				}
			}
		}
	}
	return oracleLinear(out, l.Output)
}

// cosines of unit vectors.
func cosines(want, got []float32, dim int) (least, mean float64) {
	least = 1
	for i := 0; i < len(want); i += dim {
		s := 0.0
		for j := range dim {
			s += float64(want[i+j]) * float64(got[i+j])
		}
		least, mean = min(least, s), mean+s
	}
	return least, mean / float64(len(want)/dim)
}

// TestOracle: every shape and tier against float64, and the oracle against numpy.
func TestOracle(t *testing.T) {
	z := modeltest.OpenNPZ(t, "testdata/golden.npz")
	for name, modern := range map[string]bool{"bert": false, "modernbert": true} {
		c, w := tiny(modern)
		got := oracle(&c, w, modeltest.Ints(t, z, "text3.ids"), 15)
		want := modeltest.Floats(t, z, "text3."+name)
		for i, r := range got {
			for j, v := range r {
				require.InDelta(t, want[i*len(r)+j], v, 1e-7)
			}
		}
	}
	for name, c := range sameModels() {
		heads := []Activation{Identity}
		if c.Heads == 7 {
			heads = []Activation{Identity, ReLU, GELU, SiLU, Tanh}
		}
		for _, head := range heads {
			w := random(&c, 90, Dense{In: c.Hidden, Out: 40, Activation: head, Linear: Linear{Weight: tensor("head", 0.25, 0, 40, c.Hidden)}})
			rng := rand.New(rand.NewPCG(8, 8))
			texts, _ := mixed(rng, 90, 1, 12, 130, 150) // the last tokens of the last are beyond each window
			attended := []int{1, 9, 127, 3}
			if head != Identity { // which is about single vectors
				texts, attended = texts[:2], attended[:2]
			}
			b := batchOf(texts...)
			b.Attended = attended
			var want []float32
			for i, x := range texts {
				for _, r := range oracle(&c, w, x, b.Attended[i]) {
					for _, v := range r {
						want = append(want, float32(v))
					}
				}
			}
			for _, tier := range Tiers()[min(1, int(head)):] { // plain Go once
				d := difference(t, want, encode(t, newModel(t, c, w, Options{Tier: tier}), b))
				require.Less(t, d, 3e-6, fmt.Sprint(name, head, tier))
				got := encode(t, newModel(t, c, w, Options{Tier: tier, Precision: Int8}), b)
				least, mean := cosines(want, got, 40)
				t.Logf("%s, activation %d, %s: largest difference %.2g; int8: cosines, least %.4f, mean %.5f", name, head, tier, d, least, mean)
				require.Greater(t, mean, 0.998)
			}
		}
	}
}
