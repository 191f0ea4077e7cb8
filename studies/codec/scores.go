package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"

	"github.com/plaid-ir/plaid/internal/atomicfile"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

// table holds a score for each query and document; that of an empty document is
// −Inf.
type table struct {
	docs   int
	scores []float32
}

func newTable(queries, docs int) table { return table{docs, make([]float32, queries*docs)} }

func (t *table) row(query int) []float32 { return t.scores[query*t.docs : (query+1)*t.docs] }

// tail is what kernels may read past the end of an array.
const tail = 1024

// exactScores gives MaxSim over the vectors as they are, from the cache if it
// is there.
func exactScores(ctx context.Context, c *collection, o options) (table, error) {
	t := newTable(len(c.queries.ids), len(c.docs.ids))
	if o.cache != "" {
		if ok, err := t.load(o.cache); ok || err != nil {
			return t, err
		}
	}
	// Blocks of documents of some thousand tokens.
	var ends []int
	for i := range c.docs.ids {
		first := 0
		if len(ends) > 0 {
			first = ends[len(ends)-1]
		}
		if i+1 == len(c.docs.ids) || c.docs.offsets[i+2]-c.docs.offsets[first] > 4096 {
			ends = append(ends, i+1)
		}
	}
	err := parallel.Do(ctx, len(ends), o.train.Threads, func(i int) error {
		first := 0
		if i > 0 {
			first = ends[i-1]
		}
		return t.exact(ctx, c, first, ends[i], o.train.Backend)
	})
	if err == nil && o.cache != "" {
		err = t.save(o.cache)
	}
	return t, err
}

// exact scores the documents from to to (exclusive) with every query. Each token
// is handed to the kernel as a centroid of its own with a residual of zero.
func (t *table) exact(ctx context.Context, c *collection, from, to int, be kernels.Backend) error {
	first, last := c.docs.offsets[from], c.docs.offsets[to]
	n := int(last - first)
	out := make([]float32, to-from)
	if n == 0 {
		for q := range c.queries.ids {
			t.put(q, from, out, c)
		}
		return nil
	}
	k := kernels.Codec{
		Centroids: kernels.Centroids{K: n, Dim: c.docs.dim, Type: kernels.F32},
		Codebook:  kernels.Codebook{Nbits: 1, Grid: []int16{0, 0}},
		FactorMax: 1,
	}
	ch := kernels.Chunk{CodeBytes: 4, Residuals: make([]byte, n*k.RowBytes()+tail)}
	for _, v := range c.docs.tokens[int(first)*c.docs.dim : int(last)*c.docs.dim] {
		k.Centroids.Data = binary.LittleEndian.AppendUint32(k.Centroids.Data, math.Float32bits(v))
	}
	for i := range n {
		ch.Codes = binary.LittleEndian.AppendUint32(ch.Codes, uint32(i))
		ch.Factors = binary.LittleEndian.AppendUint16(ch.Factors, math.MaxInt16)
	}
	ch.Codes, ch.Factors = append(ch.Codes, make([]byte, tail)...), append(ch.Factors, make([]byte, tail)...)
	for _, o := range c.docs.offsets[from : to+1] {
		ch.Offsets = append(ch.Offsets, o-first)
	}
	scorer, err := be.Scorer(&k)
	if err != nil {
		return err
	}
	query := scorer.NewQuery()
	for q := range c.queries.ids {
		if err := errors.Join(ctx.Err(), query.Reset(c.queries.rows(q), nil)); err != nil {
			return err
		}
		query.CentroidScores(0, n)
		query.Seal()
		query.MaxSim(out, &ch, nil, kernels.Fine)
		t.put(q, from, out, c)
	}
	return nil
}

// put enters the scores of the documents from first on.
func (t *table) put(query, first int, scores []float32, c *collection) {
	row := t.row(query)
	for i, s := range scores {
		if d := first + i; c.docs.offsets[d] < c.docs.offsets[d+1] {
			row[d] = s
		} else {
			row[d] = float32(math.Inf(-1))
		}
	}
}

// storedScores gives MaxSim over encoded documents, to the precision of float32
// sums.
func storedScores(ctx context.Context, k *kernels.Codec, ch *kernels.Chunk, c *collection, o options) (table, error) {
	t := newTable(len(c.queries.ids), ch.Docs())
	scorer, err := o.train.Backend.Scorer(k)
	if err != nil {
		return t, err
	}
	pool := sync.Pool{New: func() any { return scorer.NewQuery() }}
	err = parallel.Do(ctx, len(c.queries.ids), o.train.Threads, func(i int) error {
		q := pool.Get().(kernels.Query)
		defer pool.Put(q)
		if err := q.Reset(c.queries.rows(i), nil); err != nil {
			return err
		}
		q.CentroidScores(0, k.Centroids.K)
		q.Seal()
		out := make([]float32, ch.Docs())
		q.MaxSim(out, ch, nil, kernels.Fine)
		t.put(i, 0, out, c)
		return nil
	})
	return t, err
}

func (t *table) load(path string) (bool, error) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case len(b) != 4*len(t.scores):
		return false, fmt.Errorf("%s: %d bytes for %d scores: the cache is of another collection", path, len(b), len(t.scores))
	}
	for i := range t.scores {
		t.scores[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return true, nil
}

func (t *table) save(path string) error {
	b := make([]byte, 0, 4*len(t.scores))
	for _, s := range t.scores {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s))
	}
	return atomicfile.Write(context.Background(), path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
