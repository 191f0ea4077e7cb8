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

// searchTimes is the report that every engine gives of its searches.
type searchTimes struct {
	Hits    [][]uint32  `json:"hits"`       // documents of each query by row, best first
	Latency [][]float64 `json:"latency_ms"` // of each query, one list for each pass
}

// withQueries calls use with an engine for an index and with queries. threads is the engine's
// limit. 0 means one a processor.
func withQueries(
	ctx context.Context, data, path string, threads int, use func(*search.Engine, []search.Query) error,
) error {
	queries, err := readQueries(ctx, data)
	if err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	engine, err := search.New(ctx, ix, &search.EngineOptions{Threads: threads})
	if err != nil {
		return errors.Join(err, ix.Close())
	}
	return errors.Join(use(engine, queries), engine.Close(), ix.Close())
}

// readQueries reads the queries of a collection.
func readQueries(ctx context.Context, data string) (queries []search.Query, err error) {
	files := vectors.Files{Vectors: filepath.Join(data, "queries.npy")}
	lengths := filepath.Join(data, "querylens.npy")
	if _, err := os.Stat(lengths); err == nil {
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

// timeSearch answers queries one at a time on one goroutine: first a pass to warm up and record the
// hits, then up to three timed passes within the given seconds.
func timeSearch(ctx context.Context, data, path string, k int, seconds float64) (*searchTimes, error) {
	options, r := search.Options{K: k}, &searchTimes{}
	return r, withQueries(ctx, data, path, 1, func(engine *search.Engine, queries []search.Query) error {
		for _, q := range queries {
			found, err := engine.Search(ctx, q, options)
			if err != nil {
				return err
			}
			r.Hits = append(r.Hits, ordinals(found))
		}
		begin := time.Now()
		for len(r.Latency) == 0 || len(r.Latency) < 3 && time.Since(begin).Seconds() < seconds {
			times := make([]float64, len(queries))
			for i, q := range queries {
				start := time.Now()
				if _, err := engine.Search(ctx, q, options); err != nil {
					return err
				}
				times[i] = time.Since(start).Seconds() * 1e3
			}
			r.Latency = append(r.Latency, times)
		}
		return nil
	})
}

// throughput is the report of timeAll.
type throughput struct {
	Hits  [][]uint32 `json:"hits"`
	Rates []float64  `json:"queries_per_second"` // of each pass
}

// timeAll answers all queries in one batch on all processors: first a pass to warm up, then timed
// passes for the given seconds.
func timeAll(ctx context.Context, data, path string, k int, seconds float64) (*throughput, error) {
	options, r := search.Options{K: k}, &throughput{}
	return r, withQueries(ctx, data, path, 0, func(engine *search.Engine, queries []search.Query) error {
		found, err := engine.SearchBatch(ctx, queries, options)
		if err != nil {
			return err
		}
		for i := range found {
			r.Hits = append(r.Hits, ordinals(&found[i]))
		}
		for begin := time.Now(); len(r.Rates) == 0 || time.Since(begin).Seconds() < seconds; {
			start := time.Now()
			if _, err := engine.SearchBatch(ctx, queries, options); err != nil {
				return err
			}
			r.Rates = append(r.Rates, float64(len(queries))/time.Since(start).Seconds())
		}
		return nil
	})
}
