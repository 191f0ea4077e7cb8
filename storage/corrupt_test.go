package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// Every byte of a small file is flipped in turn: opening and reading it all
// either fails with ErrCorrupt (or ErrNotIndex, ErrUnfinished, ErrVersion), or
// shows exactly what was stored, since the byte belongs to no live page.
func TestAnyByteFlipped(t *testing.T) {
	path := writeTestIndex(t)
	f, v := openViewNow(t, path)
	want, err := contents(v)
	require.NoError(t, err)
	require.NoError(t, v.Close())
	require.NoError(t, f.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)

	flipped := filepath.Join(t.TempDir(), "flipped.plaid")
	noticed := 0
	step := effort.Cases(37, 1)
	for i := 0; i < len(data); i += step {
		if data[i] == 0 && i%16 != 5 { // most of the file is zero padding: a sample of it
			continue
		}
		bad := append([]byte(nil), data...)
		bad[i] ^= 1 << (i % 8)
		require.NoError(t, os.WriteFile(flipped, bad, 0o644))
		got, err := readAll(flipped)
		if err != nil {
			noticed++
			require.True(t, isOurs(err), "byte %d: %v", i, err)
			continue
		}
		require.Equal(t, want, got, "byte %d changed what is read, unnoticed", i)
	}
	require.Greater(t, noticed, 300/step)
}

func isOurs(err error) bool {
	for _, target := range []error{ErrCorrupt, ErrNotIndex, ErrUnfinished, ErrVersion} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func readAll(path string) (string, error) {
	f, err := Open(context.Background(), path, Options{})
	if err != nil {
		return "", err
	}
	defer f.Close()
	v, err := f.Snapshot()
	if err != nil {
		return "", err
	}
	defer v.Close()
	s, err := guarded(v)
	if err != nil {
		return "", err
	}
	return s, v.Verify(context.Background())
}

func guarded(v *Snapshot) (s string, err error) {
	defer Guard(v.Path(), &err)()
	return contents(v)
}

func TestCutShort(t *testing.T) {
	data, err := os.ReadFile(writeTestIndex(t))
	require.NoError(t, err)
	cut := filepath.Join(t.TempDir(), "cut.plaid")
	for _, n := range []int{1, 63, 80, 4095, 4096, 5000, 8192, 12288, len(data) / 2} {
		require.NoError(t, os.WriteFile(cut, data[:n], 0o644))
		for _, write := range []bool{false, true} {
			_, err := Open(context.Background(), cut, Options{Write: write})
			require.True(t, err != nil && isOurs(err), "%d of %d bytes: %v", n, len(data), err)
		}
		after, err := os.ReadFile(cut)
		require.NoError(t, err)
		require.Equal(t, data[:n], after)
	}
}

// A damaged meta page must not silently show the transaction before.
func TestDamagedMetaPage(t *testing.T) {
	path := writeTestIndex(t)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for page := range 2 {
		bad := append([]byte(nil), data...)
		bad[page*os.Getpagesize()+30] ^= 0xff
		p := filepath.Join(t.TempDir(), "meta.plaid")
		require.NoError(t, os.WriteFile(p, bad, 0o644))
		_, err := Open(context.Background(), p, Options{})
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

// A branch page that leads back to itself would have bbolt recurse until the
// process dies.
func TestPagesInACircle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "circle.plaid")
	f, err := Open(context.Background(), path, Options{Write: true, Create: true})
	require.NoError(t, err)
	require.NoError(t, fillTestIndex(f))
	require.NoError(t, f.Update(func(tx *Tx) error {
		g, s, err := currentState(tx)
		require.NoError(t, err)
		docs := make([]testDoc, 2000) // ids on several levels of pages
		for i := range docs {
			docs[i].id = fmt.Sprintf("document %d", i)
		}
		return putDocs(g, s, docs)
	}))
	require.NoError(t, f.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	ne, size, branches := binary.NativeEndian, os.Getpagesize(), 0
	for id := 2; (id+1)*size <= len(data); id++ {
		page := data[id*size:]
		if ne.Uint64(page) != uint64(id) || ne.Uint16(page[8:]) != boltfile.PageBranch {
			continue
		}
		branches++
		bad := append([]byte(nil), data...)
		ne.PutUint64(bad[id*size+boltfile.PageHeaderSize+8:], uint64(id))
		require.NoError(t, os.WriteFile(path, bad, 0o644))
		for _, write := range []bool{false, true} {
			_, err := Open(context.Background(), path, Options{Write: write})
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, "used twice")
		}
	}
	require.Positive(t, branches)
}

func TestGuard(t *testing.T) {
	try := func(fn func()) (err error) {
		defer Guard("x.plaid", &err)()
		fn()
		return nil
	}
	require.NoError(t, try(func() {}))

	// bbolt's own panics are damage.
	err := try(func() { new(bolt.Cursor).First() })
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "x.plaid: index is corrupt: damaged page")

	// Ours are not, wherever they come from.
	cause := errors.New("a cause")
	for name, fn := range map[string]func(){
		"index": func() { s := []int{1}; s[len(s)+2]++ },
		"nil":   func() { var f *File; f.path = "" },
		"panic": func() { panic(cause) },
		"in the standard library": func() {
			slices.SortFunc([]int{2, 1}, func(int, int) int { panic(cause) })
		},
	} {
		err := try(fn)
		require.ErrorIs(t, err, ErrInternal, name)
		require.NotErrorIs(t, err, ErrCorrupt, name)
		require.ErrorContains(t, err, "x.plaid: internal error: ", name)
		var p *PanicError
		require.ErrorAs(t, err, &p, name)
		require.Contains(t, string(p.Stack), "corrupt_test.go", name)
	}
	require.ErrorIs(t, try(func() { panic(cause) }), cause)
}

// A panic of a callback that bbolt calls is no damage, and the file goes on.
func TestPanicWithinATransaction(t *testing.T) {
	f := openWriting(t, writeTestIndex(t))
	before := seen(t, f)
	err := f.Update(func(tx *Tx) error {
		g, err := tx.Generation(1)
		require.NoError(t, err)
		require.NoError(t, g.PutID("half", 0))
		panic("ours")
	})
	require.ErrorIs(t, err, ErrInternal)
	require.NotErrorIs(t, err, ErrCorrupt)
	require.Equal(t, before, seen(t, f))
	require.NoError(t, addDoc(f, "delta"))
	require.Contains(t, seen(t, f), "delta")
	require.NoError(t, f.Close())
}
