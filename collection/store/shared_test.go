package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// sharedIndex builds an index of one document, and has its collection.
func sharedIndex(t *testing.T) (path string, c collection.Collection) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "own.plaid")
	_, err := index.Build(t.Context(), path, sourceOf(t, "first"), &index.BuildOptions{Nbits: 8})
	require.NoError(t, err)
	set, end, err := OpenShared(t.Context(), map[string]string{"own": path}, &Options{Derive: DeriveKeywords(nil), LockTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end()) })
	c, err = set.Get("own")
	require.NoError(t, err)
	return path, c
}

func sourceOf(t *testing.T, id string) vectors.Source {
	d := randomDoc(id, 3)
	src, err := vectors.FromDocuments(testDim, []vectors.Document{{ID: id, Tokens: d.Vectors, Payload: fmt.Appendf(nil, `{"text":%q}`, id)}})
	require.NoError(t, err)
	return src
}

// addTo changes the index as another process does.
func addTo(t *testing.T, path, id string) {
	t.Helper()
	ix, err := index.Open(t.Context(), path, &index.Options{Write: true, LockTimeout: time.Minute})
	require.NoError(t, err)
	_, err = ix.Add(t.Context(), sourceOf(t, id), nil)
	require.NoError(t, err)
	require.NoError(t, ix.Close())
}

// A file that is searched all the time can be changed by others, and what they have changed
// is found, by meaning and by words.
func TestShared(t *testing.T) {
	path, c := sharedIndex(t)
	query := randomDoc("query", 2)
	documents := func() int {
		v, err := c.Snapshot(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, v.Close()) }()
		found, err := v.Search(t.Context(), []search.Query{{Vectors: query.Vectors, Dim: testDim}}, search.Options{K: 100})
		require.NoError(t, err)
		return len(found[0].Hits)
	}
	require.Equal(t, 1, documents())
	var asking sync.WaitGroup
	var done atomic.Bool
	for range 3 {
		asking.Go(func() {
			for !done.Load() {
				v, err := c.Snapshot(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
				if err := v.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 3 {
		addTo(t, path, fmt.Sprint("added", i))
	}
	done.Store(true)
	asking.Wait()
	require.Equal(t, 4, documents())
	v, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	hits, err := v.(collection.Keywords).SearchKeywords(t.Context(), collection.KeywordQuery{Text: "added1", K: 5})
	require.NoError(t, err)
	require.Len(t, hits, 1)
	require.Equal(t, "added1", hits[0].ID)
	require.NoError(t, v.Close())
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, st.Documents)
}

// Keywords of a file that others change are made once, not each time that it is opened, and nothing
// is written beside it; and the file of keywords is anybody's while nothing is asked.
func TestSharedKeywords(t *testing.T) {
	path, _ := sharedIndex(t)
	read, made := 0, 0
	set, end, err := OpenShared(t.Context(), map[string]string{"own": path}, &Options{
		Derive: func(ctx context.Context, path string, write bool, _ collection.Config) (Derived, error) {
			require.False(t, write)
			made++
			return keywords.Open(ctx, keywords.Path(path), &keywords.Options{Progress: func(done, total int64) {
				if done == total {
					read += int(total)
				}
			}})
		},
	})
	require.NoError(t, err)
	c, err := set.Get("own")
	require.NoError(t, err)
	find := func(text string) int {
		v, err := c.Snapshot(t.Context())
		require.NoError(t, err)
		hits, err := v.(collection.Keywords).SearchKeywords(t.Context(), collection.KeywordQuery{Text: text, K: 5})
		require.NoError(t, err)
		require.NoError(t, v.Close())
		require.Eventually(t, func() bool { // it is closed
			s := c.(*sharedCollection)
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.file == nil
		}, time.Minute, time.Millisecond)
		return len(hits)
	}
	require.Equal(t, []int{1, 1}, []int{find("first"), find("first")})
	require.Equal(t, []int{1, 1}, []int{made, read})
	addTo(t, path, "second")
	require.Equal(t, []int{1, 1}, []int{find("first"), find("second")})
	require.Equal(t, 2, read)
	require.Equal(t, 1, made)
	require.NoFileExists(t, keywords.Path(path))
	require.NoError(t, end())
	require.Nil(t, c.(*sharedCollection).keptDerived)
}

// Nobody waits for a file of which nothing is asked, and what is asked waits for who has it.
func TestSharedTurns(t *testing.T) {
	path, c := sharedIndex(t)
	v, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	_, err = index.Open(t.Context(), path, &index.Options{Write: true})
	require.ErrorIs(t, err, storage.ErrLocked, "it is being read")
	require.NoError(t, v.Close())
	require.NoError(t, v.Close(), "twice is once")
	ix, err := index.Open(t.Context(), path, &index.Options{Write: true, LockTimeout: time.Minute})
	require.NoError(t, err)
	asked := make(chan error, 1)
	go func() {
		v, err := c.Snapshot(t.Context())
		if err == nil {
			err = v.Close()
		}
		asked <- err
	}()
	time.Sleep(20 * time.Millisecond) // for what would be wrong: that it does not wait
	require.Empty(t, asked)
	require.NoError(t, ix.Close())
	require.NoError(t, <-asked)

	_, err = c.Update(t.Context(), nil, collection.UpdateOptions{})
	require.ErrorIs(t, err, storage.ErrReadOnly)
	require.NoError(t, os.Rename(path, path+".away"))
	require.Eventually(t, func() bool {
		_, err = c.Stats(t.Context())
		return err != nil
	}, time.Minute, 10*time.Millisecond)
	require.ErrorIs(t, err, collection.ErrEmpty)
	require.NoError(t, os.Rename(path+".away", path))
	_, err = c.Stats(t.Context())
	require.NoError(t, err)
}

// What is wrong with a file is said at once, unless somebody is changing it.
func TestSharedMistakes(t *testing.T) {
	path, _ := sharedIndex(t)
	_, _, err := OpenShared(t.Context(), map[string]string{"none": path + "x"}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = OpenShared(t.Context(), map[string]string{"a/b": path}, nil)
	require.ErrorIs(t, err, collection.ErrName)
	ix, err := index.Open(t.Context(), path, &index.Options{Write: true, LockTimeout: time.Minute})
	require.NoError(t, err)
	set, end, err := OpenShared(t.Context(), map[string]string{"own": path}, nil)
	require.NoError(t, err)
	require.NoError(t, ix.Close())
	c, err := set.Get("own")
	require.NoError(t, err)
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, st.Documents)
	require.NoError(t, end())
	_, err = c.Snapshot(t.Context())
	require.ErrorIs(t, err, collection.ErrClosed)
	_, err = set.Get("other")
	require.ErrorIs(t, err, collection.ErrUnknown)
}
