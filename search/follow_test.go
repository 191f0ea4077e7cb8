//go:build unix

package search

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
)

// An engine on an index that follows its path goes on when the file is
// replaced, though dimension, bits and number of centroids are others. Every
// answer is that of one of the files.
func TestEngineFollows(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "served.plaid")
	ctx := context.Background()
	type variant struct {
		ix    *index.Index
		query Query
		want  []Hit
	}
	variants := map[int]variant{} // by dimension
	for _, dim := range []int{8, 16, 24} {
		m := newMaker(7, dim, 6)
		ix := searchtest.Build(t, dim, m.Docs(fmt.Sprintf("dim%d-", dim), 40+dim, 5), &index.BuildOptions{Nbits: map[int]int{8: 2, 16: 4, 24: 1}[dim], Centroids: dim})
		q := m.query(4)
		q.Dim = dim
		res := search(t, on(t, ix, 1), q, Options{K: 5, Payload: true})
		variants[dim] = variant{ix, q, res.Hits}
	}
	_, err := variants[8].ix.BackupTo(ctx, path, nil)
	require.NoError(t, err)
	ix, err := index.Open(ctx, path, &index.Options{Follow: time.Millisecond})
	require.NoError(t, err)
	defer ix.Close()
	e := on(t, ix, 2)
	var stop atomic.Bool
	var wg sync.WaitGroup
	var answered [3]atomic.Int64
	for g := range 4 {
		wg.Go(func() {
			for i := g; !stop.Load(); i++ {
				dim := []int{8, 16, 24}[i%3]
				v := variants[dim]
				res, err := e.Search(ctx, v.query, Options{K: 5, Payload: true})
				if errors.Is(err, ErrQuery) { // another one is being served
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				answered[i%3].Add(1)
				if fmt.Sprint(res.Hits) != fmt.Sprint(v.want) {
					t.Errorf("%v, want %v", res.Hits, v.want)
					return
				}
			}
		})
	}
	rounds := 12
	if !effort.Long() {
		rounds = 6
	}
	for i := range rounds {
		dim := []int{16, 24, 8}[i%3]
		before := answered[dim/8-1].Load()
		_, err := variants[dim].ix.BackupTo(ctx, path, nil)
		require.NoError(t, err)
		for deadline := time.Now().Add(5 * time.Minute); answered[dim/8-1].Load() == before; time.Sleep(time.Millisecond) {
			require.False(t, t.Failed() || time.Now().After(deadline), "no answer of dimension %d", dim)
		}
	}
	stop.Store(true)
	wg.Wait()
}

// A device learns that the file is another one, though its generation has the
// same number, and nothing of a deletion.
func TestDeviceFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "served.plaid")
	ctx := context.Background()
	m := newMaker(7, 16, 6)
	source := searchtest.Build(t, 16, m.Docs("d", 40, 5), nil)
	_, err := source.BackupTo(ctx, path, nil)
	require.NoError(t, err)
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	defer ix.Close()
	var seen []uint64
	d := &scripted{hear: func(_ context.Context, c kernels.Corpus, _ []kernels.DeviceQuery) error {
		seen = append(seen, c.Lineage())
		return nil
	}}
	e := onDeviceOf(t, ix, d)
	search(t, e, m.query(3), Options{})
	_, err = source.BackupTo(ctx, path, nil)
	require.NoError(t, err)
	changed, err := ix.Refresh(ctx)
	require.NoError(t, err)
	require.True(t, changed)
	search(t, e, m.query(3), Options{})
	require.Len(t, seen, 3)
	require.Equal(t, seen[0], seen[1])
	require.NotEqual(t, seen[1], seen[2])

	live := onDeviceOf(t, source, d)
	_, _, err = source.Delete(ctx, []string{"d1"})
	require.NoError(t, err)
	search(t, live, m.query(3), Options{})
	require.NoError(t, source.Compact(ctx, nil))
	search(t, live, m.query(3), Options{})
	require.Equal(t, seen[3], seen[4])
	require.Equal(t, seen[4], seen[5], "a compaction keeps ordinals")
}
