package search

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/objectstest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/storage/objects"
)

// far is a store that answers late, and so many bytes a second: of all answers together, or of each.
type far struct {
	objects.Store
	delay time.Duration
	rate  float64 // 0: no limit
	each  bool
	mu    sync.Mutex
	free  time.Time // when the line is
	gets  atomic.Int64
	bytes atomic.Int64
}

func (f *far) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, objects.Entry, error) {
	f.gets.Add(1)
	time.Sleep(f.delay)
	r, e, err := f.Store.Get(ctx, name, from, length)
	if err != nil {
		return nil, e, err
	}
	return &farBody{r, f, time.Now()}, e, nil
}

type farBody struct {
	io.ReadCloser
	f    *far
	free time.Time
}

func (b *farBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), 64<<10)])
	b.f.bytes.Add(int64(n))
	if b.f.rate == 0 {
		return n, err
	}
	took := time.Duration(float64(n) / b.f.rate * float64(time.Second))
	free := &b.free
	if !b.f.each {
		b.f.mu.Lock()
		free = &b.f.free
	}
	if now := time.Now(); free.Before(now) {
		*free = now
	}
	*free = free.Add(took)
	until := *free
	if !b.f.each {
		b.f.mu.Unlock()
	}
	if wait := time.Until(until); wait > time.Millisecond {
		time.Sleep(wait)
	}
	return n, err
}

// BenchmarkCold searches an index file in a store for the first time: while it is fetched, and after. PLAID_COLD
// names the file; without it the file is a small one. With PLAID_S3_SERVER (package objectstest) it is in that, too. Questions are tokens of documents of the file, moved a little.
func BenchmarkCold(b *testing.B) {
	path := os.Getenv("PLAID_COLD")
	if path == "" {
		m := newMaker(1, 128, 300)
		path = filepath.Join(b.TempDir(), "whole.plaid")
		_, err := index.Build(b.Context(), path, searchtest.Source(b, 128, m.Docs("d", 5000, 40)), &index.BuildOptions{Centroids: 2048, Iterations: 1})
		require.NoError(b, err)
	}
	ix, err := index.Open(b.Context(), path, nil)
	require.NoError(b, err)
	snap, err := ix.Snapshot()
	require.NoError(b, err)
	m := searchtest.New(3, snap.Dim(), 1)
	var qs []Query
	for len(qs) < 8 {
		v, err := snap.Vectors(rand.Uint32N(snap.State().Docs))
		if err != nil || len(v) == 0 {
			continue
		}
		var q Query
		for i := range 32 {
			t := i * len(v) / 32 / snap.Dim() * snap.Dim()
			q.Vectors = append(q.Vectors, m.Vector(v[t:t+snap.Dim()], 0.5)...)
		}
		qs = append(qs, q)
	}
	o := Options{K: 10, Payload: true}
	e, err := New(b.Context(), ix, nil)
	require.NoError(b, err)
	want := make([]*Result, len(qs))
	for i, q := range qs {
		want[i] = search(b, e, q, o)
	}
	st := want[0].Stats
	b.Logf("%d documents, %d tokens, %d centroids; candidates %d, approximate %d, exact %d", snap.Len(), snap.State().Tokens,
		snap.Header().Centroids, st.Candidates, st.ApproxDocs, st.ExactDocs)
	_, sizes, err := snap.Inspect(b.Context())
	require.NoError(b, err)
	b.Logf("%+v", sizes)
	require.NoError(b, e.Close())
	require.NoError(b, snap.Close())
	require.NoError(b, ix.Close())

	info, err := os.Stat(path)
	require.NoError(b, err)
	type named struct {
		name string
		s    objects.Store
	}
	folder, err := objects.Open(b.TempDir())
	require.NoError(b, err)
	stores := []named{{"folder", folder}}
	if os.Getenv("PLAID_S3_SERVER") != "" {
		_, _, address := objectstest.OpenServer(b)
		s3, err := objects.Open(address)
		require.NoError(b, err)
		stores = append(stores, named{"s3", s3})
	}
	for _, s := range stores {
		f, err := os.Open(path)
		require.NoError(b, err)
		_, err = s.s.Put(b.Context(), "file", f, info.Size())
		require.NoError(b, err)
		require.NoError(b, f.Close())
	}
	for _, line := range []struct {
		name  string
		delay time.Duration
		rate  float64
		each  bool
	}{
		{"near", 0, 0, false},
		{"30ms,100MB/s", 30 * time.Millisecond, 100e6, false},
		{"30ms,100MB/s each", 30 * time.Millisecond, 100e6, true},
		{"30ms,1GB/s", 30 * time.Millisecond, 1e9, false},
	} {
		for _, s := range stores {
			for _, way := range []string{"ranges", "whole"} {
				b.Run(fmt.Sprintf("%s/%s/%s", line.name, s.name, way), func(b *testing.B) {
					var opened, first, later, full []float64
					for b.Loop() {
						f := &far{Store: s.s, delay: line.delay, rate: line.rate, each: line.each}
						t := coldOnce(b, f, info.Size(), way == "ranges", qs, o, want)
						opened, first = append(opened, t[0]), append(first, t[1])
						later, full = append(later, t[2]), append(full, t[3])
						b.ReportMetric(t[4], "gets")
						b.ReportMetric(t[5], "first-MB")
						b.ReportMetric(t[6], "opened-MB")
					}
					for name, of := range map[string][]float64{"opened-s": opened, "first-s": first, "later-ms": later, "full-s": full} {
						slices.Sort(of)
						b.ReportMetric(of[len(of)/2], name)
					}
				})
			}
		}
	}
}

// coldOnce returns seconds until the file is open, until the first search is answered, milliseconds that a later
// one takes, seconds until all is there, requests until the first answer, and megabytes until then and until it was open.
func coldOnce(b *testing.B, s *far, size int64, ranges bool, qs []Query, o Options, want []*Result) (t [7]float64) {
	path := filepath.Join(b.TempDir(), "part.plaid")
	begin := time.Now()
	file, err := os.Create(path)
	require.NoError(b, err)
	defer file.Close()
	require.NoError(b, file.Truncate(size))
	f := objects.NewFetcher(s, "file", size, file)
	options := &index.Options{}
	if ranges {
		options.Source = f
	} else {
		require.NoError(b, f.Fill(b.Context()))
		t[3] = time.Since(begin).Seconds()
	}
	ix, err := index.Open(b.Context(), path, options)
	require.NoError(b, err)
	t[0], t[6] = time.Since(begin).Seconds(), float64(s.bytes.Load())/1e6
	e, err := New(b.Context(), ix, nil)
	require.NoError(b, err)
	var filled sync.WaitGroup
	if ranges {
		filled.Go(func() {
			if err := f.Fill(b.Context()); err != nil {
				b.Error(err)
			}
			t[3] = time.Since(begin).Seconds()
		})
	}
	require.Equal(b, named(want[0].Hits), named(search(b, e, qs[0], o).Hits))
	t[1], t[4], t[5] = time.Since(begin).Seconds(), float64(s.gets.Load()), float64(s.bytes.Load())/1e6
	again := time.Now()
	for i, q := range qs[1:] {
		require.Equal(b, named(want[1+i].Hits), named(search(b, e, q, o).Hits))
	}
	t[2] = time.Since(again).Seconds() * 1e3 / float64(len(qs)-1)
	filled.Wait()
	require.NoError(b, e.Close())
	require.NoError(b, ix.Close())
	require.NoError(b, os.Remove(path))
	return t
}
