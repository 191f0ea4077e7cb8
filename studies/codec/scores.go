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
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// table holds a score for each query and document; that of an empty document is
// −Inf.
type table struct {
	docs   int
	scores []float32
}

func newTable(queries, docs int) table { return table{docs, make([]float32, queries*docs)} }

func (t *table) row(query int) []float32 { return t.scores[query*t.docs : (query+1)*t.docs] }

// exactScores gives MaxSim over the vectors as they are, from the cache if it
// is there.
func exactScores(ctx context.Context, c *collection, o options) (table, error) {
	t := newTable(len(c.queries.ids), len(c.docs.ids))
	if o.cache != "" {
		if ok, err := t.load(o.cache); ok || err != nil {
			return t, err
		}
	}
	be, err := maxsim.Select(o.train.Backend.Name())
	if err != nil {
		return t, err
	}
	err = be.Score(ctx, &maxsim.Call{
		Q: c.queries.batch(), D: c.docs.batch(), Scores: t.scores, Terms: maxsim.Terms{Threads: o.train.Threads},
	})
	for q := range c.queries.ids {
		t.put(q, t.row(q), c)
	}
	if err == nil && o.cache != "" {
		err = t.save(o.cache)
	}
	return t, err
}

// put enters the scores of all documents.
func (t *table) put(query int, scores []float32, c *collection) {
	row := t.row(query)
	for i, s := range scores {
		if c.docs.offsets[i] < c.docs.offsets[i+1] {
			row[i] = s
		} else {
			row[i] = float32(math.Inf(-1))
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
		t.put(i, out, c)
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
