package keywords

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/storage"
)

func TestNotSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.keywords")
	kw := open(t, path, nil)
	_, err := kw.Search(context.Background(), Query{Text: "x", K: 1})
	require.ErrorIs(t, err, ErrNotSynced)
	_, err = kw.Info()
	require.ErrorIs(t, err, ErrNotSynced)
	require.NoFileExists(t, path)
	require.NoError(t, kw.Close())
	require.NoError(t, kw.Close())
	_, err = kw.Search(context.Background(), Query{Text: "x", K: 1})
	require.ErrorIs(t, err, storage.ErrClosed)
	_, err = Open(context.Background(), t.TempDir(), nil)
	require.ErrorContains(t, err, "is a folder")
}

// Documents are found by their ids where the settings say so: those without a payload,
// and those of an index that was built anew with the same payloads, too. A file that was
// made without ids is made anew.
func TestIDs(t *testing.T) {
	kw, ix := made(t, Settings{}, []byte(`{"title":"red"}`), nil)
	require.Empty(t, search1(t, kw, Query{Text: "d1"}))
	path := ix.Path()
	require.NoError(t, kw.Close())
	kw = open(t, Path(path), &Options{Settings: &Settings{IDs: true, Fields: []string{"title"}}})
	syncWith(t, kw, ix)
	find := func(text string) []uint32 { return ordinals(search1(t, kw, Query{Text: text})) }
	require.Equal(t, []uint32{0}, find("d0"))
	require.Equal(t, []uint32{1}, find("D1"))
	require.Equal(t, []uint32{0}, find("red"))
	_, err := ix.Add(context.Background(), documents(t, 2, []byte(`{"title":"red"}`)), nil)
	require.NoError(t, err)
	syncWith(t, kw, ix)
	require.Equal(t, []uint32{2}, find("d2"))
	require.NoError(t, ix.Close())

	_, err = index.Build(context.Background(), path, documents(t, 1, []byte(`{"title":"red"}`), nil), &index.BuildOptions{Centroids: 1, Iterations: 1, Force: true, Threads: 1})
	require.NoError(t, err)
	again, err := index.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer again.Close()
	syncWith(t, kw, again)
	require.Empty(t, find("d0"))
	require.Equal(t, []uint32{0}, find("d1"))
	require.Equal(t, []uint32{1}, find("d2"))
	require.Equal(t, []uint32{0}, find("red"))
}

// A file of another version is made anew, and its settings stay.
func TestOtherVersion(t *testing.T) {
	settings := Settings{Tokenizer: Unicode61, Stemmer: English, Fields: []string{"title"}}
	kw, ix := made(t, settings, texts(`{"title": "running", "text": "cells"}`)...)
	require.NoError(t, kw.file.Update(func(tx *bolt.Tx) error {
		st, err := readState(tx)
		require.NoError(t, err)
		st.Version--
		return st.writeTo(tx.Bucket(rootBucket))
	}))
	require.NoError(t, kw.Close())
	kw = open(t, kw.Path(), nil)
	_, err := kw.Search(t.Context(), Query{Text: "runs", K: 1})
	require.ErrorIs(t, err, ErrNotSynced)
	syncWith(t, kw, ix)
	info, err := kw.Info()
	require.NoError(t, err)
	require.Equal(t, settings, info.Settings)
	require.Len(t, search1(t, kw, Query{Text: "runs"}), 1)
	require.Empty(t, search1(t, kw, Query{Text: "cells"}))
}

// A file keeps its settings; others make it anew.
func TestSettings(t *testing.T) {
	dir := ramDir(t)
	path := filepath.Join(dir, "x.plaid")
	ix := build(t, path, texts(`{"title": "running", "text": "cells"}`)...)
	find := func(kw *Index, text string) int { return len(search1(t, kw, Query{Text: text})) }
	kw := open(t, Path(path), &Options{Write: true, Settings: &Settings{Stemmer: English, Fields: []string{"title"}}})
	syncWith(t, kw, ix)
	require.Equal(t, []int{1, 0}, []int{find(kw, "runs"), find(kw, "cells")})
	require.NoError(t, kw.Close())
	kw = open(t, Path(path), nil)
	syncWith(t, kw, ix)
	require.Equal(t, []int{1, 0}, []int{find(kw, "runs"), find(kw, "cells")})
	require.NoError(t, kw.Close())
	kw = open(t, Path(path), &Options{Settings: &Settings{}})
	_, err := kw.Search(context.Background(), Query{Text: "x", K: 1})
	require.ErrorIs(t, err, ErrNotSynced)
	syncWith(t, kw, ix)
	require.Equal(t, []int{0, 1, 1}, []int{find(kw, "runs"), find(kw, "running"), find(kw, "cells")})
	info, err := kw.Info()
	require.NoError(t, err)
	require.Equal(t, Settings{Tokenizer: Unicode61}, info.Settings)
	require.Equal(t, 1, info.Docs)
	require.EqualValues(t, 2, info.Tokens)
}

// One process at a time writes; any number read, and write nothing next to the index.
func TestLocks(t *testing.T) {
	ctx, temporary := t.Context(), t.TempDir()
	temporaryDir(t, temporary)
	path := filepath.Join(ramDir(t), "x.plaid")
	ix := build(t, path, texts("red fox")...)
	owner := open(t, Path(path), &Options{Write: true})
	syncWith(t, owner, ix)
	_, err := Open(ctx, Path(path), nil)
	require.ErrorIs(t, err, storage.ErrLocked)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Open(ended, Path(path), &Options{LockTimeout: 1e12})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, owner.Close())
	before, err := os.ReadFile(Path(path))
	require.NoError(t, err)
	a, b := open(t, Path(path), nil), open(t, Path(path), nil)
	for _, kw := range []*Index{a, b} {
		syncWith(t, kw, ix)
		require.Len(t, search1(t, kw, Query{Text: "fox"}), 1)
		require.False(t, kw.Temporary())
	}
	_, err = Open(ctx, Path(path), &Options{Write: true})
	require.ErrorIs(t, err, storage.ErrLocked)

	_, err = ix.Add(ctx, documents(t, 1, texts("grey fox")...), nil)
	require.NoError(t, err)
	s := openSnapshot(t, ix)
	defer s.Close()
	require.ErrorIs(t, a.Sync(ended, s), context.Canceled)
	require.Len(t, search1(t, a, Query{Text: "fox"}), 1, "as before")
	syncWith(t, a, ix)
	require.True(t, a.Temporary())
	require.Len(t, search1(t, a, Query{Text: "fox"}), 2)
	require.Len(t, search1(t, b, Query{Text: "fox"}), 1, "as before")
	_, err = Open(ctx, Path(path), &Options{Write: true})
	require.ErrorIs(t, err, storage.ErrLocked, "by b")
	require.NoError(t, b.ReleaseFile())
	owner = open(t, Path(path), &Options{Write: true})
	_, err = b.Search(ctx, Query{Text: "fox", K: 1})
	require.ErrorIs(t, err, ErrNotSynced, "it rests")
	require.ErrorIs(t, b.Sync(ctx, s), storage.ErrLocked)
	after, err := os.ReadFile(Path(path))
	require.NoError(t, err)
	require.Equal(t, before, after, "nothing was written")
	syncWith(t, owner, ix)
	require.NoError(t, owner.Close())
	syncWith(t, b, ix)
	require.False(t, b.Temporary())
	require.Len(t, search1(t, b, Query{Text: "fox"}), 2)

	// A temporary file stays while it rests, and follows the index.
	require.NoError(t, a.ReleaseFile())
	require.Len(t, search1(t, a, Query{Text: "fox"}), 2)
	_, err = ix.Add(ctx, documents(t, 2, texts("blue fox")...), nil)
	require.NoError(t, err)
	syncWith(t, a, ix)
	require.Len(t, search1(t, a, Query{Text: "fox"}), 3)
	require.NoError(t, a.Close())
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

// temporaryDir has temporary files be made in a folder.
func temporaryDir(t *testing.T, dir string) {
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // of Windows
}

// Where no temporary file can be made, the error says how to do without.
func TestNoTemporaryFile(t *testing.T) {
	temporaryDir(t, filepath.Join(t.TempDir(), "nowhere"))
	path := filepath.Join(ramDir(t), "x.plaid")
	ix := build(t, path, texts("red fox")...)
	kw := open(t, Path(path), nil)
	s := openSnapshot(t, ix)
	defer s.Close()
	err := kw.Sync(t.Context(), s)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, Path(path)+" does not match the index")
	require.ErrorContains(t, err, "plaid keywords makes the file")
	owner := open(t, Path(path), &Options{Write: true})
	syncWith(t, owner, ix)
	require.NoError(t, owner.Close())
	syncWith(t, kw, ix)
	require.Len(t, search1(t, kw, Query{Text: "fox"}), 1)
}

// Of a file that was cut, or overwritten in part, searches say so or are right, and the next
// Sync makes it right; what a single bit does TestEveryBit tells.
func TestDamage(t *testing.T) {
	path := filepath.Join(ramDir(t), "x.plaid")
	rng := rand.New(rand.NewPCG(1, 2))
	var payloads [][]byte
	for i := range 300 {
		payloads = append(payloads, fmt.Appendf(nil, "common w%d w%d w%d", i%7, i%50, rng.IntN(300)))
	}
	ix := build(t, path, payloads...)
	kw := open(t, Path(path), &Options{Write: true})
	syncWith(t, kw, ix)
	queries := []Query{{Text: "common"}, {Text: "w1 w2 w3"}, {Text: `"common w3" w1*`, Mode: Expression}}
	want, good := shut(t, kw, queries)
	for round := range effort.Cases(10, 40) {
		bad := slices.Clone(good)
		if at := rng.IntN(len(bad) - 600); round%2 == 0 {
			bad = bad[:at]
		} else {
			for i := range 600 {
				bad[at+i] = byte(rng.Uint32())
			}
		}
		require.NoError(t, os.WriteFile(Path(path), bad, 0o666))
		kw := open(t, Path(path), nil)
		syncWith(t, kw, ix) // which believes a state that is intact
		for i, q := range queries {
			q.K = 1000
			hits, err := kw.Search(context.Background(), q)
			if errors.Is(err, ErrDamaged) {
				syncWith(t, kw, ix)
				hits, err = kw.Search(context.Background(), q)
			}
			require.NoError(t, err)
			require.Equal(t, want[i], hits)
		}
		require.NoError(t, kw.Close())
		require.NoError(t, os.Remove(Path(path)))
	}
}

// A list that is damaged is found when it is read, and mended by the next Sync of the
// same state.
func TestDamagedList(t *testing.T) {
	path := filepath.Join(ramDir(t), "x.plaid")
	var payloads [][]byte
	for i := range 2000 {
		payloads = append(payloads, fmt.Appendf(nil, "common w%d", i%7))
	}
	ix := build(t, path, payloads...)
	for _, write := range []bool{true, false} {
		kw := open(t, Path(path), &Options{Write: true, Settings: &Settings{Stemmer: English}})
		syncWith(t, kw, ix)
		require.NoError(t, kw.Close())
		db, err := bolt.Open(Path(path), 0o666, nil)
		require.NoError(t, err)
		flipped := 0
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			segments := tx.Bucket(bucketSegments)
			return segments.ForEachBucket(func(k []byte) error {
				b := segments.Bucket(k)
				key := prefixedKey(valuePrefix, []byte("common"))
				v := slices.Clone(b.Get(key))
				if v == nil {
					return nil
				}
				flipped++
				v[len(v)/3] ^= 4
				return b.Put(key, v)
			})
		}))
		require.NoError(t, db.Close())
		require.NotZero(t, flipped)
		kw = open(t, Path(path), &Options{Write: write})
		syncWith(t, kw, ix)
		require.Len(t, search1(t, kw, Query{Text: "w3", K: 5}), 5)
		_, err = kw.Search(context.Background(), Query{Text: "common", K: 5})
		require.ErrorIs(t, err, ErrDamaged)
		require.NotErrorIs(t, err, storage.ErrCorrupt, "the index is not")
		syncWith(t, kw, ix)
		require.Len(t, search1(t, kw, Query{Text: "common", K: 5}), 5)
		info, err := kw.Info()
		require.NoError(t, err)
		require.Equal(t, English, info.Settings.Stemmer, "as before")
		require.NoError(t, kw.Close())
	}
}

// Searches go on beside syncs, each of one state of the index.
func TestSearchesBesideSyncs(t *testing.T) {
	path := filepath.Join(ramDir(t), "x.plaid")
	ix := build(t, path, texts("fox", "dog")...)
	for _, write := range []bool{true, false} {
		kw := open(t, Path(path), &Options{Write: write, Memory: 1})
		syncWith(t, kw, ix)
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					hits, err := kw.Search(context.Background(), Query{Text: "fox", K: 1000})
					if err != nil || len(hits)%2 != 1 {
						t.Errorf("%d hits, %v", len(hits), err)
						return
					}
				}
			})
		}
		for range 5 {
			_, err := ix.Add(context.Background(), documents(t, snapLen(t, ix), texts("red fox", "grey fox")...), nil)
			require.NoError(t, err)
			syncWith(t, kw, ix)
		}
		close(stop)
		readers.Wait()
		require.NoError(t, kw.Close())
	}
}

func snapLen(t *testing.T, ix *index.Index) int {
	s := openSnapshot(t, ix)
	defer s.Close()
	return int(s.State().Docs)
}

// What an interrupted Sync leaves is neither shown nor kept.
func TestInterrupted(t *testing.T) {
	path := filepath.Join(ramDir(t), "x.plaid")
	ix := build(t, path, texts("fox")...)
	ctx, cancel := context.WithCancel(context.Background())
	o := Options{Write: true, Memory: 1}
	kw := open(t, Path(path), &o)
	syncWith(t, kw, ix)
	var more []string
	for i := range 200 {
		more = append(more, fmt.Sprintf("fox %d", i))
	}
	_, err := ix.Add(context.Background(), documents(t, 1, texts(more...)...), nil)
	require.NoError(t, err)
	kw.options.Progress = func(done, total int64) { cancel() }
	s := openSnapshot(t, ix)
	defer s.Close()
	require.ErrorIs(t, kw.Sync(ctx, s), context.Canceled)
	kw.options.Progress = nil
	require.Len(t, search1(t, kw, Query{Text: "fox"}), 1)
	require.ErrorIs(t, kw.Sync(ctx, s), context.Canceled)
	require.NoError(t, kw.Sync(context.Background(), s))
	require.Len(t, search1(t, kw, Query{Text: "fox"}), 201)
	named := map[uint32]bool{}
	require.NoError(t, kw.withSnapshot(func(tx *bolt.Tx, p *snapshot) error {
		for _, s := range p.segments {
			named[s.ID] = true
		}
		return tx.Bucket(bucketSegments).ForEachBucket(func(k []byte) error {
			require.True(t, named[uint32(k[0])<<24|uint32(k[1])<<16|uint32(k[2])<<8|uint32(k[3])])
			return nil
		})
	}))
}

// Many documents in blocks, a filter that skips most of them.
func TestBlocksAndFilters(t *testing.T) {
	const n = 3000
	var payloads [][]byte
	var docs []oracleDoc
	for i := range n {
		words := []string{"all"}
		for d := 2; d < 40; d++ {
			if i%d == 0 {
				words = append(words, fmt.Sprintf("by%d", d))
			}
		}
		payloads = append(payloads, []byte(strings.Join(words, " ")))
		docs = append(docs, oracleDoc{uint32(i), [][]string{words}})
	}
	kw, _ := made(t, Settings{}, payloads...)
	parts := []part{plainPart("all"), plainPart("by3"), plainPart("by37")}
	few, run := roaring.BitmapOf(0, 37, 111, 128, 129, 1111, 2997, 5000), roaring.New()
	run.AddRange(1000, 1300)
	for _, filter := range []*roaring.Bitmap{nil, few, run} {
		require.Equal(t, oracle(t, docs, parts, DefaultBM25, filter, 100), search1(t, kw, Query{Text: "all by3 by37", K: 100, Filter: filter}))
	}
}

// descriptors is how many files this process has open; 0 where that is not to be known.
func descriptors() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}

// shut closes a file, and returns what queries found in it, and its bytes.
func shut(t *testing.T, kw *Index, queries []Query) (found [][]ScoredDocument, file []byte) {
	for _, q := range queries {
		found = append(found, search1(t, kw, q))
	}
	require.NoError(t, kw.Close())
	file, err := os.ReadFile(kw.path)
	require.NoError(t, err)
	return found, file
}

// Whatever bit of a file is flipped, a search says that the file is damaged or has the
// same answers as before, and a Sync makes it right. One bit of some is tried, or, with
// PLAID_TEST_FLIPS=all in the environment, every one.
func TestEveryBit(t *testing.T) {
	smallLimits(t)
	path := filepath.Join(ramDir(t), "x.plaid")
	var payloads [][]byte
	for i := range 12 {
		payloads = append(payloads, fmt.Appendf(nil, "common w%d w%d w%d", i%2, i%5, i))
	}
	ix := build(t, path, payloads...)
	kw := open(t, Path(path), &Options{Write: true, Memory: 1000})
	syncWith(t, kw, ix)
	_, _, err := ix.Delete(context.Background(), []string{"d3"})
	require.NoError(t, err)
	syncWith(t, kw, ix)
	_, err = ix.Add(context.Background(), documents(t, 12, texts("common w0 w2 w12", "w0 w1")...), nil)
	require.NoError(t, err)
	syncWith(t, kw, ix)
	queries := []Query{{Text: "common w1 w12"}, {Text: `"common w0" +w1* -w11`, Mode: Expression}}
	want, good := shut(t, kw, queries)

	stride := 997
	if os.Getenv("PLAID_TEST_FLIPS") == "all" {
		stride = 1
	}
	open, met, wrong := descriptors(), map[string]int{}, 0
	for bit := 0; bit < 8*len(good); bit += stride {
		for _, write := range []bool{false, true} {
			if err := os.WriteFile(Path(path), good, 0o666); err != nil { // in the same file, the lock of which must be free
				t.Fatal(err)
			}
			flip(t, Path(path), bit)
			kw, err := Open(context.Background(), Path(path), &Options{Write: write})
			require.NoError(t, err, "bit %d", bit)
			find := func() error {
				for i, q := range queries {
					q.K = 1000
					hits, err := kw.Search(context.Background(), q)
					if err != nil {
						return err
					}
					if fmt.Sprint(want[i]) != fmt.Sprint(hits) {
						wrong++
						t.Errorf("bit %d: %q: want %v, have %v", bit, q.Text, want[i], hits)
					}
				}
				return nil
			}
			switch err := find(); {
			case err == nil:
				met["found"]++
			case errors.Is(err, ErrDamaged):
				met["damaged"]++
			default:
				require.ErrorIs(t, err, ErrNotSynced, "bit %d", bit)
				met["not there"]++
			}
			syncWith(t, kw, ix)
			if err := find(); err != nil {
				require.ErrorIs(t, err, ErrDamaged, "bit %d", bit)
				met["damaged after a Sync"]++
				syncWith(t, kw, ix)
				require.NoError(t, find(), "bit %d", bit)
			}
			require.NoError(t, kw.Close())
			require.Less(t, wrong, 5)
		}
	}
	t.Logf("%d bytes: %v", len(good), met)
	require.NotZero(t, met["damaged"])
	require.NotZero(t, met["not there"])
	require.Equal(t, open, descriptors())
}
