package search

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// Searches beside a writer each see one state of the index: a document of every
// generation of additions that was whole, and never one that was not.
func TestSearchBesideWriter(t *testing.T) {
	const (
		dim     = 16
		batch   = 6
		rounds  = 12
		readers = 16
	)
	ctx := context.Background()
	m := newMaker(50, dim, 20)
	ix := searchtest.Build(t, dim, m.Docs("d", 150, 4), nil)
	e := on(t, ix, 2)
	queries := make([]Query, 8)
	for i := range queries {
		queries[i] = m.query(5)
	}
	before := runtime.NumGoroutine()
	var stop atomic.Bool
	var wg sync.WaitGroup
	var searches atomic.Int64
	errs := make(chan error, readers)
	for g := range readers {
		wg.Go(func() {
			for i := g; !stop.Load(); i++ {
				if err := searchOnce(ctx, e, queries[i%len(queries)], i); err != nil {
					errs <- fmt.Errorf("reader %d, search %d: %w", g, i, err)
					return
				}
				searches.Add(1)
			}
		})
	}
	for r := range rounds {
		docs := m.Docs(fmt.Sprintf("r%d-", r), batch, 4)
		docs[5].Tokens = docs[0].Tokens // none is empty
		_, err := ix.Add(ctx, searchtest.Source(t, dim, docs), nil)
		require.NoError(t, err)
		if r >= 2 {
			var gone []string
			for i := range batch {
				gone = append(gone, fmt.Sprintf("r%d-%d", r-2, i))
			}
			n, _, err := ix.Delete(ctx, gone)
			require.NoError(t, err)
			require.Equal(t, batch, n)
		}
		if r == rounds/2 {
			require.NoError(t, ix.Compact(ctx, nil))
		}
	}
	for searches.Load() < 2*readers && len(errs) == 0 {
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	requireGoroutines(t, before)
}

// searchOnce searches all documents of a snapshot and compares with what the
// snapshot holds; every few times it asks the engine that follows the index.
func searchOnce(ctx context.Context, e *Engine, q Query, i int) error {
	if i%3 == 0 {
		res, err := e.Search(ctx, q, Options{K: 1000, Mode: Exhaustive})
		if err != nil {
			return err
		}
		rounds := map[int]int{}
		for _, h := range res.Hits {
			var r, d int
			if n, _ := fmt.Sscanf(h.ID, "r%d-%d", &r, &d); n == 2 {
				rounds[r]++
			}
		}
		for r, n := range rounds {
			if n != 6 {
				return fmt.Errorf("%d of 6 documents that were added and deleted together in round %d", n, r)
			}
		}
		return nil
	}
	snap, err := e.ix.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	o := Options{K: 10, Mode: Mode(i % 2)}
	res, err := e.At(snap).Search(ctx, q, o)
	if err != nil {
		return err
	}
	if len(res.Hits) != 10 {
		return fmt.Errorf("%d hits", len(res.Hits))
	}
	for _, h := range res.Hits {
		if ordinal, ok, err := snap.Ordinal(h.ID); err != nil || !ok || ordinal != h.Ordinal {
			return fmt.Errorf("hit %q is not in the snapshot: %v", h.ID, err)
		}
		chunk, doc, _ := snap.Locate(h.Ordinal)
		ch, err := snap.Chunk(chunk, storage.All)
		if err != nil {
			return err
		}
		if score, _ := kernels.OracleMaxSim(snap.Codec(), q.Vectors, nil, ch, doc); math.Abs(score-float64(h.Score)) > 5e-4 {
			return fmt.Errorf("document %q scores %v, the oracle says %v", h.ID, h.Score, score)
		}
	}
	return nil
}

// requireGoroutines waits for goroutines that are about to end.
func requireGoroutines(t *testing.T, most int) {
	t.Helper()
	for i := 0; runtime.NumGoroutine() > most && i < 6000; i++ {
		time.Sleep(10 * time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), most)
}
