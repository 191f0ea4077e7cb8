package native

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// The oracle: the models in float64, each line as it is defined.

type rows [][]float64

func oracle(c *Config, w *Weights, ids []int32, attended int) rows {
	e, x := c.EmbeddingSize(), make(rows, len(ids))
	for i, id := range ids {
		x[i] = make([]float64, e)
		for j := range e {
			x[i][j] = float64(w.Words[int(id)*e+j])
			if w.Types != nil {
				x[i][j] += float64(w.Types[j])
			}
			if c.LearnedPositions {
				x[i][j] += float64(w.Positions[(i+c.PositionOffset)*e+j])
			}
		}
	}
	x = oracleNorm(c, x, w.Norm)
	if e != c.Hidden {
		x = oracleLinear(x, w.Project)
	}
	for i := range w.Layers {
		l := &w.Layers[i]
		attention := func(x rows) rows {
			if c.Layers[i].Convolution {
				return oracleConvolution(c, l, i, x, attended)
			}
			return oracleAttention(c, w, i, x, attended)
		}
		if c.NormPlace == transformer.PostNorm {
			x = oracleNorm(c, oracleSum(x, attention(x)), l.AttentionNorm)
			x = oracleNorm(c, oracleSum(x, oracleFeedForward(c, l, x)), l.FeedForwardNorm)
			continue
		}
		x = oracleSum(x, oracleNorm(c, attention(oracleNorm(c, x, l.AttentionNorm)), l.AttentionOutputNorm))
		y := oracleFeedForward(c, l, oracleNorm(c, x, l.FeedForwardNorm))
		x = oracleSum(x, oracleNorm(c, y, l.FeedForwardOutputNorm))
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
		GELUTanh: func(x float64) float64 { return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) },
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

func oracleFeedForward(c *Config, l *Layer, x rows) rows {
	y, f := oracleLinear(x, l.Up), oracleActivation(c.Activation)
	for t := range y {
		for j := range c.Intermediate {
			y[t][j] = f(y[t][j])
			if c.Gated {
				y[t][j] *= y[t][c.Intermediate+j]
			}
		}
		y[t] = y[t][:c.Intermediate]
	}
	return oracleLinear(y, l.Down)
}

// oracleNorm gives back x where there is no norm.
func oracleNorm(c *Config, x rows, n Norm) rows {
	if n.Gamma == nil {
		return x
	}
	y := make(rows, len(x))
	for i, r := range x {
		mean, square := 0.0, 0.0
		for _, v := range r {
			if c.Norm == transformer.LayerNorm {
				mean += v / float64(len(r))
			}
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

// oracleHeads cuts rows into heads, norms and rotates them: [head][token].
func oracleHeads(c *Config, x rows, n Norm, theta float64) []rows {
	d := c.HeadSize
	heads := make([]rows, len(x[0])/d)
	for head := range heads {
		for _, r := range x {
			heads[head] = append(heads[head], r[head*d:][:d])
		}
		heads[head] = oracleNorm(c, heads[head], n)
		for p, r := range heads[head] {
			for i := range d / 2 {
				if theta == 0 {
					continue
				}
				frequency := 1 / float32(math.Pow(theta, float64(float32(2*i)/float32(d))))
				sin, cos := math.Sincos(float64(float32(p) * frequency))
				r[i], r[i+d/2] = r[i]*cos-r[i+d/2]*sin, r[i+d/2]*cos+r[i]*sin
			}
		}
	}
	return heads
}

func oracleAttention(c *Config, w *Weights, index int, x rows, attended int) rows {
	l, form, d := &w.Layers[index], &c.Layers[index], c.HeadSize
	queries := oracleHeads(c, oracleLinear(x, l.Query), l.QueryNorm, form.Theta)
	keys := oracleHeads(c, oracleLinear(x, l.Key), l.KeyNorm, form.Theta)
	values := oracleHeads(c, oracleLinear(x, l.Value), Norm{}, 0)
	scale := 1 / math.Sqrt(float64(d))
	if c.AttentionScale != 0 {
		scale = float64(c.AttentionScale)
	}
	out := make(rows, len(x))
	for i := range x {
		out[i] = make([]float64, c.Heads*d)
		for head := range c.Heads {
			shared := head / (c.Heads / c.KeyHeads)
			weights, sum := map[int]float64{}, 0.0
			for j := range attended {
				if form.Before >= 0 && j < i-form.Before || form.After >= 0 && j > i+form.After {
					continue
				}
				s := 0.0
				for e := range d {
					s += queries[head][i][e] * keys[shared][j][e] * scale
				}
				if c.RelativePositions {
					s += float64(w.Relative[head*(2*c.MaxPositions-1)+c.MaxPositions-1+j-i])
				}
				weights[j] = math.Exp(s)
				sum += weights[j]
			}
			for j, p := range weights {
				for e := range d {
					out[i][head*d+e] += p / sum * values[shared][j][e]
				}
			}
		}
	}
	return oracleLinear(out, l.Output)
}

func oracleConvolution(c *Config, l *Layer, index int, x rows, attended int) rows {
	h, f := c.Hidden, &c.Layers[index]
	input := make(rows, len(x))
	for i := range x {
		input[i] = make([]float64, h)
		if i < attended || f.ConvolveAll {
			copy(input[i], x[i])
		}
	}
	y, out := oracleLinear(input, l.Convolution.In), make(rows, len(x))
	for i := range x {
		out[i] = make([]float64, h)
		for j := range h {
			s := 0.0
			if l.Convolution.Taps.Bias != nil {
				s = float64(l.Convolution.Taps.Bias[j])
			}
			for k := range f.Taps() {
				if p := i - f.Before + k; p >= 0 && p < len(x) {
					s += float64(l.Convolution.Taps.Weight[j*f.Taps()+k]) * y[p][j] * y[p][2*h+j]
				}
			}
			out[i][j] = y[i][h+j] * s
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

// TestOracle: every shape against float64, and the oracle against numpy.
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
	tiers := Tiers()
	if !effort.Long() {
		tiers = tiers[len(tiers)-1:] // TestSameBits and TestAnyForm compare the tiers
	}
	for name, k := range sameModels() {
		c, heads := k.config, []Activation{Identity}
		if c.Heads == 7 {
			heads = []Activation{Identity, ReLU, GELU, SiLU, Tanh, GELUTanh}
		}
		for _, head := range heads {
			dense := Linear{Weight: tensor("head", 0.25, 0, 40, c.Hidden)}
			w := k.weights(Dense{In: c.Hidden, Out: 40, Activation: head, Linear: dense})
			rng := rand.New(rand.NewPCG(8, 8))
			texts, _ := mixed(rng, 90, 1, 12, 130, 150) // the last tokens of the last are beyond each window
			attended := []int{1, 9, 127, 3}
			if head != Identity { // which is about single vectors
				texts, attended = texts[:2], attended[:2]
			}
			b := batchOf(texts...)
			b.Attended = attended
			want := expected(&c, w, b)
			for _, tier := range tiers {
				d := difference(t, want, encode(t, newModel(t, c, w, Options{Tier: tier}), b))
				require.Less(t, d, 3e-6, fmt.Sprint(name, head, tier))
				got := encode(t, newModel(t, c, w, Options{Tier: tier, Precision: Int8}), b)
				least, mean := cosines(want, got, 40)
				t.Logf("%s, activation %d, %s: largest difference %.2g; int8: cosines, least %.4f, mean %.5f",
					name, head, tier, d, least, mean)
				require.Greater(t, mean, 0.998)
			}
		}
	}
}

// expected is what the oracle says of a batch.
func expected(c *Config, w *Weights, b engine.Batch) (want []float32) {
	for i := range b.Texts() {
		if b.Length(i) == 0 {
			continue
		}
		for _, r := range oracle(c, w, b.IDs[b.Offsets[i]:b.Offsets[i+1]], b.AttendedLength(i)) {
			for _, v := range r {
				want = append(want, float32(v))
			}
		}
	}
	return want
}
