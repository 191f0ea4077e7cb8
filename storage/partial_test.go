package storage_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/partly"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// partialFile is an index whose trees of ids, payloads and field runs have branches, with deleted documents
// and several segments.
func partialFile(t testing.TB, docs, tokens int) string {
	t.Helper()
	m := searchtest.New(5, 16, 12)
	some := func(prefix string, n int) []vectors.Document {
		all := m.Docs(prefix, n, tokens)
		for i := range all {
			all[i].Payload = fmt.Appendf(nil, `{"n":%d,"text":%q,"x":%q}`, i, bytes.Repeat([]byte{'a' + byte(i%20)}, 100+i%7*900), fmt.Sprint(prefix, i))
		}
		return all
	}
	path := filepath.Join(t.TempDir(), "whole.plaid")
	_, err := index.Build(t.Context(), path, searchtest.Source(t, 16, some("a", docs)), &index.BuildOptions{Centroids: 600, Iterations: 2})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, &index.Options{Write: true})
	require.NoError(t, err)
	for i := range 3 {
		_, err := ix.Add(t.Context(), searchtest.Source(t, 16, some(fmt.Sprintf("later%d-", i), docs/20)), nil)
		require.NoError(t, err)
	}
	_, _, err = ix.Delete(t.Context(), []string{"a1", "a77", "later1-3"})
	require.NoError(t, err)
	require.NoError(t, ix.Close())
	return path
}

// reads are calls that read an index, each with what it gives.
var reads = map[string]func(v *storage.Snapshot, n uint32) (any, error){
	"codes": func(v *storage.Snapshot, n uint32) (any, error) {
		ch, err := v.Chunk(int(n)%v.Chunks(), storage.Codes)
		if err != nil {
			return nil, err
		}
		return bytes.Clone(ch.Codes), nil
	},
	"chunk": func(v *storage.Snapshot, n uint32) (any, error) {
		ch, err := v.Chunk(int(n)%v.Chunks(), storage.All)
		if err != nil {
			return nil, err
		}
		return [3][]byte{bytes.Clone(ch.Codes), bytes.Clone(ch.Factors), bytes.Clone(ch.Residuals)}, nil
	},
	"rows": func(v *storage.Snapshot, n uint32) (any, error) {
		i, doc, _ := v.Locate(n)
		ch, err := v.ChunkFor(i, storage.All, uint32(doc))
		if err != nil {
			return nil, err
		}
		lo, hi, row := int(ch.Offsets[doc]), int(ch.Offsets[doc+1]), v.Codec().RowBytes()
		return [2][]byte{bytes.Clone(ch.Factors[2*lo : 2*hi]), bytes.Clone(ch.Residuals[row*lo : row*hi])}, nil
	},
	"postings": func(v *storage.Snapshot, n uint32) (any, error) {
		p, err := v.Postings(int(n)%v.Segments(), n%uint32(v.Header().Centroids))
		return bytes.Clone(p), err
	},
	"id":      func(v *storage.Snapshot, n uint32) (any, error) { return v.ID(n), nil },
	"payload": func(v *storage.Snapshot, n uint32) (any, error) { return v.Payload(n) },
	"ordinal": func(v *storage.Snapshot, n uint32) (any, error) {
		ordinal, ok, err := v.Ordinal(v.ID(n))
		return [2]any{ordinal, ok}, err
	},
	"field": func(v *storage.Snapshot, n uint32) (any, error) {
		runs := v.State().FieldRuns
		get := v.FieldRun(runs[int(n)%len(runs)].ID)
		var all [][]byte
		for _, key := range []string{"r", "fn", "fx", "ftext"} {
			value, err := get([]byte(key))
			if err != nil {
				return nil, err
			}
			all = append(all, bytes.Clone(value))
		}
		return all, nil
	},
	"pages": func(v *storage.Snapshot, n uint32) (any, error) {
		p, err := v.Pages()
		return [2]int{p.Free, p.Page}, err
	},
	"applied":  func(v *storage.Snapshot, n uint32) (any, error) { return v.Applied() },
	"defaults": func(v *storage.Snapshot, n uint32) (any, error) { return v.Defaults() },
}

// wholeReads read everything.
var wholeReads = map[string]func(v *storage.Snapshot) (any, error){
	"absent": func(v *storage.Snapshot) (any, error) {
		_, ok, err := v.Ordinal("nothing of this name")
		return ok, err
	},
	"verify":    func(v *storage.Snapshot) (any, error) { return nil, v.Verify(context.Background()) },
	"checksums": func(v *storage.Snapshot) (any, error) { return nil, v.VerifyChecksums(context.Background()) },
	"digest": func(v *storage.Snapshot) (any, error) {
		digest, sizes, err := v.Inspect(context.Background())
		return [2]any{digest, sizes}, err
	},
	"copy": func(v *storage.Snapshot) (any, error) {
		var b bytes.Buffer
		_, err := v.CopyTo(context.Background(), &b, nil)
		return b.Bytes(), err
	},
	"sums": func(v *storage.Snapshot) (any, error) {
		var sums []storage.PayloadChecksum
		err := v.VisitPayloadChecksums(context.Background(), 0, func(_ uint32, s storage.PayloadChecksum) error {
			sums = append(sums, s)
			return nil
		})
		return sums, err
	},
}

// openPart opens a file of which nothing is there yet, and fences it.
func init() { *storage.PartialLeast = 0 }

func openPart(t testing.TB, s *partly.Source) (*storage.File, *storage.Snapshot) {
	t.Helper()
	f, err := storage.Open(t.Context(), s.Path, storage.Options{Source: s})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	s.Fence(t)
	v, err := f.Snapshot()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return f, v
}

func TestPartialReadsAreThoseOfTheWhole(t *testing.T) {
	path := partialFile(t, 3000, 12)
	f, err := storage.Open(t.Context(), path, storage.Options{})
	require.NoError(t, err)
	defer f.Close()
	whole, err := f.Snapshot()
	require.NoError(t, err)
	defer whole.Close()
	docs := whole.State().Docs
	require.Greater(t, whole.Chunks(), 1)

	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			s := partly.New(t, path, 1)
			_, v := openPart(t, s)
			for n := uint32(0); n < docs; n += 37 {
				want, err := read(whole, n)
				require.NoError(t, err)
				got, err := read(v, n)
				require.NoError(t, err)
				require.Equal(t, want, got, "%d", n)
			}
		})
	}
	for name, read := range wholeReads {
		t.Run(name, func(t *testing.T) {
			s := partly.New(t, path, 1)
			_, v := openPart(t, s)
			require.True(t, v.IsPartial())
			want, err := read(whole)
			require.NoError(t, err)
			got, err := read(v)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.False(t, v.IsPartial())
			bytes, of, _ := s.Fetched()
			require.Equal(t, of, bytes)
		})
	}
}

// Opening a file, and one read, fetch a part of it; what is opened is not much more than what searches need.
func TestPartialFetchesLittle(t *testing.T) {
	s := partly.New(t, partialFile(t, 3000, 60), 1)
	_, v := openPart(t, s)
	opened, of, calls := s.Fetched()
	t.Logf("%d of %d bytes in %d calls", opened, of, calls)
	require.Less(t, opened, of/2)
	_, err := v.ChunkFor(1, storage.All, 5)
	require.NoError(t, err)
	_, err = v.Payload(1234)
	require.NoError(t, err)
	_, ok, err := v.Ordinal("a999")
	require.NoError(t, err)
	require.True(t, ok)
	read, _, _ := s.Fetched()
	require.LessOrEqual(t, read-opened, int64(12*os.Getpagesize()))
	require.True(t, v.IsPartial())
}

// Sources that fail, are slow, and bring what was not asked for: a read gives what the whole file gives,
// or the error of the source.
func TestPartialOfBadSource(t *testing.T) {
	path := partialFile(t, 2000, 12)
	f, err := storage.Open(t.Context(), path, storage.Options{})
	require.NoError(t, err)
	defer f.Close()
	whole, err := f.Snapshot()
	require.NoError(t, err)
	defer whole.Close()
	docs := whole.State().Docs
	for seed := range uint64(effort.Cases(1, 6)) {
		s := partly.New(t, path, seed)
		s.Fail(0.02, time.Millisecond)
		var part *storage.File
		for tries := 0; part == nil; tries++ {
			require.Less(t, tries, 1000)
			part, err = storage.Open(t.Context(), s.Path, storage.Options{Source: s})
			if err != nil {
				require.ErrorIs(t, err, partly.ErrSource)
				require.NotErrorIs(t, err, storage.ErrCorrupt)
			}
		}
		s.Fence(t)
		v, err := part.Snapshot()
		require.NoError(t, err)
		s.Fail(0.3, time.Millisecond)
		var readers sync.WaitGroup
		var failed, passed [4]int
		for g := range 4 {
			readers.Go(func() {
				for i := range uint32(effort.Cases(8, 60)) {
					n := (i*uint32(7919) + uint32(g)*131) % docs
					for name, read := range reads {
						want, err := read(whole, n)
						if err != nil {
							t.Errorf("%s %d: %v", name, n, err)
						}
						switch got, err := read(v, n); {
						case err == nil:
							passed[g]++
							if !equal(want, got) {
								t.Errorf("%s %d differs", name, n)
							}
						default:
							failed[g]++
							if !isSource(err) {
								t.Errorf("%s %d: %v", name, n, err)
							}
						}
					}
					if err := s.CopyRandomPages(3); err != nil {
						t.Error(err)
					}
				}
			})
		}
		readers.Wait()
		require.Positive(t, failed[0])
		require.Positive(t, passed[0])
		s.Fail(0, 0)
		require.NoError(t, v.Verify(t.Context()))
		require.NoError(t, v.Close())
		require.NoError(t, part.Close())
	}
}

// A call that is cancelled ends, and one of a source that has what is damaged is an error.
func TestPartialEnds(t *testing.T) {
	path := partialFile(t, 2000, 12)
	s := partly.New(t, path, 1)
	_, v := openPart(t, s)
	s.Fail(0, time.Hour)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	require.ErrorIs(t, v.WaitComplete(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, v.Prefetch(ctx, storage.All, []uint32{3, 900}), context.DeadlineExceeded)
	require.ErrorIs(t, v.FetchPayloads(ctx, []uint32{3, 900}), context.DeadlineExceeded)
	require.ErrorIs(t, v.Verify(ctx), context.DeadlineExceeded)

	slow := partly.New(t, path, 1)
	slow.Fail(0, time.Hour)
	_, err := storage.Open(ctx, slow.Path, storage.Options{Source: slow})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = index.Open(t.Context(), slow.Path, &index.Options{Source: slow, Write: true})
	require.ErrorIs(t, err, index.ErrOption)
	_, err = index.Open(t.Context(), slow.Path, &index.Options{Source: slow, Follow: time.Second})
	require.ErrorIs(t, err, index.ErrOption)
}

// Reads that have no context end when the file is closed, also if its source stands still. What is there is read
// from snapshots that are open.
func TestPartialReadsEndWithFile(t *testing.T) {
	path := partialFile(t, 2000, 12)
	calls := map[string]func(v *storage.Snapshot) error{
		"chunk":   func(v *storage.Snapshot) error { _, err := v.Chunk(1, storage.All); return err },
		"rows":    func(v *storage.Snapshot) error { _, err := v.ChunkFor(1, storage.All, 5, 6, 7); return err },
		"payload": func(v *storage.Snapshot) error { _, err := v.Payload(1234); return err },
		"ordinal": func(v *storage.Snapshot) error { _, _, err := v.Ordinal("a999"); return err },
		"pages":   func(v *storage.Snapshot) error { _, err := v.Pages(); return err },
	}
	s := partly.New(t, path, 1)
	f, v := openPart(t, s)
	there, err := v.ChunkFor(0, storage.All, 2)
	require.NoError(t, err)
	s.Fail(0, time.Hour)
	failed := make(chan error, len(calls))
	for name, call := range calls {
		go func() {
			if err := call(v); !errors.Is(err, storage.ErrClosed) {
				err = fmt.Errorf("%s: %w", name, cmp.Or(err, errors.New("it was read")))
				failed <- err
				return
			}
			failed <- nil
		}()
	}
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, f.Close())
	for range calls {
		select {
		case err := <-failed:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Fatal("a read waits for the source")
		}
	}
	s.Fail(0, 0)
	again, err := v.Chunk(0, storage.Codes)
	require.NoError(t, err)
	require.Equal(t, there.Codes, again.Codes)
}

func TestPartialOfDamagedFile(t *testing.T) {
	path := partialFile(t, 600, 8)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	damaged := filepath.Join(t.TempDir(), "damaged.plaid")
	opened := 0
	for at := 0; at < len(good); at += 1 + len(good)/effort.Cases(40, 400) {
		bad := bytes.Clone(good)
		for i := range min(40, len(bad)-at) {
			bad[at+i] ^= 0x5a
		}
		require.NoError(t, os.WriteFile(damaged, bad, 0o600))
		s := partly.New(t, damaged, 1)
		f, err := storage.Open(t.Context(), s.Path, storage.Options{Source: s})
		if err == nil {
			var v *storage.Snapshot
			if v, err = f.Snapshot(); err == nil {
				opened++
				for _, read := range reads {
					for n := uint32(0); n < v.State().Docs; n += 101 {
						_, _ = read(v, n)
					}
				}
				_ = v.Verify(t.Context())
				require.NoError(t, v.Close())
			}
			require.NoError(t, f.Close())
		}
	}
	require.Positive(t, opened)
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

func isSource(err error) bool { return errors.Is(err, partly.ErrSource) }

// Documents of a file that is being fetched are checked as those of a whole one.
func TestPartialFindsDamagedDocument(t *testing.T) {
	path := partialFile(t, 600, 8)
	f, err := storage.Open(t.Context(), path, storage.Options{})
	require.NoError(t, err)
	v, err := f.Snapshot()
	require.NoError(t, err)
	ch, err := v.Chunk(0, storage.All)
	require.NoError(t, err)
	rows, own := bytes.Clone(ch.Residuals), v.Codec().RowBytes()*int(ch.Offsets[7])
	require.NoError(t, v.Close())
	require.NoError(t, f.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(data, rows)
	require.Positive(t, at)
	data[at+own+3] ^= 1
	damaged := filepath.Join(t.TempDir(), "damaged.plaid")
	require.NoError(t, os.WriteFile(damaged, data, 0o600))

	_, v = openPart(t, partly.New(t, damaged, 1))
	_, err = v.ChunkFor(0, storage.All, 5, 6, 8, 9)
	require.NoError(t, err)
	_, err = v.ChunkFor(0, storage.Codes, 7)
	require.NoError(t, err)
	require.True(t, v.IsPartial())
	_, err = v.ChunkFor(0, storage.All, 6, 7)
	require.ErrorIs(t, err, storage.ErrCorrupt)
	require.ErrorContains(t, err, "factors and residuals of document 7")
}
