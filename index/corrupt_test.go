package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
)

// livedIn makes an index that has seen everything: several segments, deleted
// documents, holes, scales, payloads.
func livedIn(t *testing.T) string {
	const dim = 16
	path := newPath(t)
	docs := corpus(200, 12, dim, 1)
	build(t, path, dim, docs[:120], &BuildOptions{Nbits: 4, Centroids: 300})
	ix := writing(t, path)
	add(t, ix, dim, docs[120:160]...)
	_, _, err := ix.Delete(context.Background(), []string{"d3", "d4", "d130"})
	require.NoError(t, err)
	require.NoError(t, ix.Compact(context.Background(), nil))
	add(t, ix, dim, docs[160:180]...)
	_, _, err = ix.Delete(context.Background(), []string{"d7", "d161"})
	require.NoError(t, err)
	add(t, ix, dim, docs[180:]...)
	require.NoError(t, ix.Close())
	return path
}

// readAll reads all that a user can see.
func readAll(path string) (string, error) {
	ix, err := Open(context.Background(), path, nil)
	if err != nil {
		return "", err
	}
	s, err := ix.Snapshot()
	if err != nil {
		return "", errors.Join(err, ix.Close())
	}
	text, err := readSnapshot(s)
	return text, errors.Join(err, s.Close(), ix.Close())
}

func readSnapshot(s *Snapshot) (text string, err error) {
	defer storage.Guard(s.Path(), &err)()
	var b strings.Builder
	set, count := s.LiveSet()
	fmt.Fprintln(&b, set, count, s.Header(), s.State(), s.Tombstones().ToArray())
	for ordinal := range s.State().Docs {
		if !s.Live(ordinal) {
			continue
		}
		p, err := s.Payload(ordinal)
		if err != nil {
			return "", err
		}
		v, err := s.Vectors(ordinal)
		if err != nil {
			return "", err
		}
		o, ok, err := s.Ordinal(s.ID(ordinal))
		if err != nil {
			return "", err
		}
		if !ok || o != ordinal {
			return "", fmt.Errorf("%q leads to document %d, %v, not to %d", s.ID(ordinal), o, ok, ordinal)
		}
		fmt.Fprintln(&b, s.ID(ordinal), string(p), v)
	}
	for seg := range s.Segments() {
		for c := range uint32(s.Header().Centroids) {
			list, err := s.Postings(seg, c)
			if err != nil {
				return "", err
			}
			cursor, err := list.Cursor()
			var docs []uint32
			for err == nil && !cursor.Done() {
				docs, err = cursor.Next(docs, s.State().Docs)
			}
			if err != nil {
				return "", err
			}
			fmt.Fprintln(&b, docs)
		}
	}
	return b.String(), nil
}

// check reads a damaged file: nothing wrong may be shown, by whatever way.
func checkDamaged(t *testing.T, path, want, what string) (noticed bool) {
	t.Helper()
	got, err := readAll(path)
	if err != nil {
		RequireTyped(t, err, what)
		noticed = true
	} else {
		require.True(t, want == got, "%s: other content without an error", what)
	}
	ix, err := Open(context.Background(), path, nil)
	if err != nil {
		RequireTyped(t, err, what)
		return true
	}
	s, err := ix.Snapshot()
	require.NoError(t, err)
	if err := s.Verify(context.Background()); err != nil {
		RequireTyped(t, err, what)
		noticed = true
	} else {
		require.True(t, want == got, "%s: passes verification", what)
	}
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())
	return noticed
}

// RequireTyped fails a test unless an error is one of those that a damaged file has.
func RequireTyped(t *testing.T, err error, what string) {
	t.Helper()
	for _, target := range []error{storage.ErrCorrupt, storage.ErrNotIndex, storage.ErrUnfinished, storage.ErrVersion} {
		if errors.Is(err, target) {
			return
		}
	}
	require.Fail(t, "not one of the documented errors", "%s: %v", what, err)
}

func TestFlippedBytes(t *testing.T) {
	effort.SkipBrief(t, "one goroutine")
	path := livedIn(t)
	want, err := readAll(path)
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	steps := effort.Cases(100, 1200)
	bad := filepath.Join(testenv.RAMDir(t), "bad.plaid")
	noticed := 0
	for i := range steps {
		// Evenly over the file, and all bytes of the pages' heads in turn.
		at := int(int64(len(data)) * int64(i) / int64(steps))
		if i%2 == 1 {
			at = min(at/4096*4096+i/2%64, len(data)-1)
		}
		changed := slices.Clone(data)
		changed[at] ^= byte(1 << (i / 2 % 8))
		require.NoError(t, os.WriteFile(bad, changed, 0o600))
		if checkDamaged(t, bad, want, fmt.Sprintf("byte %d", at)) {
			noticed++
		}
		if i%4 == 0 { // who writes to it must fail or not, but not fall over
			if ix, err := Open(context.Background(), bad, &Options{Write: true}); err == nil {
				_, _, _ = ix.Delete(context.Background(), []string{"d20", "d21"})
				_, _ = ix.Add(context.Background(), fromDocs(t, 16, corpus(210, 12, 16, 1)[200:]), nil)
				_ = ix.Compact(context.Background(), nil)
				_ = ix.Close()
			}
		}
	}
	require.Greater(t, noticed, steps/4)
}

func TestTruncatedFiles(t *testing.T) {
	path := livedIn(t)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	cut := filepath.Join(testenv.RAMDir(t), "cut.plaid")
	cuts := effort.Cases(16, 60)
	for i := range cuts {
		n := (len(data) - 1) * i / (cuts - 1)
		if i%3 == 0 {
			n = n / 4096 * 4096
		}
		require.NoError(t, os.WriteFile(cut, data[:n], 0o600))
		for _, write := range []bool{false, true} {
			ix, err := Open(context.Background(), cut, &Options{Write: write})
			if err == nil { // a file may be longer than what belongs to it
				require.NoError(t, ix.Close())
				want, err := readAll(path)
				require.NoError(t, err)
				require.False(t, checkDamaged(t, cut, want, fmt.Sprintf("%d of %d bytes", n, len(data))))
				continue
			}
			RequireTyped(t, err, fmt.Sprintf("%d of %d bytes", n, len(data)))
			require.ErrorContains(t, err, cut)
		}
	}
}

// A file that is cut short while it is open gives errors, no crash.
func TestTruncatedWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it keeps who would do so from it")
	}
	path := livedIn(t)
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	s, err := ix.Snapshot()
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 8192))
	failed := 0
	for ordinal := range s.State().Docs {
		if _, err := s.Vectors(ordinal); err != nil && !errors.Is(err, ErrNotFound) {
			require.ErrorIs(t, err, storage.ErrCorrupt)
			failed++
		}
	}
	require.Positive(t, failed)
	require.ErrorIs(t, s.Verify(context.Background()), storage.ErrCorrupt)
	require.ErrorIs(t, second(s.Export(context.Background(), filepath.Join(t.TempDir(), "out"), nil)), storage.ErrCorrupt)
	require.ErrorIs(t, second(s.Info(context.Background())), storage.ErrCorrupt)
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())
}

// putFormat writes the format record as docs/formats.md has it.
func putFormat(t *testing.T, path string, format, feature uint16) {
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		v := []byte("plaidix\n")
		v = binary.LittleEndian.AppendUint16(v, format)
		v = binary.LittleEndian.AppendUint16(v, feature)
		sum := crc32.Checksum(append([]byte("format"), v...), crc32.MakeTable(crc32.Castagnoli))
		return tx.Bucket([]byte("plaid")).Put([]byte("format"), binary.LittleEndian.AppendUint32(v, sum))
	}))
	require.NoError(t, db.Close())
}

func TestVersions(t *testing.T) {
	path := newPath(t)
	docs := corpus(5, 5, 8, 1)
	build(t, path, 8, docs, nil)
	putFormat(t, path, storage.FormatVersion, storage.FeatureVersion+5)
	requireFile(t, path, docs)
	putFormat(t, path, storage.FormatVersion+1, storage.FeatureVersion)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, err := range []error{
		second(Open(context.Background(), path, nil)), second(Open(context.Background(), path, &Options{Write: true})),
		second(Build(context.Background(), path, fromDocs(t, 8, docs), nil)),
		second(Build(context.Background(), path, fromDocs(t, 8, docs), &BuildOptions{Force: true})),
	} {
		require.ErrorIs(t, err, storage.ErrVersion)
		require.ErrorContains(t, err, path)
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// Values that may be absent are missed all the same when they are lost, as
// through a damaged count of a page.
func TestLostValues(t *testing.T) {
	path := livedIn(t)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	lost := filepath.Join(testenv.RAMDir(t), "lost.plaid")
	var generation uint64
	reading(t, path, func(s *Snapshot) { generation = s.Generation() })
	gen := binary.BigEndian.AppendUint64([]byte("g"), generation)
	zero := string(make([]byte, 4))
	for _, keys := range [][]string{
		{"tombstones"}, {"state"}, {"header"}, {"codec", "dim-scale"}, {"codec", "centroid-scale"}, {"codec", "centroids"},
		{"postings", zero, zero}, {"postings", zero, "\x00\x00\x00\x01"}, {"chunks", zero, "docs"}, {"chunks", zero, "residuals"},
	} {
		require.NoError(t, os.WriteFile(lost, data, 0o600))
		db, err := bolt.Open(lost, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(gen)
			last := len(keys) - 1
			for _, k := range keys[:last] {
				b = b.Bucket([]byte(k))
			}
			require.NotNil(t, b.Get([]byte(keys[last])), "%q", keys)
			return b.Delete([]byte(keys[last]))
		}))
		require.NoError(t, db.Close())
		_, err = Open(context.Background(), lost, nil)
		require.ErrorIs(t, err, storage.ErrCorrupt, "%q", keys)
	}
	// What only a look at everything can find.
	for _, keys := range [][2]string{{"ids", "d20"}, {"payload", "\x00\x00\x00\x14"}} {
		require.NoError(t, os.WriteFile(lost, data, 0o600))
		db, err := bolt.Open(lost, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(gen).Bucket([]byte(keys[0]))
			require.NotNil(t, b.Get([]byte(keys[1])))
			return b.Delete([]byte(keys[1]))
		}))
		require.NoError(t, db.Close())
		reading(t, lost, func(s *Snapshot) {
			require.ErrorIs(t, s.Verify(context.Background()), storage.ErrCorrupt, "%q", keys)
			if keys[0] == "ids" {
				_, _, err := s.Ordinal(keys[1])
				require.ErrorIs(t, err, storage.ErrCorrupt)
			}
		})
	}
}

// A value of the codec that cannot be, although its checksum is right.
func TestImpossibleScale(t *testing.T) {
	path := newPath(t)
	build(t, path, 8, corpus(5, 5, 8, 1), nil)
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		key := []byte("dim-scale")
		b := tx.Bucket(binary.BigEndian.AppendUint64([]byte("g"), 1)).Bucket([]byte("codec"))
		v := make([]byte, len(b.Get(key))-4) // zeros
		sum := crc32.Checksum(append(key, v...), crc32.MakeTable(crc32.Castagnoli))
		return b.Put([]byte("dim-scale"), binary.LittleEndian.AppendUint32(v, sum))
	}))
	require.NoError(t, db.Close())
	_, err = Open(context.Background(), path, nil)
	require.ErrorIs(t, err, storage.ErrCorrupt)
	require.ErrorContains(t, err, path+": index is corrupt: codec: ")
}
