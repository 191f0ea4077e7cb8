package native

import "github.com/plaid-ir/plaid/kernels/transformer"

// convolution holds the weights of a layer's convolution. A row of taps has the weights of one tap for all
// dimensions.
type convolution struct {
	taps, bias []float32
	unattended []float32 // the output of the input map for a row of zeros
}

// newConvolution transposes the weights of h dimensions.
func newConvolution(h int, form *transformer.LayerForm, c *transformer.Convolution) *convolution {
	taps := form.Taps()
	y := &convolution{make([]float32, taps*h), make([]float32, h), make([]float32, 3*h)}
	for j := range h {
		for k, v := range c.Taps.Weight[j*taps:][:taps] {
			y.taps[k*h+j] = v
		}
	}
	copy(y.bias, c.Taps.Bias)
	copy(y.unattended, c.In.Bias)
	return y
}

// convolve computes the convolution of each text. A row of qkv holds the gates in and out, and x:
// the result is out · (taps * (in · x)), with elementwise products and the convolution *.
func (m *Model) convolve(sc *scratch, y *layer) {
	h, ld, ldContext := m.config.Hidden, stride(m.qkvWidth), stride(m.contextWidth)
	for _, t := range sc.texts {
		row := func(i int) []float32 { return sc.qkv[(t.first+i)*ld:][:3*h] }
		for i := range t.n { // x = in · x
			r := row(i)
			if i >= t.attended && !y.form.ConvolveAll {
				copy(r, y.convolution.unattended)
			}
			in, x := r[:h], r[2*h:]
			for j, v := range in {
				x[j] *= v
			}
		}
		for i := range t.n {
			sum := sc.context[(t.first+i)*ldContext:][:h]
			copy(sum, y.convolution.bias)
			first := i - y.form.Before
			for from := max(first, 0); from < min(i+y.form.After+1, t.n); from++ {
				x := row(from)[2*h:]
				for j, w := range y.convolution.taps[(from-first)*h:][:h] {
					sum[j] += float32(w * x[j])
				}
			}
			for j, v := range row(i)[h : 2*h] {
				sum[j] *= v
			}
		}
	}
}
