package weights

import (
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
)

// source reads the tensors of a backbone by the names of its family.
type source struct {
	*tensors
	names  *names
	b      *modeldir.Backbone
	prefix string // of the model, or of a layer
}

// readBackbone reads all but the heads.
func readBackbone(t *tensors, b *modeldir.Backbone, w *native.Weights) {
	n := namesOf(b)
	s := source{t, n, b, t.prefix(n.words + ".weight")}
	s.embeddings(w)
	for i := range b.Layers {
		layer := s
		layer.prefix += fmt.Sprintf(n.layer, i)
		w.Layers = append(w.Layers, layer.layer(i))
	}
	w.Final = s.norm(n.final, b.Hidden)
	for _, name := range unusedBeginnings {
		t.ignore(name, s.prefix+name)
	}
}

// embeddings reads the tables that tokens are looked up in, their norm and projection.
func (s *source) embeddings(w *native.Weights) {
	n, b, size := s.names, s.b, s.b.EmbeddingSize()
	w.Words = s.table(n.words, b.Vocabulary, size)
	if n.scaled {
		root := float32(math.Sqrt(float64(size)))
		for i := range w.Words {
			w.Words[i] *= root
		}
	}
	if b.LearnedPositions {
		w.Positions = s.table(n.positions, b.MaxPositions+b.PositionOffset, size)
	}
	if n.types != "" {
		rows := 1
		if shape := s.shape(s.prefix + n.types + ".weight"); len(shape) == 2 {
			rows = shape[0]
		}
		w.Types = s.table(n.types, rows, size)
	}
	w.Norm = s.norm(n.norm, size)
	if b.Embedding != 0 {
		w.Project = s.linear(n.project, b.Hidden, size, true)
	}
	if b.RelativePositions {
		w.Relative = relative(s.table(n.relative, 2*buckets, b.Heads), b.Heads, b.MaxPositions)
	}
}

// layer reads layer i.
func (s *source) layer(i int) (l native.Layer) {
	n, b, h := s.names, s.b, s.b.Hidden
	if i > 0 || !n.firstPlain {
		l.AttentionNorm = s.norm(n.attentionNorm, h)
	}
	if f := &b.Layers[i]; f.Convolution {
		biased := b.Biases.Convolution
		l.Convolution.In = s.linear(n.convolutionIn, 3*h, h, biased)
		l.Convolution.Taps = native.Linear{Weight: s.read(s.prefix+n.taps+".weight", h, 1, f.Taps())}
		if biased {
			l.Convolution.Taps.Bias = s.read(s.prefix+n.taps+".bias", h)
		}
		l.Output = s.linear(n.convolutionOutput, h, h, biased)
	} else {
		queries, keys := b.Heads*b.HeadSize, b.KeyHeads*b.HeadSize
		m := s.linears(n.queryKeyValue, h, b.Biases.Attention, queries, keys, keys)
		l.Query, l.Key, l.Value = m[0], m[1], m[2]
		l.QueryNorm, l.KeyNorm = s.norm(n.queryNorm, b.HeadSize), s.norm(n.keyNorm, b.HeadSize)
		l.Output = s.linear(n.output, h, queries, b.Biases.Attention)
	}
	l.AttentionOutputNorm = s.norm(n.attentionOutputNorm, h)
	l.FeedForwardNorm = s.norm(n.feedForwardNorm, h)
	if b.Gated {
		m := s.linears(n.up, h, b.Biases.FeedForward, b.Intermediate, b.Intermediate)
		l.Up = native.Linear{Weight: slices.Concat(m[0].Weight, m[1].Weight), Bias: slices.Concat(m[0].Bias, m[1].Bias)}
	} else {
		l.Up = s.linears(n.up, h, b.Biases.FeedForward, b.Intermediate)[0]
	}
	l.Down = s.linear(n.down, h, b.Intermediate, b.Biases.FeedForward)
	l.FeedForwardOutputNorm = s.norm(n.feedForwardOutputNorm, h)
	return l
}

// table reads embeddings.
func (s *source) table(name string, rows, size int) []float32 {
	return s.read(s.prefix+name+".weight", rows, size)
}

// linear reads a map.
func (s *source) linear(name string, out, in int, biased bool) native.Linear {
	return s.tensors.linear(s.prefix+name, out, in, biased)
}

// linears reads maps of the given rows, which have a name each or one for all.
func (s *source) linears(list []string, in int, biased bool, rows ...int) []native.Linear {
	maps := make([]native.Linear, len(rows))
	if len(list) == len(rows) {
		for i, name := range list {
			maps[i] = s.linear(name, rows[i], in, biased)
		}
		return maps
	}
	sum := 0
	for _, n := range rows {
		sum += n
	}
	joined := s.linear(list[0], sum, in, biased)
	for i, n := range rows {
		if joined.Weight != nil {
			maps[i].Weight, joined.Weight = joined.Weight[:n*in], joined.Weight[n*in:]
		}
		if joined.Bias != nil {
			maps[i].Bias, joined.Bias = joined.Bias[:n], joined.Bias[n:]
		}
	}
	return maps
}

// norm reads a norm, if the family has a name for it.
func (s *source) norm(name string, size int) (n native.Norm) {
	if name == "" {
		return n
	}
	n = s.tensors.norm(s.prefix+name, size, s.b.Biases.Norms)
	if s.names.addOne {
		for i := range n.Gamma {
			n.Gamma[i]++
		}
	}
	return n
}

// buckets is how many of MPNet's distances have numbers, to either side of a token.
const buckets = 16

// relative spreads MPNet's table, a row for each bucket of distances, to every distance of a key
// behind its query, for each head.
func relative(table []float32, heads, positions int) []float32 {
	if table == nil {
		return nil
	}
	x := make([]float32, 0, heads*(2*positions-1))
	for head := range heads {
		for d := 1 - positions; d < positions; d++ {
			x = append(x, table[bucketOf(d)*heads+head])
		}
	}
	return x
}

// bucketOf is the bucket of a distance. Up to 7 each has its own. Then they grow by a power, to that of
// 91 and more; these are its bounds as float32 gives them.
func bucketOf(d int) int {
	bucket := 0
	if d > 0 {
		bucket = buckets
	}
	d = max(d, -d)
	if d < 8 {
		return bucket + d
	}
	bucket += 7
	for _, bound := range []int{8, 12, 16, 23, 32, 46, 64, 91} {
		if d >= bound {
			bucket++
		}
	}
	return bucket
}
