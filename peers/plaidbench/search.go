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

// timeSearch answers queries one at a time on one goroutine: a pass to warm up
// and learn the hits, then up to three timed ones while time lasts.
func timeSearch(ctx context.Context, data, path string, k int, seconds float64) (_ *searchTimes, err error) {
	files := vectors.Files{Vectors: filepath.Join(data, "queries.npy")}
	if lengths := filepath.Join(data, "querylens.npy"); exists(lengths) {
		files.Lengths = lengths
	}
	src, err := vectors.Open(ctx, files)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	var queries []search.Query
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return nil, err
		}
		queries = append(queries, search.Query{Vectors: append([]float32(nil), d.Tokens...), Dim: src.Dim()})
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	engine, err := search.New(ctx, ix, &search.EngineOptions{Threads: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	options := search.Options{K: k}
	r := &searchTimes{}
	for _, q := range queries {
		found, err := engine.Search(ctx, q, options)
		if err != nil {
			return nil, err
		}
		hits := make([]uint32, len(found.Hits))
		for i, h := range found.Hits {
			hits[i] = h.Ordinal
		}
		r.Hits = append(r.Hits, hits)
	}
	begin := time.Now()
	for len(r.Latency) == 0 || len(r.Latency) < 3 && time.Since(begin).Seconds() < seconds {
		times := make([]float64, len(queries))
		for i, q := range queries {
			start := time.Now()
			if _, err := engine.Search(ctx, q, options); err != nil {
				return nil, err
			}
			times[i] = time.Since(start).Seconds() * 1e3
		}
		r.Latency = append(r.Latency, times)
	}
	return r, nil
}
