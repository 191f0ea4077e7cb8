package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// searchTimes is what every engine reports of its searches.
type searchTimes struct {
	Hits    [][]uint32  `json:"hits"`       // documents of each query by row, best first
	Latency [][]float64 `json:"latency_ms"` // of each query, a list a pass
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// opened is an index with an engine of so many threads (0: one a processor), and queries for it.
type opened struct {
	index   *index.Index
	engine  *search.Engine
	queries []search.Query
}

func open(ctx context.Context, data, path string, threads int) (*opened, error) {
	b := &opened{}
	var err error
	if b.queries, err = readQueries(ctx, data); err != nil {
		return nil, err
	}
	if b.index, err = index.Open(ctx, path, nil); err != nil {
		return nil, err
	}
	if b.engine, err = search.New(ctx, b.index, &search.EngineOptions{Threads: threads}); err != nil {
		return nil, errors.Join(err, b.index.Close())
	}
	return b, nil
}

func (b *opened) close() error { return errors.Join(b.engine.Close(), b.index.Close()) }

func readQueries(ctx context.Context, data string) (queries []search.Query, err error) {
	files := vectors.Files{Vectors: filepath.Join(data, "queries.npy")}
	if lengths := filepath.Join(data, "querylens.npy"); exists(lengths) {
		files.Lengths = lengths
	}
	src, err := vectors.Open(ctx, files)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return nil, err
		}
		queries = append(queries, search.Query{Vectors: append([]float32(nil), d.Tokens...), Dim: src.Dim()})
	}
	return queries, nil
}

func ordinals(found *search.Result) []uint32 {
	hits := make([]uint32, len(found.Hits))
	for i, h := range found.Hits {
		hits[i] = h.Ordinal
	}
	return hits
}

// timeSearch answers queries one at a time on one goroutine: a pass to warm up
// and learn the hits, then up to three timed ones while time lasts.
func timeSearch(ctx context.Context, data, path string, k int, seconds float64) (_ *searchTimes, err error) {
	b, err := open(ctx, data, path, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	options := search.Options{K: k}
	r := &searchTimes{}
	for _, q := range b.queries {
		found, err := b.engine.Search(ctx, q, options)
		if err != nil {
			return nil, err
		}
		r.Hits = append(r.Hits, ordinals(found))
	}
	begin := time.Now()
	for len(r.Latency) == 0 || len(r.Latency) < 3 && time.Since(begin).Seconds() < seconds {
		times := make([]float64, len(b.queries))
		for i, q := range b.queries {
			start := time.Now()
			if _, err := b.engine.Search(ctx, q, options); err != nil {
				return nil, err
			}
			times[i] = time.Since(start).Seconds() * 1e3
		}
		r.Latency = append(r.Latency, times)
	}
	return r, nil
}

type throughput struct {
	Hits  [][]uint32 `json:"hits"`
	Rates []float64  `json:"queries_per_second"` // of each pass
}

// timeAll hands in all queries at once, on all processors: a pass to warm up, then
// passes while time lasts.
func timeAll(ctx context.Context, data, path string, k int, seconds float64) (_ *throughput, err error) {
	b, err := open(ctx, data, path, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	options := search.Options{K: k}
	found, err := b.engine.SearchBatch(ctx, b.queries, options)
	if err != nil {
		return nil, err
	}
	r := &throughput{}
	for i := range found {
		r.Hits = append(r.Hits, ordinals(&found[i]))
	}
	for begin := time.Now(); len(r.Rates) == 0 || time.Since(begin).Seconds() < seconds; {
		start := time.Now()
		if _, err := b.engine.SearchBatch(ctx, b.queries, options); err != nil {
			return nil, err
		}
		r.Rates = append(r.Rates, float64(len(b.queries))/time.Since(start).Seconds())
	}
	return r, nil
}
