package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/collectiontest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

const testDim = 16

// randomDoc is a document that follows from its id and version.
func randomDoc(id string, version uint64) collection.DocumentInput {
	rng := rand.New(rand.NewPCG(version, uint64(len(id))))
	for _, b := range []byte(id) {
		rng = rand.New(rand.NewPCG(rng.Uint64(), uint64(b)))
	}
	d := collection.DocumentInput{ID: id, Dim: testDim, Vectors: make([]float32, (1+rng.IntN(6))*testDim)}
	for i := range d.Vectors {
		d.Vectors[i] = float32(rng.NormFloat64())
	}
	d.Metadata = fmt.Appendf(nil, `{"version":%d,"even":%t}`, version, version%2 == 0)
	return d
}

func openStore(t *testing.T, dir string, o *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close(context.Background()))
		paths, err := filepath.Glob(filepath.Join(dir, "*", indexFile))
		require.NoError(t, err)
		for _, path := range paths {
			requireReleased(t, path)
		}
	})
	return s
}

// requireReleased fails if an index file is still open although its store, its index and all views are closed.
func requireReleased(t *testing.T, path string) {
	t.Helper()
	f, err := storage.Open(context.Background(), path, storage.Options{Write: true})
	require.NotErrorIs(t, err, storage.ErrLocked)
	if err == nil { // a test may have damaged it
		require.NoError(t, f.Close())
	}
}

func declare(t *testing.T, s *Store, name string, cfg collection.Config) *Collection {
	t.Helper()
	c, err := s.Create(t.Context(), name, cfg)
	require.NoError(t, err)
	return c
}

func view(t *testing.T, c *Collection) *Snapshot {
	t.Helper()
	v, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

// all are the ordinals of all documents.
func all(t *testing.T, v *Snapshot) []uint32 {
	t.Helper()
	b, err := selectDocuments(t.Context(), v.snap, &collection.Selection{})
	require.NoError(t, err)
	return b.ToArray()
}

// finds tells whether a search for a document's own vectors finds it first.
func finds(t *testing.T, c *Collection, d collection.DocumentInput) bool {
	t.Helper()
	v, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	defer v.Close()
	rs, err := v.Search(t.Context(), []search.Query{{Vectors: d.Vectors, Dim: d.Dim}}, search.Options{K: 1})
	require.NoError(t, err)
	r := rs[0]
	return len(r.Hits) == 1 && r.Hits[0].ID == d.ID && r.Hits[0].Score > .99*float32(len(d.Vectors)/d.Dim)
}

// Documents without ids are named by their numbers, as far as these are free, and all is there
// when the folder is opened again.
func TestFromNothing(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, nil)
	require.Empty(t, s.Names())
	c := declare(t, s, "docs", collection.Config{})
	_, err := c.Delete(t.Context(), collection.Selection{IDs: []string{"x"}})
	require.ErrorIs(t, err, collection.ErrEmpty)
	one, unnamed := randomDoc("one", 1), randomDoc("", 3)
	require.NoError(t, update(c, collection.UpdateOptions{}, one)().err)
	require.True(t, finds(t, c, one))
	require.ErrorIs(t, update(c, collection.UpdateOptions{}, one)().err, index.ErrDuplicateID)
	for _, step := range []struct {
		docs []collection.DocumentInput
		ids  []string
	}{
		{[]collection.DocumentInput{unnamed, randomDoc("2", 4)}, []string{"1", "2"}},
		{[]collection.DocumentInput{unnamed, randomDoc("4", 4)}, []string{"3", "4"}},
		{[]collection.DocumentInput{randomDoc("6", 4), unnamed}, []string{"6", "6-1"}},
	} {
		r := update(c, collection.UpdateOptions{}, step.docs...)()
		require.NoError(t, r.err)
		require.Equal(t, step.ids, r.receipt.IDs)
	}
	_, err = c.Delete(t.Context(), collection.Selection{Numbers: []uint64{0}})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))

	s = openStore(t, dir, nil)
	c, err = s.Get("docs")
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2, 3, 4, 5, 6}, all(t, view(t, c)))
	require.NoError(t, c.Verify(t.Context()))
}

func TestModel(t *testing.T) {
	s := openStore(t, t.TempDir(), &Options{Growth: smallGrowth})
	c := declare(t, s, "docs", collection.Config{})
	mine, other := &storage.Model{Name: "mine"}, &storage.Model{Name: "other"}
	require.NoError(t, update(c, collection.UpdateOptions{Model: mine}, randomDoc("a", 1))().err)
	require.ErrorIs(t, update(c, collection.UpdateOptions{Model: other}, randomDoc("b", 1))().err, storage.ErrModel)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("b", 1))().err)
	_, err := c.Retrain(t.Context())
	require.NoError(t, err)
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, mine, st.Model)
	require.ErrorIs(t, update(c, collection.UpdateOptions{Model: &storage.Model{}}, randomDoc("c", 1))().err, collection.ErrConfig)
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	s := openStore(t, data, nil)
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`, ".hidden", "end.", "ä", "a b", "a%2fb", "\x00", string(make([]byte, 300))} {
		_, err := s.Create(t.Context(), name, collection.Config{})
		require.ErrorIs(t, err, collection.ErrName, "%q", name)
		_, err = s.Remove(t.Context(), name)
		require.ErrorIs(t, err, collection.ErrName, "%q", name)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	for _, name := range []string{"a", "A-1_x.y", "0", "-"} {
		declare(t, s, name, collection.Config{})
	}
	require.Equal(t, []string{"-", "0", "A-1_x.y", "a"}, s.Names())
}

// Who is told that a collection exists finds it, also while another declares it.
func TestDeclaredTogether(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	for i := range 20 {
		name, found := fmt.Sprint("c", i), make(chan error)
		for range 4 {
			go func() {
				_, err := s.Create(t.Context(), name, collection.Config{})
				if err == nil || errors.Is(err, collection.ErrExists) {
					_, err = s.Get(name)
				}
				found <- err
			}()
		}
		for range 4 {
			require.NoError(t, <-found)
		}
	}
}

func TestBadDocuments(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "docs", collection.Config{})
	good := randomDoc("good", 1)
	nan := randomDoc("nan", 1)
	nan.Vectors = append([]float32(nil), nan.Vectors...)
	nan.Vectors = append(nan.Vectors, make([]float32, testDim)...)
	nan.Vectors[len(nan.Vectors)-3] *= float32(0)
	nan.Vectors[len(nan.Vectors)-3] /= nan.Vectors[len(nan.Vectors)-3]
	meta := func(m string) collection.DocumentInput { d := randomDoc("meta", 1); d.Metadata = []byte(m); return d }
	for name, x := range map[string]struct {
		doc  collection.DocumentInput
		want error
	}{
		"dimension":  {collection.DocumentInput{ID: "x", Dim: 3, Vectors: []float32{1, 2, 3}}, index.ErrDimension},
		"dimension0": {collection.DocumentInput{ID: "x", Vectors: []float32{1, 2, 3}}, vectors.ErrShape},
		"shape":      {collection.DocumentInput{ID: "x", Dim: testDim, Vectors: []float32{1, 2, 3}}, vectors.ErrShape},
		"nan":        {nan, vectors.ErrValue},
		"twice":      {good, index.ErrDuplicateID},
		"long id":    {randomDoc(string(make([]byte, 5000)), 1), vectors.ErrID},
		"array":      {meta(`[1]`), collection.ErrMetadata},
		"broken":     {meta(`{"a":`), collection.ErrMetadata},
		"reserved":   {meta(`{"_subset_":1}`), collection.ErrMetadata},
		"other id":   {meta(`{"_id":"y"}`), collection.ErrMetadata},
		"key twice":  {meta(`{"a":1,"a":2}`), collection.ErrMetadata},
		"large":      {meta(`{"a":"` + strings.Repeat("a", collection.MaxMetadata) + `"}`), collection.ErrMetadata},
	} {
		_, err := c.Update(t.Context(), []collection.DocumentInput{good, x.doc}, collection.UpdateOptions{Replace: true})
		require.ErrorIs(t, err, x.want, name)
		var de *collection.DocumentError
		require.ErrorAs(t, err, &de, name)
		require.Equal(t, 1, de.Document, name)
		if name == "nan" {
			require.Equal(t, len(nan.Vectors)/testDim-1, de.Token)
		}
	}
	_, err := c.Snapshot(t.Context())
	require.ErrorIs(t, err, collection.ErrEmpty, "nothing of them is stored")
	_, err = c.Update(t.Context(), []collection.DocumentInput{meta(`{ "_id" : "meta", "b": {"c":[1]}, "d":"x" }`), randomDoc("plain", 0)}, collection.UpdateOptions{})
	require.NoError(t, err)
	m, err := view(t, c).snap.Payload(0)
	require.NoError(t, err)
	require.Equal(t, `{"b":{"c":[1]},"d":"x"}`, string(m))
}

// A collection that was declared for something that failed goes, unless somebody has
// put documents into it.
func TestUndeclare(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "a", collection.Config{})
	require.NoError(t, s.removeEmpty(t.Context(), c))
	_, err := s.Get("a")
	require.ErrorIs(t, err, collection.ErrUnknown)
	require.NoError(t, s.removeEmpty(t.Context(), c), "it is gone")
	_, err = c.Update(t.Context(), []collection.DocumentInput{randomDoc("x", 3)}, collection.UpdateOptions{})
	require.ErrorIs(t, err, collection.ErrUnknown)

	c = declare(t, s, "a", collection.Config{})
	_, err = c.Update(t.Context(), []collection.DocumentInput{randomDoc("x", 3)}, collection.UpdateOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, s.removeEmpty(t.Context(), c), collection.ErrExists)
	_, err = c.Update(t.Context(), []collection.DocumentInput{randomDoc("y", 3)}, collection.UpdateOptions{})
	require.NoError(t, err)
}

func TestSet(t *testing.T) {
	collectiontest.Run(t, openStore(t, t.TempDir(), &Options{Derive: DeriveKeywords(nil)}).Catalog())
}

// A deletion that finds nothing writes nothing: it does not show that there is room again.
func TestADeletionOfNothingShowsNoRoom(t *testing.T) {
	s := openStore(t, t.TempDir(), nil)
	c := declare(t, s, "docs", collection.Config{})
	_, err := c.Update(t.Context(), []collection.DocumentInput{randomDoc("a", 1), randomDoc("b", 2)}, collection.UpdateOptions{})
	require.NoError(t, err)
	isFull := func() bool {
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		s.disk.free = math.MaxUint64 - minFreed // room is not seen by itself
		return s.disk.full
	}
	s.noteDisk(fmt.Errorf("a write: %w", syscall.ENOSPC), true)
	require.True(t, isFull())
	for id, full := range map[string]bool{"none": true, "a": false} {
		s.noteDisk(syscall.ENOSPC, true)
		_, err = c.Delete(t.Context(), collection.Selection{IDs: []string{id}})
		require.NoError(t, err)
		require.Equal(t, full, isFull(), id)
	}
}

// A change whose condition takes long ends with who asked for it, as long as nothing is
// changed: the writer goes on with the next one.
func TestConditionsOfLeavers(t *testing.T) {
	c := declare(t, openStore(t, t.TempDir(), nil), "docs", collection.Config{})
	var docs []collection.DocumentInput
	for i := range 500 {
		d := randomDoc(fmt.Sprint("d", i), 1)
		d.Metadata = json.RawMessage(`{"t":"` + strings.Repeat("cats and dogs ", 200) + `","n":1}`)
		docs = append(docs, d)
	}
	_, err := c.Update(t.Context(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	// This is a minute of work.
	expr, err := condition.Parse(strings.Repeat(`t LIKE '%a%b%c%d%e%zzz' OR `, 4000) + `n = -1`)
	require.NoError(t, err)
	where, err := expr.Bind()
	require.NoError(t, err)
	long := collection.Selection{Where: where}
	for name, change := range map[string]func(ctx context.Context) (index.Affected, error){
		"delete": func(ctx context.Context) (index.Affected, error) { return c.Delete(ctx, long) },
		"metadata update": func(ctx context.Context) (index.Affected, error) {
			return c.UpdateMetadata(ctx, long, map[string]json.RawMessage{"n": json.RawMessage("2")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { _, err := change(ctx); left <- err }()
			require.Eventually(t, func() bool { // it has begun
				c.queue.mu.Lock()
				defer c.queue.mu.Unlock()
				return c.queue.running > 0
			}, time.Minute, time.Millisecond)
			leave()
			require.ErrorIs(t, <-left, context.Canceled, "the writer went on to the end")
			n, err := c.Delete(t.Context(), collection.Selection{IDs: []string{"none"}})
			require.NoError(t, err)
			require.Zero(t, n)
		})
	}
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 500, st.Documents)
}

// Collections that are only declared cost a folder each and no goroutine, also when the store is
// opened again; each can be written to, dropped and closed.
func TestIdleCollectionsAreCheap(t *testing.T) {
	ctx, dir, before := context.Background(), t.TempDir(), runtime.NumGoroutine()
	st, err := Open(ctx, dir, nil)
	require.NoError(t, err)
	for i := range 50 {
		_, err := st.Create(ctx, fmt.Sprint("c", i), collection.Config{})
		require.NoError(t, err)
	}
	require.Less(t, runtime.NumGoroutine()-before, 10)
	require.NoError(t, st.Close(ctx))
	st, err = Open(ctx, dir, nil)
	require.NoError(t, err)
	require.Len(t, st.Names(), 50)
	require.Less(t, runtime.NumGoroutine()-before, 10)
	written, err := st.Get("c1")
	require.NoError(t, err)
	_, err = written.Update(ctx, []collection.DocumentInput{randomDoc("a", 1)}, collection.UpdateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"c1", "c2"} {
		existed, err := st.Remove(ctx, name)
		require.NoError(t, err)
		require.True(t, existed)
	}
	idle, err := st.Get("c3")
	require.NoError(t, err)
	require.NoError(t, st.Close(ctx))
	_, err = idle.Update(ctx, []collection.DocumentInput{randomDoc("a", 1)}, collection.UpdateOptions{})
	require.ErrorIs(t, err, collection.ErrClosed)
}
