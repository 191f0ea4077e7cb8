package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// openView is openViewNow until the test ends.
func openView(t testing.TB, path string) (*File, *Snapshot) {
	t.Helper()
	f, v := openViewNow(t, path)
	t.Cleanup(func() { require.NoError(t, errors.Join(v.Close(), f.Close())) })
	return f, v
}

func openViewNow(t testing.TB, path string) (*File, *Snapshot) {
	t.Helper()
	f, err := Open(context.Background(), path, Options{})
	require.NoError(t, err)
	v, err := f.Snapshot()
	require.NoError(t, err)
	return f, v
}

func TestRoundTrip(t *testing.T) {
	_, v := openView(t, writeTestIndex(t))
	require.NoError(t, v.Verify(context.Background()))
	require.Equal(t, 3, int(v.State().Live))
	require.Equal(t, "beta", v.ID(1))
	_, ok, err := v.Ordinal("delta")
	require.NoError(t, err)
	require.False(t, ok)
	list, err := v.Postings(0, 2)
	require.NoError(t, err)
	docs, err := list.appendDocs(nil, 3)
	require.NoError(t, err)
	require.Equal(t, []uint32{0, 2}, docs)
	p, err := v.Payload(2)
	require.NoError(t, err)
	require.JSONEq(t, `{"text":"third"}`, string(p))
	p, err = v.Payload(1)
	require.NoError(t, err)
	require.Nil(t, p)
}

func TestDigestIsOfContentOnly(t *testing.T) {
	digest := func(path string) (string, Sizes) {
		_, v := openView(t, path)
		d, s, err := v.Inspect(context.Background())
		require.NoError(t, err)
		return d, s
	}
	a, sizes := digest(writeTestIndex(t))
	path := writeTestIndex(t)
	f := openWriting(t, path)
	require.NoError(t, f.Update(func(tx *Tx) error { return tx.PutNote("built", "later") }))
	require.NoError(t, f.Close())
	b, _ := digest(path)
	require.Equal(t, a, b)
	require.Positive(t, sizes.Codes)
	require.Positive(t, sizes.Total())
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(context.Background(), filepath.Join(dir, "none"), Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(context.Background(), filepath.Join(dir, "none"), Options{Write: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(context.Background(), dir, Options{})
	require.ErrorIs(t, err, ErrNotIndex)

	for name, content := range map[string]string{"empty": "", "short": "hello", "text": string(make([]byte, 100_000))} {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte(content), 0o644))
		for _, write := range []bool{false, true} {
			_, err = Open(context.Background(), p, Options{Write: write})
			require.ErrorIs(t, err, ErrNotIndex, name)
			require.ErrorContains(t, err, name)
		}
		after, err := os.ReadFile(p)
		require.NoError(t, err)
		require.Equal(t, content, string(after), "opening must not touch a stranger's file")
	}

	foreign := filepath.Join(dir, "foreign.db")
	db, err := bolt.Open(foreign, 0o644, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("users"))
		return err
	}))
	require.NoError(t, db.Close())
	for _, write := range []bool{false, true} {
		_, err = Open(context.Background(), foreign, Options{Write: write, Create: write})
		require.ErrorIs(t, err, ErrNotIndex)
	}

	fresh := filepath.Join(dir, "fresh.plaid")
	f, err := Open(context.Background(), fresh, Options{Write: true, Create: true})
	require.NoError(t, err)
	_, err = f.Snapshot()
	require.ErrorIs(t, err, ErrUnfinished)
	require.NoError(t, f.Close())
	_, err = Open(context.Background(), fresh, Options{})
	require.ErrorIs(t, err, ErrUnfinished)
}

func TestNewerFormatIsRefused(t *testing.T) {
	path := writeTestIndex(t)
	f := openWriting(t, path)
	require.NoError(t, f.Update(func(tx *Tx) error {
		return tx.root.Put(layout.KeyFormat, layout.Seal(layout.KeyFormat, append([]byte(layout.Magic), FormatVersion+1, 0, 1, 0)))
	}))
	require.NoError(t, f.Close())
	for _, write := range []bool{false, true} {
		_, err := Open(context.Background(), path, Options{Write: write})
		require.ErrorIs(t, err, ErrVersion)
		require.ErrorContains(t, err, fmt.Sprintf("it is format %d, this program reads format %d", FormatVersion+1, FormatVersion))
	}
}

func TestLocks(t *testing.T) {
	path := writeTestIndex(t)
	w := openWriting(t, path)
	_, err := Open(context.Background(), path, Options{})
	require.ErrorIs(t, err, ErrLocked)
	_, err = Open(context.Background(), path, Options{Write: true})
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "index is locked: it is open in this program already")
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	other, err := os.OpenFile(path, os.O_RDWR, 0) // as of another program
	require.NoError(t, err)
	require.NoError(t, files.LockExclusive(other))
	_, err = Open(context.Background(), path, Options{})
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "it is open elsewhere")
	require.NoError(t, other.Close())

	r1, _ := openView(t, path)
	_, _ = openView(t, path)
	_, err = Open(context.Background(), path, Options{Write: true})
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorIs(t, r1.Update(func(*Tx) error { return nil }), ErrReadOnly)
}

func TestStagedIsInvisibleAndSwept(t *testing.T) {
	path := writeTestIndex(t)
	f, v := openViewNow(t, path)
	before, err := contents(v)
	require.NoError(t, errors.Join(err, v.Close(), f.Close()))
	f = openWriting(t, path)
	// Additions beyond the counters, and a generation that is never made current.
	require.NoError(t, f.Update(func(tx *Tx) error {
		if err := tx.MarkStaging(); err != nil {
			return err
		}
		n, err := tx.Current()
		require.NoError(t, err)
		g, err := tx.Generation(n)
		require.NoError(t, err)
		require.NoError(t, g.PutID("staged", 3))
		require.NoError(t, g.PutPayload(3, []byte("x")))
		require.NoError(t, g.PutPostings(1, 0, []byte("x")))
		require.NoError(t, g.PutChunk(SealChunk(1, &DocTable{First: 3, Lengths: []uint32{0}, IDs: []string{"staged"}}, nil, nil, nil)))
		h, c := testCodec()
		_, err = tx.NewGeneration(h, c, nil)
		return err
	}))
	check := func(v *Snapshot) {
		s, err := contents(v)
		require.NoError(t, err)
		require.Equal(t, before, s)
		_, ok, err := v.Ordinal("staged")
		require.NoError(t, err)
		require.False(t, ok)
	}
	v, err = f.Snapshot()
	require.NoError(t, err)
	check(v)
	require.NoError(t, v.Close())
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(path+rewriteSuffix, []byte("left"), 0o644))

	f, err = Open(context.Background(), path, Options{Write: true}) // sweeps
	require.NoError(t, err)
	require.NoFileExists(t, path+rewriteSuffix)
	require.NoError(t, f.handle.db.View(func(tx *bolt.Tx) error {
		require.Nil(t, tx.Bucket(layout.GenerationName(2)))
		g := tx.Bucket(layout.GenerationName(1))
		require.Nil(t, g.Bucket(layout.BucketIDs).Get([]byte("staged")))
		require.Nil(t, g.Bucket(layout.BucketChunks).Bucket(layout.NumberKey(1)))
		require.Nil(t, g.Bucket(layout.BucketPostings).Bucket(layout.NumberKey(1)))
		require.Nil(t, g.Bucket(layout.BucketPayload).Get(layout.NumberKey(3)))
		require.Nil(t, tx.Bucket(layout.RootBucket).Get(layout.KeyStaging))
		return nil
	}))
	require.NoError(t, f.Close())
	_, v = openView(t, path)
	check(v)
	require.NoError(t, v.Verify(context.Background()))
}

func TestViewsKeepTheirPicture(t *testing.T) {
	path := writeTestIndex(t)
	f := openWriting(t, path)
	old, err := f.Snapshot()
	require.NoError(t, err)
	before, err := contents(old)
	require.NoError(t, err)

	add := func(id string) {
		require.NoError(t, f.Update(func(tx *Tx) error {
			g, s, err := currentState(tx)
			require.NoError(t, err)
			sets, err := g.docSets()
			require.NoError(t, err)
			sets.Deleted.Add(0)
			sets.Payload.Remove(0)
			s.Live--
			s.LiveTokens -= 3
			require.NoError(t, g.DeleteID("alpha"))
			require.NoError(t, g.DeletePayload(0))
			require.NoError(t, g.PutDocSets(s, sets))
			return putDocs(g, s, []testDoc{{id, []uint16{1}, ""}})
		}))
	}
	add("delta")
	require.NoError(t, f.Replace(fillTestIndex)) // another file under the same name
	now, err := f.Snapshot()
	require.NoError(t, err)
	s, err := contents(now)
	require.NoError(t, err)
	require.Equal(t, before, s)
	s, err = contents(old)
	require.NoError(t, err)
	require.Equal(t, before, s)
	require.NoError(t, old.Close())
	require.NoError(t, now.Close())

	require.ErrorIs(t, f.Replace(func(*File) error { return errors.ErrUnsupported }), errors.ErrUnsupported)
	require.NoFileExists(t, path+rewriteSuffix)
	require.NoError(t, f.Close())
	_, err = f.Snapshot()
	require.ErrorIs(t, err, ErrClosed)
}

func TestModelCheck(t *testing.T) {
	a := &Model{Name: "a", Fingerprint: "1"}
	for _, c := range []struct {
		index, other *Model
		same         bool
	}{
		{nil, a, true},
		{a, nil, true},
		{a, &Model{Name: "moved", Fingerprint: "1"}, true},
		{a, &Model{Name: "a", Fingerprint: "2"}, false},
		{a, &Model{Name: "a"}, true},
		{a, &Model{Name: "b"}, false},
		{&Model{Name: "a"}, &Model{Name: "b", Fingerprint: "1"}, false},
		{&Model{Name: "a"}, &Model{Fingerprint: "1"}, true}, // nothing to compare
		{&Model{Fingerprint: "1"}, &Model{Fingerprint: "2"}, false},
	} {
		err := c.index.Check(c.other)
		if c.same {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, ErrModel)
		require.ErrorContains(t, err, c.other.String())
	}
}

func TestModelValidate(t *testing.T) {
	require.NoError(t, (*Model)(nil).Validate())
	require.NoError(t, (&Model{Name: "/models/ü"}).Validate())
	require.Error(t, (&Model{}).Validate())
	require.Error(t, (&Model{Name: "a\x1b[31m"}).Validate())
	require.Error(t, (&Model{Name: "\xff"}).Validate())
	require.Error(t, (&Model{Fingerprint: strings.Repeat("a", 5000)}).Validate())
	require.NoError(t, (&Model{Name: "a", Precision: "int8", Settings: `{"query_length":48}`}).Validate())
	require.ErrorContains(t, (&Model{Name: "a", Settings: "\n"}).Validate(), "settings")
	require.ErrorContains(t, (&Model{Name: "a", Precision: "\xff"}).Validate(), "precision")
}

// Stamps tell states and files apart, and are the same as long as nothing changes.
func TestStamps(t *testing.T) {
	path := writeTestIndex(t)
	stamp := func() Stamp {
		f, v := openViewNow(t, path)
		s, err := v.Stamp()
		require.NoError(t, errors.Join(err, v.Close(), f.Close()))
		return s
	}
	first := stamp()
	require.Equal(t, first, stamp())
	f := openWriting(t, path)
	v, err := f.Snapshot()
	require.NoError(t, err)
	require.NoError(t, f.Update(func(tx *Tx) error { return tx.PutNote("x", 1) }))
	older, err := v.Stamp()
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.NoError(t, f.Close())
	second := stamp()
	require.NotEqual(t, first, second)
	require.NotEqual(t, older, second, "a view from before a change")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".copy", data, 0o666))
	require.NoError(t, os.Rename(path+".copy", path))
	require.NotEqual(t, second, stamp(), "a copy")
}

// The sums are those of the payloads, all of them, however many.
func TestPayloadSums(t *testing.T) {
	path := writeTestIndex(t)
	f := openWriting(t, path)
	defer f.Close()
	want := map[uint32]PayloadChecksum{0: ChecksumPayload(0, []byte(testDocs[0].payload)), 2: ChecksumPayload(2, []byte(testDocs[2].payload))}
	require.NoError(t, f.Update(func(tx *Tx) error {
		g, s, err := currentState(tx)
		if err != nil {
			return err
		}
		var docs []testDoc
		for i := range uint32(2*payloadsPerCheck + 3) {
			d := testDoc{id: fmt.Sprint("more", i)}
			if ordinal := s.Docs + i; i%5 != 4 {
				d.payload = fmt.Sprintf("payload %d", i/2)
				want[ordinal] = ChecksumPayload(ordinal, []byte(d.payload))
				require.NotZero(t, want[ordinal])
			}
			docs = append(docs, d)
		}
		return putDocs(g, s, docs)
	}))
	v, err := f.Snapshot()
	require.NoError(t, err)
	defer v.Close()
	got := map[uint32]PayloadChecksum{}
	last := -1
	require.NoError(t, v.VisitPayloadChecksums(context.Background(), 0, func(o uint32, s PayloadChecksum) error {
		require.Greater(t, int(o), last)
		last = int(o)
		got[o] = s
		return nil
	}))
	require.Equal(t, want, got)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, v.VisitPayloadChecksums(ctx, 0, func(uint32, PayloadChecksum) error { return nil }), context.Canceled)
}
