package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

func digestAt(t *testing.T, path string) string {
	t.Helper()
	f, v := openViewNow(t, path)
	require.NoError(t, v.Verify(context.Background()))
	d := digestOf(t, v)
	require.NoError(t, errors.Join(v.Close(), f.Close()))
	return d
}

func digestOf(t *testing.T, v *Snapshot) string {
	t.Helper()
	d, _, err := v.Inspect(context.Background())
	require.NoError(t, err)
	return d
}

// addDocs commits documents with payloads of some size.
func addDocs(t *testing.T, f *File, prefix string, n, payload int) {
	t.Helper()
	var docs []testDoc
	for i := range n {
		docs = append(docs, testDoc{fmt.Sprint(prefix, i), []uint16{uint16(i % 3), 1}, prefix + strings.Repeat("y", payload)})
	}
	require.NoError(t, appendDocs(f, docs...))
}

// dropDoc deletes a document.
func dropDoc(t *testing.T, f *File, id string) {
	t.Helper()
	v, err := f.Snapshot()
	require.NoError(t, err)
	defer v.Close()
	ordinal, ok, err := v.Ordinal(id)
	require.NoError(t, err)
	require.True(t, ok, id)
	chunk, doc, _ := v.Locate(ordinal)
	_, offsets := v.ChunkDocs(chunk)
	sets := v.CloneDocSets()
	sets.Deleted.Add(ordinal)
	sets.Payload.Remove(ordinal)
	require.NoError(t, f.Update(func(tx *Tx) error {
		g, s, err := currentState(tx)
		if err != nil {
			return err
		}
		s.Live--
		s.LiveTokens -= uint64(offsets[doc+1] - offsets[doc])
		return errors.Join(g.DeleteID(id), g.DeletePayload(ordinal), g.PutDocSets(s, sets), g.PutState(*s))
	}))
}

// A copy is of the snapshot, not of what the file has become, and it can be opened,
// checked and changed.
func TestCopyTo(t *testing.T) {
	ctx := context.Background()
	path := writeTestIndex(t)
	f := openWriting(t, path)
	defer f.Close()
	addDocs(t, f, "secret", 30, 3000)
	var views []*Snapshot
	var want []string
	take := func() {
		v, err := f.Snapshot()
		require.NoError(t, err)
		views, want = append(views, v), append(want, digestOf(t, v))
	}
	take()
	for i := range 30 {
		dropDoc(t, f, fmt.Sprint("secret", i))
	}
	take()
	addDocs(t, f, "more", 40, 500)
	take()
	require.NoError(t, f.Replace(fillTestIndex))
	take()
	for i, v := range views {
		var buf bytes.Buffer
		last := int64(0)
		n, err := v.CopyTo(ctx, &buf, func(done, total int64) {
			require.Greater(t, done, last)
			require.LessOrEqual(t, done, total)
			last = done
		})
		require.NoError(t, err)
		require.EqualValues(t, buf.Len(), n)
		require.Equal(t, n, last)
		to := filepath.Join(t.TempDir(), "copy.plaid")
		require.NoError(t, os.WriteFile(to, buf.Bytes(), 0o600))
		require.Equal(t, want[i], digestAt(t, to), "view %d", i)
		for page, id := range metaIDs(t, to) { // the next commit takes the older one's place
			require.Equal(t, uint64(v.tx.ID())-uint64((v.tx.ID()+page)%2), id)
		}
		c := openWriting(t, to)
		addDocs(t, c, "after", 50, 700)
		require.NoError(t, c.Close())
		digestAt(t, to)
	}
	// Once nobody reads it any more, what was deleted is free, and is not copied.
	for _, v := range views[:3] {
		require.NoError(t, v.Close())
	}
	require.NoError(t, views[3].Close())
	f2, err := Open(context.Background(), filepath.Join(t.TempDir(), "again.plaid"), Options{Write: true, Create: true})
	require.NoError(t, err)
	defer f2.Close()
	require.NoError(t, fillTestIndex(f2))
	addDocs(t, f2, "secret", 30, 3000)
	for i := range 30 {
		dropDoc(t, f2, fmt.Sprint("secret", i))
	}
	for range 3 {
		require.NoError(t, f2.Update(func(tx *Tx) error { return tx.PutNote("x", 1) }))
	}
	raw, err := os.ReadFile(f2.Path())
	require.NoError(t, err)
	require.Contains(t, string(raw), "secretyyy")
	v, err := f2.Snapshot()
	require.NoError(t, err)
	defer v.Close()
	var buf bytes.Buffer
	_, err = v.CopyTo(ctx, &buf, nil)
	require.NoError(t, err)
	require.NotContains(t, buf.String(), "secretyyy")
	require.LessOrEqual(t, buf.Len(), len(raw))
}

// metaIDs are the transaction ids of the two meta pages.
func metaIDs(t *testing.T, path string) (ids [2]uint64) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	m, err := boltfile.ReadMeta(bytes.NewReader(b), 0)
	require.NoError(t, err)
	for page := range ids {
		ids[page] = binary.NativeEndian.Uint64(b[page*int(m.PageSize)+boltfile.MetaOffset+48:])
	}
	return ids
}

type limitedWriter struct{ left int }

var errFull = errors.New("full")

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestCopyToFails(t *testing.T) {
	path := writeTestIndex(t)
	_, v := openView(t, path)
	for _, room := range []int{0, 5000, 9000, 20000} {
		_, err := v.CopyTo(context.Background(), &limitedWriter{room}, nil)
		require.ErrorIs(t, err, errFull, "%d", room)
		require.ErrorContains(t, err, path)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := v.CopyTo(ctx, &bytes.Buffer{}, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, v.Close())
	_, err = v.CopyTo(context.Background(), &bytes.Buffer{}, nil)
	require.ErrorIs(t, err, ErrClosed)
}

// A copy that is brought up to date holds the same as one made anew.
func TestMirror(t *testing.T) {
	ctx := context.Background()
	path := writeTestIndex(t)
	f := openWriting(t, path)
	defer f.Close()
	addDocs(t, f, "base", 50, 200)
	to := filepath.Join(testenv.RAMDir(t), "copy.plaid")
	copyFile := func() {
		v, err := f.Snapshot()
		require.NoError(t, err)
		defer v.Close()
		var buf bytes.Buffer
		_, err = v.CopyTo(ctx, &buf, nil)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, buf.Bytes(), 0o600))
	}
	mirror := func(most int64) (int64, error) {
		v, err := f.Snapshot()
		require.NoError(t, err)
		defer v.Close()
		dst := openWriting(t, to)
		n, err := v.Mirror(ctx, dst, most)
		require.NoError(t, dst.Close())
		return n, err
	}
	copyFile()
	n, err := mirror(0)
	require.NoError(t, err)
	require.Zero(t, n, "nothing has changed")
	rng := rand.New(rand.NewPCG(1, 1))
	live := map[string]bool{}
	for i := range 50 {
		live[fmt.Sprint("base", i)] = true
	}
	for round := range effort.Cases(12, 40) {
		for range 1 + rng.IntN(3) {
			switch rng.IntN(4) {
			case 0:
				prefix := fmt.Sprintf("r%d-%d-", round, rng.Uint32())
				addDocs(t, f, prefix, 1+rng.IntN(5), rng.IntN(3000))
				live[prefix+"0"] = true
			case 1:
				for id := range live {
					dropDoc(t, f, id)
					delete(live, id)
					break
				}
			case 2: // no part of the digest
				require.NoError(t, f.Update(func(tx *Tx) error { return tx.PutNote("built", round) }))
			case 3:
				require.NoError(t, f.Update(func(tx *Tx) error {
					if round%2 == 0 {
						return tx.PutDefaults(1, nil)
					}
					return tx.PutDefaults(1, testDefaults())
				}))
			}
		}
		n, err := mirror(1 << 30)
		require.NoError(t, err)
		require.Less(t, n, int64(200_000))
		now := copied(t, f)
		require.Equal(t, digestAt(t, now), digestAt(t, to))
		require.Equal(t, frame(t, now), frame(t, to))
	}

	before := digestAt(t, to)
	addDocs(t, f, "large", 50, 4000)
	_, err = mirror(100_000)
	require.ErrorIs(t, err, ErrTooManyChanges)
	require.Equal(t, before, digestAt(t, to), "nothing of it is left")
	_, err = mirror(1 << 30)
	require.NoError(t, err)
	require.Equal(t, digestAt(t, copied(t, f)), digestAt(t, to))

	// What is damaged is not taken over.
	before = digestAt(t, to)
	require.NoError(t, f.exclusive(func(h *handle) error {
		return h.db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket(layout.GenerationName(1)).Bucket(layout.BucketPayload).Put(layout.NumberKey(0), []byte("damaged payload"))
		})
	}))
	_, err = mirror(1 << 30)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "payload/0")
	require.Equal(t, before, digestAt(t, to))

	// Another generation is another index.
	require.NoError(t, f.Update(func(tx *Tx) error {
		h, c := testCodec()
		n, err := tx.NewGeneration(h, c, nil)
		if err != nil {
			return err
		}
		g, err := tx.Generation(n)
		if err != nil {
			return err
		}
		return errors.Join(putDocs(g, &State{}, testDocs), tx.MakeCurrent(n))
	}))
	_, err = mirror(1 << 30)
	require.ErrorIs(t, err, ErrUnrelated)
}

// copied copies an index that is open for writing, so that it can be read.
func copied(t *testing.T, f *File) string {
	t.Helper()
	v, err := f.Snapshot()
	require.NoError(t, err)
	defer v.Close()
	path := filepath.Join(testenv.RAMDir(t), "now.plaid")
	s, err := NewSuccessor(path)
	require.NoError(t, err)
	_, _, err = s.WriteSnapshot(context.Background(), v, nil)
	require.NoError(t, err)
	require.NoError(t, s.Commit(0o600))
	return path
}

// frame is what the digest leaves out.
func frame(t *testing.T, path string) (s string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(layout.RootBucket).ForEach(func(k, v []byte) error {
			s += fmt.Sprintf("%s=%x\n", k, v)
			return nil
		})
	}))
	require.NoError(t, db.Close())
	return s
}
