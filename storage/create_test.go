//go:build unix

package storage

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Whatever part of bbolt's first write is there, by an older program in the place
// of the index itself, is an unfinished index, which a build may replace.
func TestInterruptedFirstWrite(t *testing.T) {
	dir := testenv.RAMDir(t)
	db, err := bolt.Open(filepath.Join(dir, "first.db"), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	whole, err := os.ReadFile(filepath.Join(dir, "first.db"))
	require.NoError(t, err)
	require.Len(t, whole, firstPages*os.Getpagesize())

	var parts [][]byte
	for n := 512; n <= len(whole); n += 512 {
		parts = append(parts, whole[:n])
	}
	for at := 0; at < len(whole); at += 512 {
		hole := slices.Clone(whole)
		clear(hole[at : at+512])
		parts = append(parts, hole)
	}
	path := filepath.Join(dir, "x.plaid")
	for _, part := range parts {
		require.NoError(t, os.WriteFile(path, part, 0o640))
		for _, write := range []bool{false, true} {
			_, err := Open(context.Background(), path, Options{Write: write})
			require.ErrorIs(t, err, ErrUnfinished)
		}
		f, err := Open(context.Background(), path, Options{Write: true, Create: true})
		require.NoError(t, err)
		require.False(t, f.Created())
		require.NoError(t, fillTestIndex(f))
		seen(t, f)
		require.NoError(t, f.Close())
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o640), info.Mode())
	}

	// Nothing else is taken for one.
	index, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, other := range [][]byte{make([]byte, len(whole)), index[:512], index[:len(whole)], []byte("hello")} {
		require.NoError(t, os.WriteFile(path, other, 0o600))
		_, err := Open(context.Background(), path, Options{Write: true, Create: true})
		require.True(t, errors.Is(err, ErrNotIndex) || errors.Is(err, ErrCorrupt), "%v", err)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, other, after)
	}
}

// A file that cannot be begun leaves nothing, and what a program left that died
// while it began one goes; another name of a real index does no harm to that.
func TestFirstWriteLeavesNothing(t *testing.T) {
	dir := testenv.RAMDir(t)
	path := filepath.Join(dir, "x.plaid")
	failSyncs(t, func(p string) bool { return p == dir })
	_, err := Open(context.Background(), path, Options{Write: true, Create: true})
	require.ErrorIs(t, err, errDisk)
	require.Empty(t, names(t, dir))
	files.HookSynced = nil

	other := writeTestIndex(t)
	data, err := os.ReadFile(other)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+"-0123abcd"+firstSuffix, []byte("half"), 0o644))
	require.NoError(t, os.Link(other, path+"-89abcdef"+firstSuffix))
	require.NoError(t, os.WriteFile(path+"-mine"+firstSuffix, nil, 0o644))
	f, err := Open(context.Background(), path, Options{Write: true, Create: true})
	require.NoError(t, err)
	require.True(t, f.Created())
	require.NoError(t, f.Close())
	require.Equal(t, []string{"x.plaid", "x.plaid-mine" + firstSuffix}, names(t, dir))
	after, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, data, after)

	// One that died when the file had its name has left it two.
	second := path + "-89abcdef" + firstSuffix
	require.NoError(t, os.Link(path, second))
	require.NoError(t, os.WriteFile(path+"-0123abcd"+firstSuffix, []byte("of another that begins"), 0o644))
	f, err = Open(t.Context(), path, Options{Write: true})
	if !errors.Is(err, ErrUnfinished) { // opening for writing takes what is there
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	require.NoFileExists(t, second)
	require.FileExists(t, path+"-0123abcd"+firstSuffix)

	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	_, err = Open(context.Background(), filepath.Join(dir, "link"), Options{Write: true, Create: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Many begin the same file at once: all but one wait for its lock in vain.
func TestBeginAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.plaid")
	type opened struct {
		f   *File
		err error
	}
	results := make(chan opened)
	for range 8 {
		go func() {
			f, err := Open(context.Background(), path, Options{Write: true, Create: true})
			results <- opened{f, err}
		}()
	}
	var first *File
	for range 8 {
		r := <-results
		if r.err != nil {
			require.ErrorIs(t, r.err, ErrLocked)
			continue
		}
		require.Nil(t, first, "two have the file open for writing")
		first = r.f
	}
	require.NoError(t, fillTestIndex(first))
	require.NoError(t, first.Close())
	require.Equal(t, []string{"x.plaid"}, names(t, filepath.Dir(path)))
	_, v := openView(t, path)
	require.NoError(t, v.Verify(context.Background()))
}

// The file that a rewrite prepares may be read by nobody who may not read the
// index, from its first byte on, and it has its owner.
func TestRewriteInheritsPermissions(t *testing.T) {
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
	for _, mode := range []fs.FileMode{0o600, 0o640, 0o666} {
		path := writeTestIndex(t)
		require.NoError(t, os.Chmod(path, mode))
		uid, gid := os.Getuid(), os.Getgid()
		if uid == 0 {
			uid, gid = 65534, 65533
			require.NoError(t, os.Chown(path, uid, gid))
		}
		require.NoError(t, os.Link(path, path+".other"))
		var log bytes.Buffer
		f, err := Open(context.Background(), path, Options{Write: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		check := func(path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode(), path)
			u, g, ok := fileOwner(info)
			require.True(t, ok)
			require.Equal(t, []int{uid, gid}, []int{u, g})
		}
		require.NoError(t, f.Replace(func(dst *File) error {
			check(path + rewriteSuffix)
			return fillTestIndex(dst)
		}))
		check(path)
		require.Contains(t, log.String(), "several names")
		require.NoError(t, f.Close())
	}
}

// After a rewrite errors call the file by the name that it has.
func TestErrorsAfterARewriteNameTheIndex(t *testing.T) {
	path := writeTestIndex(t)
	f := openWriting(t, path)
	require.NoError(t, f.Replace(fillTestIndex))
	require.Equal(t, f.Path(), f.handle.file.Name())
	require.NoError(t, f.handle.file.Close())
	err := addDoc(f, "delta")
	require.ErrorContains(t, err, path)
	require.NotContains(t, err.Error(), rewriteSuffix)
	_ = f.Close()
}

// A name so long that nothing can be added to it.
func TestLongNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 255), strings.Repeat("ü", 125) + "x", strings.Repeat("x", 243)} {
		path := filepath.Join(t.TempDir(), name)
		f, err := Open(context.Background(), path, Options{Write: true, Create: true})
		require.NoError(t, err)
		require.NoError(t, fillTestIndex(f))
		require.NoError(t, f.Close())
		f = openWriting(t, path)
		require.NoError(t, addDoc(f, "delta"))
		require.NoError(t, f.Replace(fillTestIndex))
		require.NoError(t, f.Close())
		require.Equal(t, []string{name}, names(t, filepath.Dir(path)))
	}
	a, b := strings.Repeat("x", 250)+"a", strings.Repeat("x", 250)+"b"
	require.NotEqual(t, siblingPath(a, rewriteSuffix), siblingPath(b, rewriteSuffix))
}

// A rewrite through a link replaces the file and leaves the link.
func TestReplaceThroughLink(t *testing.T) {
	path := writeTestIndex(t)
	link := filepath.Join(t.TempDir(), "link.plaid")
	require.NoError(t, os.Symlink(path, link))
	before, err := os.Stat(path)
	require.NoError(t, err)
	f := openWriting(t, link)
	require.NoError(t, f.Replace(fillTestIndex))
	require.NoError(t, f.Close())
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))
	target, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, path, target)
	_, v := openView(t, link)
	require.NoError(t, v.Verify(context.Background()))
}

func TestVerifyNamesWhatIsDamaged(t *testing.T) {
	path := writeTestIndex(t)
	db, err := bolt.Open(path, 0o644, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		if err := tx.Bucket(layout.RootBucket).Put([]byte("note-built"), []byte("{}0000")); err != nil {
			return err
		}
		chunk := tx.Bucket(layout.GenerationName(1)).Bucket(layout.BucketChunks).Bucket(layout.NumberKey(0))
		v := append([]byte{}, chunk.Get(layout.KeyResiduals)...)
		v[0] ^= 1
		return chunk.Put(layout.KeyResiduals, v)
	}))
	require.NoError(t, db.Close())
	_, v := openView(t, path)
	err = v.Verify(context.Background())
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, ": note-built: checksum mismatch")
	require.ErrorContains(t, err, ": chunks/0/residuals of document 0: checksum mismatch")
}
