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
	names    *names
	backbone *modeldir.Backbone
	prefix   string // of the model, or of a layer
}

// readBackbone reads all tensors except the heads.
func readBackbone(t *tensors, b *modeldir.Backbone, w *native.Weights) {
	n := namesOf(b)
	s := source{t, n, b, t.prefix(n.words + ".weight")}
	s.embeddings(w)
	for i := range b.Layers {
		layer := s
		layer.prefix += fmt.Sprintf(n.layer, i)
		w.Layers = append(w.Layers, layer.readLayer(i))
	}
	w.Final = s.norm(n.final, b.Hidden)
	for _, name := range unusedBeginnings {
		t.ignore(name, s.prefix+name)
	}
}

// embeddings reads the tables of embeddings, their norm and their projection.
func (s *source) embeddings(w *native.Weights) {
	n, b, size := s.names, s.backbone, s.backbone.EmbeddingSize()
	w.Words = s.readTable(n.words, b.Vocabulary, size)
	if n.scaled {
		root := float32(math.Sqrt(float64(size)))
		for i := range w.Words {
			w.Words[i] *= root
		}
	}
	if b.LearnedPositions {
		w.Positions = s.readTable(n.positions, b.MaxPositions+b.PositionOffset, size)
	}
	if n.types != "" {
		rows := 1
		if shape := s.shapeOf(s.prefix + n.types + ".weight"); len(shape) == 2 {
			rows = shape[0]
		}
		w.Types = s.readTable(n.types, rows, size)
	}
	w.Norm = s.norm(n.norm, size)
	if b.Embedding != 0 {
		w.Project = s.linear(n.project, b.Hidden, size, true)
	}
	if b.RelativePositions {
		w.Relative = expandRelative(s.readTable(n.relative, 2*buckets, b.Heads), b.Heads, b.MaxPositions)
	}
}

// readLayer reads layer i.
func (s *source) readLayer(i int) (l native.Layer) {
	n, b, h := s.names, s.backbone, s.backbone.Hidden
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
		l.Up = native.Linear{
			Weight: slices.Concat(m[0].Weight, m[1].Weight),
			Bias:   slices.Concat(m[0].Bias, m[1].Bias),
		}
	} else {
		l.Up = s.linears(n.up, h, b.Biases.FeedForward, b.Intermediate)[0]
	}
	l.Down = s.linear(n.down, h, b.Intermediate, b.Biases.FeedForward)
	l.FeedForwardOutputNorm = s.norm(n.feedForwardOutputNorm, h)
	return l
}

// readTable reads a table of embeddings.
func (s *source) readTable(name string, rows, size int) []float32 {
	return s.read(s.prefix+name+".weight", rows, size)
}

// linear reads a linear map.
func (s *source) linear(name string, out, in int, biased bool) native.Linear {
	return s.tensors.linear(s.prefix+name, out, in, biased)
}

// linears reads linear maps with these numbers of rows. list has a name for each map, or one name for a
// tensor of all.
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
	n = s.tensors.norm(s.prefix+name, size, s.backbone.Biases.Norms)
	if s.names.addOne {
		for i := range n.Gamma {
			n.Gamma[i]++
		}
	}
	return n
}

// buckets is the number of MPNet's buckets of distances on each side of a token.
const buckets = 16

// expandRelative expands MPNet's table, which has a row for each bucket of distances, to a value for every
// distance of a key from its query, for each head.
func expandRelative(table []float32, heads, positions int) []float32 {
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

// bucketOf returns the bucket of a distance. Distances up to 7 have their own. Beyond, the bounds of the
// buckets grow by a factor, up to 91; these are the bounds as computed in float32.
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
