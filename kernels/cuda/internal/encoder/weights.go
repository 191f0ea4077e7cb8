package encoder

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// noArray is the offset of an absent array.
const noArray = -1

// matrix has the shape [n, k] of a weight on the device, and the offsets of it and of its bias.
type matrix struct {
	n, k          int
	weights, bias int64
}

// norm has the offsets of a norm on the device. Without gamma, rows are not normalized.
type norm struct {
	gamma, beta int64
	epsilon     float32
}

var noNorm = norm{gamma: noArray, beta: noArray}

// layer is a layer of the model on the device.
type layer struct {
	form                                   transformer.LayerForm
	attentionNorm, feedForwardNorm         norm
	attentionOutputNorm, feedForwardOutput norm // of SandwichNorm
	qkv, output, up, down                  matrix
	angles                                 int64 // noArray if queries and keys are not rotated
	queryNorm, keyNorm                     norm
	taps, tapsBias                         int64 // of a convolution, whose qkv computes in, out and x
}

// head is a dense head of the model on the device.
type head struct {
	matrix
	residual         matrix // where the residual has a weight
	weightedResidual bool
	plainResidual    bool // a residual without a weight
	activation       transformer.Activation
	outputs          int
}

// tensors has the offsets of all arrays in the memory of the weights.
type tensors struct {
	words, positions int64
	norm, final      norm
	project          *matrix // nil if embeddings have the hidden size
	relative         int64
	layers           []layer
	heads            []head
	angles           map[float64]int64 // by theta
	bytes            int64
	// The embedding size, the hidden size and the intermediate size, rounded up to tiles.
	embedding, width, wide int
	headColumns            int // of a head of queries, keys or values
	keyColumns             int // columns of the heads of keys, rounded up to tiles
	widestHead             int // columns of a head, at most
}

// packer lays out the weights, and keeps the functions that write them.
type packer struct {
	config *transformer.Config
	arena  runtime.Arena
	arrays []weightArray
}

// weightArray is an array of the weights, and the function that writes it.
type weightArray struct {
	offset, bytes int64
	write         func(dst []byte) error
}

// reserveArray adds an array of a number of bytes, which write fills later, and returns its offset.
func (p *packer) reserveArray(bytes int, write func(dst []byte) error) int64 {
	offset := p.arena.Append(int64(bytes))
	p.arrays = append(p.arrays, weightArray{offset, int64(bytes), write})
	return offset
}

// addPadded adds an array of n float32: x, and zeros. It returns noArray if x is nil.
func (p *packer) addPadded(x []float32, n int) int64 {
	if x == nil {
		return noArray
	}
	return p.reserveArray(4*n, func(dst []byte) error {
		writeFloats(dst, x)
		return nil
	})
}

// addNorm adds a norm of rows of size values.
func (p *packer) addNorm(n transformer.Norm, size int) norm {
	width := roundUp(size, tile)
	return norm{p.addPadded(n.Gamma, width), p.addPadded(n.Beta, width), p.config.Epsilon}
}

// addHeadNorm adds a norm of the values of a head: value j of the device is order(j) of the model.
func (p *packer) addHeadNorm(n transformer.Norm, order func(j int) int) norm {
	ordered := func(x []float32) []float32 {
		if x == nil {
			return nil
		}
		y := make([]float32, len(x))
		for j := range y {
			y[j] = x[order(j)]
		}
		return y
	}
	return norm{p.addPadded(ordered(n.Gamma), p.config.HeadSize), p.addPadded(ordered(n.Beta),
		p.config.HeadSize), p.config.Epsilon}
}

// mapRow is a row of a linear map, and the factors of its weight and bias. A nil map means zeros.
type mapRow struct {
	linear       *transformer.Linear
	row          int
	weight, bias float32
}

// sandwichScale scales the outputs of feed-forward layers that are normalized afterwards, so that
// gated products up to a million fit into half precision. The norm undoes the scale, except for its
// epsilon, which is scaled as well.
const sandwichScale = 1. / 16

// feedForwardScale returns the factor of the output of feed-forward layers.
func (p *packer) feedForwardScale() float32 {
	if p.config.NormPlace == transformer.SandwichNorm {
		return sandwichScale
	}
	return 1
}

// scaledCopy returns x multiplied by scale; for 1 it returns x itself.
func scaledCopy(x []float32, scale float32) []float32 {
	if scale == 1 {
		return x
	}
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = v * scale
	}
	return y
}

// columns places the n values of a row: groups of size values begin stride columns apart.
type columns struct{ n, size, stride int }

// contiguous places n values one after another.
func contiguous(n int) columns { return columns{n, n, n} }

// addLinear adds a linear map of in.n values with n rows; from(i) returns row i.
func (p *packer) addLinear(name string, n int, in columns, from func(i int) mapRow) matrix {
	m := matrix{n: roundUp(n, tile), k: roundUp(in.n/in.size*in.stride, tile), bias: noArray}
	biased := false
	for i := range n {
		s := from(i)
		biased = biased || s.linear != nil && s.linear.Bias != nil
	}
	m.weights = p.reserveArray(2*m.n*m.k, func(dst []byte) error {
		return writeTiled(dst, name, n, m.k, in, func(i int) []float32 {
			s := from(i)
			if s.linear == nil {
				return nil
			}
			return scaledCopy(s.linear.Weight[s.row*in.n:(s.row+1)*in.n], s.weight)
		})
	})
	if biased {
		m.bias = p.reserveArray(4*m.n, func(dst []byte) error {
			for i := range n {
				if s := from(i); s.linear != nil && s.linear.Bias != nil {
					putFloat(dst, 4*i, s.linear.Bias[s.row]*s.bias)
				}
			}
			return nil
		})
	}
	return m
}

// unchangedRows returns the rows of a map in their order, without factors.
func unchangedRows(l *transformer.Linear) func(i int) mapRow {
	return func(i int) mapRow { return mapRow{l, i, 1, 1} }
}

// layOutWeights lays out all weights of a model; [packer.writeImage] writes them.
func layOutWeights(c *transformer.Config, w *transformer.Weights) (*packer, *tensors) {
	p := &packer{config: c}
	e, d := c.EmbeddingSize(), headColumns(c.HeadSize)
	t := &tensors{
		angles:      map[float64]int64{0: noArray},
		embedding:   roundUp(e, tile),
		width:       roundUp(c.Hidden, tile),
		wide:        roundUp(c.Intermediate, tile),
		headColumns: d,
		keyColumns:  roundUp(c.KeyHeads*d, tile),
	}
	p.addEmbeddings(t, w)
	for _, f := range c.Layers {
		if _, ok := t.angles[f.Theta]; !ok {
			t.angles[f.Theta] = p.addAngles(f.Theta)
		}
	}
	t.norm, t.final = p.addNorm(w.Norm, e), p.addNorm(w.Final, c.Hidden)
	t.relative = p.addDistances(w.Relative)
	for i := range w.Layers {
		t.layers = append(t.layers, p.addLayer(t, i, &w.Layers[i]))
	}
	in := c.Hidden
	for i := range w.Heads {
		d := &w.Heads[i]
		name := fmt.Sprintf("dense head %d", i)
		x := head{
			matrix:           p.addLinear(name, d.Out, contiguous(in), unchangedRows(&d.Linear)),
			activation:       d.Activation,
			outputs:          d.Out,
			plainResidual:    d.Residual && d.ResidualWeight == nil,
			weightedResidual: d.ResidualWeight != nil,
		}
		if x.weightedResidual {
			x.residual = p.addLinear(name+" residual", d.Out, contiguous(in),
				unchangedRows(&transformer.Linear{Weight: d.ResidualWeight}))
		}
		t.heads = append(t.heads, x)
		t.widestHead = max(t.widestHead, x.n)
		in = d.Out
	}
	t.bytes = p.arena.Size
	return p, t
}

// addEmbeddings adds the embeddings of tokens. The embedding of the token type is added to those of
// positions if the model has learned ones, else to those of words.
func (p *packer) addEmbeddings(t *tensors, w *transformer.Weights) {
	c, e := p.config, p.config.EmbeddingSize()
	words := len(w.Words) / e
	types := make([]float32, e)
	if w.Types != nil {
		copy(types, w.Types)
	}
	sumRows := func(rows []float32, add []float32) func(i int) []float32 {
		return func(i int) []float32 {
			sum := make([]float32, e)
			for j, v := range rows[i*e : (i+1)*e] {
				sum[j] = v + add[j]
			}
			return sum
		}
	}
	addedToWords := types
	if c.LearnedPositions {
		addedToWords = make([]float32, e)
	}
	t.words = p.reserveArray(2*words*t.embedding, func(dst []byte) error {
		return writeTable(dst, "word embeddings", words, t.embedding, sumRows(w.Words, addedToWords))
	})
	t.positions = noArray
	if c.LearnedPositions {
		positions := w.Positions[c.PositionOffset*e:]
		t.positions = p.reserveArray(2*c.MaxPositions*t.embedding, func(dst []byte) error {
			return writeTable(dst, "position embeddings", c.MaxPositions, t.embedding, sumRows(positions, types))
		})
	}
	if e != c.Hidden {
		m := p.addLinear("embedding projection", c.Hidden, contiguous(e), unchangedRows(&w.Project))
		t.project = &m
	}
}

// distanceMargin is how far tiles of attention reach beyond the longest text.
const distanceMargin = 64

// zeroDistance returns the index of the distance 0 in a table of relative positions.
func zeroDistance(c *transformer.Config) int { return c.MaxPositions - 1 + distanceMargin }

// addDistances adds the position biases of attention, which a kernel adds to products of queries and
// keys by their distance. x is [heads, 2·MaxPositions − 1], from the most negative distance on. The
// biases are divided by the scale, because the kernel scales the sums. Each row gets distanceMargin
// zeros at both ends.
func (p *packer) addDistances(x []float32) int64 {
	if x == nil {
		return noArray
	}
	stride, n, scale := 2*zeroDistance(p.config)+1, 2*p.config.MaxPositions-1, p.config.Scale()
	return p.reserveArray(4*p.config.Heads*stride, func(dst []byte) error {
		for h := range p.config.Heads {
			for i, v := range x[h*n : (h+1)*n] {
				putFloat(dst, 4*(h*stride+distanceMargin+i), v/scale)
			}
		}
		return nil
	})
}

// addLayer adds layer i.
func (p *packer) addLayer(t *tensors, i int, l *transformer.Layer) layer {
	c := p.config
	h := c.Hidden
	name := fmt.Sprintf("layer %d ", i)
	y := layer{
		form:                c.Layers[i],
		attentionNorm:       p.addNorm(l.AttentionNorm, h),
		feedForwardNorm:     p.addNorm(l.FeedForwardNorm, h),
		attentionOutputNorm: p.addNorm(l.AttentionOutputNorm, h),
		feedForwardOutput:   p.addNorm(l.FeedForwardOutputNorm, h),
	}
	if y.form.Convolution {
		p.addConvolution(t, &y, name, l)
	} else {
		p.addAttention(t, &y, name, l)
	}
	p.addFeedForward(t, &y, name, l)
	return y
}

// addFeedForward adds a feed-forward layer. If it is gated, the rows of the two halves of Up are interleaved.
func (p *packer) addFeedForward(t *tensors, y *layer, name string, l *transformer.Layer) {
	c := p.config
	y.feedForwardOutput.epsilon *= p.feedForwardScale() * p.feedForwardScale()
	if !c.Gated {
		y.up = p.addLinear(name+"up", c.Intermediate, contiguous(c.Hidden), unchangedRows(&l.Up))
		y.down = p.addLinear(name+"down", c.Hidden, contiguous(c.Intermediate),
			func(i int) mapRow { return mapRow{&l.Down, i, p.feedForwardScale(), p.feedForwardScale()} })
		return
	}
	y.up = p.addLinear(name+"up", 2*t.wide, contiguous(c.Hidden), func(i int) mapRow {
		gate, row := interleaved(i)
		switch {
		case row >= c.Intermediate:
			return mapRow{}
		case gate:
			return mapRow{&l.Up, c.Intermediate + row, p.feedForwardScale(), p.feedForwardScale()}
		}
		return mapRow{&l.Up, row, 1, 1}
	})
	y.down = p.addLinear(name+"down", c.Hidden, contiguous(c.Intermediate),
		func(i int) mapRow { return mapRow{&l.Down, i, 1, p.feedForwardScale()} })
}

// addAttention adds queries, keys and values, with zeros where heads have more columns than
// dimensions. With rotary positions, the rows of a head of queries and keys are interleaved.
func (p *packer) addAttention(t *tensors, y *layer, name string, l *transformer.Layer) {
	c := p.config
	h, d, size := c.Hidden, t.headColumns, c.HeadSize
	plain := func(j int) int { return j }
	order := plain
	if y.angles = t.angles[y.form.Theta]; y.angles != noArray {
		order = func(j int) int {
			second, j := interleaved(j)
			if second {
				j += size / 2
			}
			return j
		}
	}
	row := func(l *transformer.Linear, heads, i int, order func(j int) int) mapRow {
		head, j := i/d, i%d
		if head >= heads || j >= size {
			return mapRow{}
		}
		return mapRow{l, head*size + order(j), 1, 1}
	}
	queries := c.Heads * d
	y.qkv = p.addLinear(name+"query, key and value", queries+2*t.keyColumns, contiguous(h), func(i int) mapRow {
		switch {
		case i < queries:
			return row(&l.Query, c.Heads, i, order)
		case i < queries+t.keyColumns:
			return row(&l.Key, c.KeyHeads, i-queries, order)
		}
		return row(&l.Value, c.KeyHeads, i-queries-t.keyColumns, plain)
	})
	y.queryNorm, y.keyNorm = p.addHeadNorm(l.QueryNorm, order), p.addHeadNorm(l.KeyNorm, order)
	y.output = p.addLinear(name+"output", h, columns{c.Heads * size, size, d}, unchangedRows(&l.Output))
}

// addConvolution adds a convolution, with a row for each of its taps.
func (p *packer) addConvolution(t *tensors, y *layer, name string, l *transformer.Layer) {
	h, taps := p.config.Hidden, y.form.Taps()
	y.angles, y.queryNorm, y.keyNorm = noArray, noNorm, noNorm
	y.qkv = p.addLinear(name+"convolution input", 3*t.width, contiguous(h), func(i int) mapRow {
		if i%t.width >= h {
			return mapRow{}
		}
		return mapRow{&l.Convolution.In, i/t.width*h + i%t.width, 1, 1}
	})
	y.taps = p.reserveArray(4*taps*t.width, func(dst []byte) error {
		for i, v := range l.Convolution.Taps.Weight {
			putFloat(dst, 4*(i%taps*t.width+i/taps), v)
		}
		return nil
	})
	y.tapsBias = p.addPadded(l.Convolution.Taps.Bias, t.width)
	y.output = p.addLinear(name+"output", h, contiguous(h), unchangedRows(&l.Output))
}

// addAngles adds a table of rotary angles: cosine and sine in turn.
func (p *packer) addAngles(theta float64) int64 {
	n := p.config.HeadSize / 2
	return p.reserveArray(8*p.config.MaxPositions*n, func(dst []byte) error {
		r := transformer.NewRotary(theta, n, p.config.MaxPositions)
		for i := range r.Cos {
			putFloat(dst, 8*i, r.Cos[i])
			putFloat(dst, 8*i+4, r.Sin[i])
		}
		return nil
	})
}

// writeImage returns the content of the memory of the weights.
func (p *packer) writeImage(ctx context.Context) ([]byte, error) {
	image := make([]byte, p.arena.Size)
	err := parallel.Do(ctx, len(p.arrays), parallel.Threads(0, len(p.arrays)), func(i int) error {
		x := p.arrays[i]
		return x.write(image[x.offset : x.offset+x.bytes])
	})
	return image, err
}

// uploadBytes is how much of the weights is copied between two checks of the context.
const uploadBytes = 32 << 20

// upload copies the image to the device. The image is not page-locked, so that each block has
// been read when its call returns.
func upload(ctx context.Context, rt *runtime.Runtime, to driver.Mem, image []byte) error {
	for begin := 0; begin < len(image); begin += uploadBytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		block := image[begin:min(begin+uploadBytes, len(image))]
		if err := rt.Driver.ToDevice(to.At(int64(begin)), block, rt.Stream); err != nil {
			return err
		}
	}
	return rt.Sync()
}
