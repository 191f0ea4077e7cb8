package encoder

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// none is the place of an array that there is not.
const none = -1

// matrix is a weight on the device, [n, k], and its bias.
type matrix struct {
	n, k     int
	at, bias int64
}

// norm is a layer norm on the device.
type norm struct{ gamma, beta int64 }

// layer is one of the device.
type layer struct {
	attentionNorm, feedForwardNorm norm
	qkv, output, up, down          matrix
	before, after                  int   // how far tokens attend, as of transformer.LayerForm
	angles                         int64 // none: queries and keys are not rotated
}

// head is a dense head of the device.
type head struct {
	matrix
	residual   matrix // where the residual has a weight
	weighted   bool
	plain      bool // a residual without a weight
	activation transformer.Activation
	out        int
}

// tensors says where everything lies in the memory of the weights.
type tensors struct {
	words, places int64
	norm, final   norm
	layers        []layer
	heads         []head
	angles        map[float64]int64 // by theta
	bytes         int64
	width, wide   int // the hidden and the intermediate size, rounded up to tiles
	widest        int // columns of a head, at most
}

// packer lays out the weights, and knows how to write them.
type packer struct {
	c     *transformer.Config
	arena runtime.Arena
	parts []part
}

// part is an array of the weights.
type part struct {
	at, bytes int64
	write     func(dst []byte) error
}

func (p *packer) take(bytes int, write func(dst []byte) error) int64 {
	at := p.arena.Take(int64(bytes))
	p.parts = append(p.parts, part{at, int64(bytes), write})
	return at
}

// padded takes room for n values of float32, of which x are the first; none for nil.
func (p *packer) padded(x []float32, n int) int64 {
	if x == nil {
		return none
	}
	return p.take(4*n, func(dst []byte) error {
		floats(dst, x)
		return nil
	})
}

func (p *packer) norm(n transformer.Norm) norm {
	width := roundUp(p.c.Hidden, tile)
	return norm{p.padded(n.Gamma, width), p.padded(n.Beta, width)}
}

// source is a row of a linear map; l nil: zeros.
type source struct {
	l   *transformer.Linear
	row int
}

// linear takes room for a map of in values, whose row i comes from the source from(i).
func (p *packer) linear(name string, n, in int, from func(i int) source) matrix {
	m := matrix{n: roundUp(n, tile), k: roundUp(in, tile), bias: none}
	biased := false
	for i := range n {
		s := from(i)
		biased = biased || s.l != nil && s.l.Bias != nil
	}
	m.at = p.take(2*m.n*m.k, func(dst []byte) error {
		return tiled(dst, name, n, m.k, func(i int) []float32 {
			s := from(i)
			if s.l == nil {
				return nil
			}
			return s.l.Weight[s.row*in : (s.row+1)*in]
		})
	})
	if biased {
		m.bias = p.take(4*m.n, func(dst []byte) error {
			for i := range n {
				if s := from(i); s.l != nil && s.l.Bias != nil {
					put32(dst, 4*i, s.l.Bias[s.row])
				}
			}
			return nil
		})
	}
	return m
}

// whole is the source of a map that lies as it is.
func whole(l *transformer.Linear) func(i int) source {
	return func(i int) source { return source{l, i} }
}

// lay lays out all weights of a model.
func lay(c *transformer.Config, w *transformer.Weights) (*packer, *tensors) {
	p := &packer{c: c}
	h, inner := c.Hidden, c.Intermediate
	t := &tensors{places: none, final: norm{none, none}, angles: map[float64]int64{0: none}, width: roundUp(h, tile), wide: roundUp(inner, tile)}
	words := len(w.Words) / h
	types := make([]float32, h)
	if w.Types != nil {
		copy(types, w.Types)
	}
	with := func(rows []float32, add []float32) func(i int) []float32 {
		return func(i int) []float32 {
			sum := make([]float32, h)
			for j, v := range rows[i*h : (i+1)*h] {
				sum[j] = v + add[j]
			}
			return sum
		}
	}
	alone := types // what is added to words
	if c.LearnedPositions {
		alone = make([]float32, h)
	}
	t.words = p.take(2*words*t.width, func(dst []byte) error {
		return table(dst, "word embeddings", words, t.width, with(w.Words, alone))
	})
	if c.LearnedPositions {
		positions := w.Positions[c.PositionOffset*h:]
		t.places = p.take(2*c.MaxPositions*t.width, func(dst []byte) error {
			return table(dst, "position embeddings", c.MaxPositions, t.width, with(positions, types))
		})
	}
	for _, f := range c.Layers {
		if _, ok := t.angles[f.Theta]; !ok {
			t.angles[f.Theta] = p.angles(f.Theta)
		}
	}
	t.norm, t.final = p.norm(w.Norm), p.norm(w.Final)
	for i := range w.Layers {
		t.layers = append(t.layers, p.layer(t, i, &w.Layers[i]))
	}
	in := h
	for i := range w.Heads {
		d := &w.Heads[i]
		name := fmt.Sprintf("dense head %d", i)
		x := head{
			matrix: p.linear(name, d.Out, in, whole(&d.Linear)), activation: d.Activation, out: d.Out,
			plain: d.Residual && d.ResidualWeight == nil, weighted: d.ResidualWeight != nil,
		}
		if x.weighted {
			x.residual = p.linear(name+" residual", d.Out, in, whole(&transformer.Linear{Weight: d.ResidualWeight}))
		}
		t.heads = append(t.heads, x)
		t.widest = max(t.widest, x.n)
		in = d.Out
	}
	t.bytes = p.arena.Size
	return p, t
}

// layer lays out one. Of rotary positions the rows of each head of queries and keys are
// interleaved, of GeGLU those of the two halves.
func (p *packer) layer(t *tensors, i int, l *transformer.Layer) layer {
	c := p.c
	h, d, form := c.Hidden, c.HeadSize, c.Layers[i]
	name := fmt.Sprintf("layer %d ", i)
	rotary := form.Theta != 0
	y := layer{
		attentionNorm: p.norm(l.AttentionNorm), feedForwardNorm: p.norm(l.FeedForwardNorm),
		before: form.Before, after: form.After, angles: t.angles[form.Theta],
	}
	parts := []*transformer.Linear{&l.Query, &l.Key, &l.Value}
	y.qkv = p.linear(name+"query, key and value", 3*t.width, h, func(i int) source {
		part, row := i/t.width, i%t.width
		if row >= h {
			return source{}
		}
		if rotary && part < 2 {
			second, j := interleaved(row % d)
			if second {
				j += d / 2
			}
			row = row/d*d + j
		}
		return source{parts[part], row}
	})
	y.output = p.linear(name+"output", h, h, whole(&l.Output))
	up := whole(&l.Up)
	n := c.Intermediate
	if c.Gated {
		n = 2 * t.wide
		up = func(i int) source {
			gate, row := interleaved(i)
			if row >= c.Intermediate {
				return source{}
			}
			if gate {
				row += c.Intermediate
			}
			return source{&l.Up, row}
		}
	}
	y.up = p.linear(name+"up", n, h, up)
	y.down = p.linear(name+"down", h, c.Intermediate, whole(&l.Down))
	return y
}

// angles lays out a table of rotary angles: cosine and sine in turn.
func (p *packer) angles(theta float64) int64 {
	n := p.c.HeadSize / 2
	return p.take(8*p.c.MaxPositions*n, func(dst []byte) error {
		r := transformer.NewRotary(theta, n, p.c.MaxPositions)
		for i := range r.Cos {
			put32(dst, 8*i, r.Cos[i])
			put32(dst, 8*i+4, r.Sin[i])
		}
		return nil
	})
}

// pack writes the weights as the device has them.
func (p *packer) pack(ctx context.Context) ([]byte, error) {
	image := make([]byte, p.arena.Size)
	err := parallel.Do(ctx, len(p.parts), parallel.Threads(0, len(p.parts)), func(i int) error {
		x := p.parts[i]
		return x.write(image[x.at : x.at+x.bytes])
	})
	return image, err
}

// uploadBytes is how much of the weights crosses the bus between two looks at the context.
const uploadBytes = 32 << 20

// upload brings the image to the device. It is not page-locked, so that each piece has
// been read when its call returns.
func upload(ctx context.Context, rt *runtime.Runtime, to driver.Mem, image []byte) error {
	for at := 0; at < len(image); at += uploadBytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := image[at:min(at+uploadBytes, len(image))]
		if err := rt.Driver.ToDevice(to.At(int64(at)), piece, rt.Stream); err != nil {
			return err
		}
	}
	return rt.Sync()
}
