package native

import "github.com/plaid-ir/plaid/kernels/transformer"

// setTaps keeps the taps of a convolution as rows, one a distance.
func (y *layer) setTaps(h int, c *transformer.Convolution) {
	taps := y.form.Taps
	y.taps, y.tapsBias, y.unattended = make([]float32, taps*h), make([]float32, h), make([]float32, 3*h)
	for j := range h {
		for k, v := range c.Taps.Weight[j*taps:][:taps] {
			y.taps[k*h+j] = v
		}
	}
	copy(y.tapsBias, c.Taps.Bias)
	copy(y.unattended, c.In.Bias)
}

// convolve computes the gated convolution of each text: of rows that hold in, out and x, the
// taps add up in · x of a token and of those before it, and out multiplies the sum. The input of
// tokens that are not attended to is 0, and that map of it its bias.
func (m *Model) convolve(sc *scratch, y *layer) {
	h, ld, given := m.config.Hidden, stride(m.qkvWidth), stride(m.contextWidth)
	for _, t := range sc.texts {
		row := func(i int) []float32 { return sc.qkv[(t.first+i)*ld:][:3*h] }
		for i := range t.n {
			if i >= t.attended {
				copy(row(i), y.unattended)
			}
			x := row(i)
			in, value := x[:h], x[2*h:]
			for j, v := range in {
				value[j] *= v
			}
			sum := sc.context[(t.first+i)*given:][:h]
			copy(sum, y.tapsBias)
			for k := max(0, y.form.Taps-1-i); k < y.form.Taps; k++ {
				value := row(i - (y.form.Taps - 1 - k))[2*h:]
				for j, w := range y.taps[k*h:][:h] {
					sum[j] += float32(w * value[j])
				}
			}
			for j, v := range x[h : 2*h] {
				sum[j] *= v
			}
		}
	}
}
