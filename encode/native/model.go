package native

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/native/internal/plain"
	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Model is an encoder. It is safe for concurrent use.
type Model struct {
	config           Config
	loops            *loops
	vocab            int
	dim              int
	words            []float32
	positions, types []float32
	norm             Norm    // of embeddings. It may be empty
	expand           *matrix // projects embeddings to the size of the model. nil means that they have it
	// relative is [transformer.Weights.Relative] divided by the scale of attention, so that it can be
	// added before products are scaled.
	relative               []float32
	layers                 []layer
	qkvWidth, contextWidth int // the widest rows of qkv and context in scratch
	final                  Norm
	heads                  []head
	pool                   sync.Pool // of *scratch
}

// layer is a Layer with packed weights.
type layer struct {
	form                                   transformer.LayerForm
	attentionNorm, attentionOutputNorm     Norm
	feedForwardNorm, feedForwardOutputNorm Norm
	queryNorm, keyNorm                     Norm
	qkv                                    *matrix // queries, keys and values, or inputs of a convolution
	output, up, down                       *matrix
	angles                                 *transformer.Rotary // nil means that queries and keys are not rotated
	convolution                            *convolution        // nil means attention
}

// head is a Dense with packed weights.
type head struct {
	Dense
	weight, residual *matrix
}

// New checks the weights and packs them for the tier.
func New(c Config, w *Weights, o Options) (*Model, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("encoder: %w", err)
	}
	if err := w.Check(&c); err != nil {
		return nil, fmt.Errorf("encoder: %w", err)
	}
	if o.Precision != F32 && o.Precision != Int8 {
		return nil, fmt.Errorf("encoder: %w: %v", ErrConfig, o.Precision)
	}
	l, err := findTier(o.Tier)
	if err != nil {
		return nil, err
	}
	e := c.EmbeddingSize()
	m := &Model{
		config:       c,
		loops:        l,
		vocab:        len(w.Words) / e,
		dim:          c.Hidden,
		words:        w.Words,
		positions:    w.Positions,
		types:        w.Types,
		contextWidth: e,
	}
	m.pool.New = func() any { return new(scratch) }
	m.norm, m.final = withBeta(w.Norm), withBeta(w.Final)
	if e != c.Hidden {
		m.expand = pack(l, o.Precision, e, w.Project)
	}
	for _, v := range w.Relative {
		m.relative = append(m.relative, v/c.Scale())
	}
	angles := map[float64]*transformer.Rotary{0: nil}
	for i := range w.Layers {
		form := c.Layers[i]
		if _, ok := angles[form.Theta]; !ok {
			angles[form.Theta] = transformer.NewRotary(form.Theta, c.HeadSize/2, c.MaxPositions)
		}
		y := packLayer(l, o.Precision, &c, &w.Layers[i], form)
		y.angles = angles[form.Theta]
		m.layers = append(m.layers, y)
		m.qkvWidth, m.contextWidth = max(m.qkvWidth, y.qkv.n), max(m.contextWidth, y.output.k)
	}
	for _, d := range w.Heads {
		h := head{Dense: d, weight: pack(l, F32, d.In, d.Linear)}
		if d.ResidualWeight != nil {
			h.residual = pack(l, F32, d.In, Linear{Weight: d.ResidualWeight})
		}
		h.Linear, h.ResidualWeight = Linear{}, nil
		m.heads = append(m.heads, h)
		m.dim = d.Out
	}
	return m, nil
}

// withBeta returns a norm that has a beta: zeros if it has none. An empty norm stays empty.
func withBeta(n Norm) Norm {
	if n.Gamma != nil && n.Beta == nil {
		n.Beta = make([]float32, len(n.Gamma))
	}
	return n
}

// packLayer packs the weights of a layer.
func packLayer(l *loops, p Precision, c *Config, x *Layer, form transformer.LayerForm) layer {
	y := layer{
		form:                  form,
		attentionNorm:         withBeta(x.AttentionNorm),
		attentionOutputNorm:   withBeta(x.AttentionOutputNorm),
		feedForwardNorm:       withBeta(x.FeedForwardNorm),
		feedForwardOutputNorm: withBeta(x.FeedForwardOutputNorm),
		queryNorm:             withBeta(x.QueryNorm),
		keyNorm:               withBeta(x.KeyNorm),
		up:                    pack(l, p, c.Hidden, x.Up),
		down:                  pack(l, p, c.Intermediate, x.Down),
	}
	if form.Convolution {
		y.qkv, y.output = pack(l, p, c.Hidden, x.Convolution.In), pack(l, p, c.Hidden, x.Output)
		y.convolution = newConvolution(c.Hidden, &form, &x.Convolution)
		return y
	}
	y.qkv, y.output = pack(l, p, c.Hidden, x.Query, x.Key, x.Value), pack(l, p, c.Heads*c.HeadSize, x.Output)
	return y
}

// Dim returns the dimension of the vectors.
func (m *Model) Dim() int { return m.dim }

// Tier returns the name of the instruction set in use.
func (m *Model) Tier() string { return m.loops.name }

// Chunk implements [engine.Engine]. It is about chunkTokens: larger chunks would not be faster.
func (m *Model) Chunk() int { return 500 }

// Workers implements [engine.Engine].
func (m *Model) Workers() int { return 0 }

// Close implements [engine.Engine]. A model holds no resources other than memory.
func (m *Model) Close() error { return nil }

// chunkTokens is how many tokens a layer computes together, unless one text
// has more: enough that weights are read rarely, and few enough that
// activations stay in the caches.
const chunkTokens = 512

// Encode writes the unit vectors of all tokens of a batch, Dim values each.
func (m *Model) Encode(ctx context.Context, dst []float32, b engine.Batch) error {
	if err := m.config.CheckBatch(&b, len(dst), m.dim, m.vocab); err != nil {
		return fmt.Errorf("encoder: %w", err)
	}
	sc := m.pool.Get().(*scratch)
	defer func() {
		sc.ids = nil
		m.pool.Put(sc)
	}()
	for i, n := 0, len(b.Offsets)-1; i < n; {
		j := i + 1
		for j < n && b.Offsets[j+1]-b.Offsets[i] <= chunkTokens {
			j++
		}
		sc.setTexts(m, &b, i, j)
		if err := m.forward(ctx, sc); err != nil {
			return err
		}
		first := b.Offsets[i]
		if bad := m.project(sc, dst[first*m.dim:b.Offsets[j]*m.dim]); bad >= 0 {
			return fmt.Errorf("encoder: token %d of the batch: %w", first+bad, engine.ErrNotFinite)
		}
		i = j
	}
	return nil
}

// normalize divides a vector by its length, or by 1e-12 if that is more, as PyTorch
// does, and reports whether the length is finite.
func normalize(x []float32) bool {
	var sums [plain.Lanes]float32
	for j, v := range x {
		sums[j%plain.Lanes] = floats.FMA(v, v, sums[j%plain.Lanes])
	}
	s := plain.Sum(&sums)
	length := max(float32(math.Sqrt(float64(s))), 1e-12)
	for j := range x {
		x[j] /= length
	}
	return s-s == 0 // false for an infinite sum and NaN
}
