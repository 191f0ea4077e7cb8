package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func write(t *testing.T, path, s string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(s), 0o644))
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// symlink skips the test where there are no symbolic links, or only for some users.
func symlink(t *testing.T, to, path string) {
	t.Helper()
	err := os.Symlink(to, path)
	if runtime.GOOS == "windows" {
		if info, lerr := os.Lstat(path); lerr != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Skip("no symbolic links here")
		}
	}
	require.NoError(t, err)
}

// beginnings are the files and folders in the making, or left over.
func beginnings(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+partialInfix+"*"))
	require.NoError(t, err)
	return names
}

func TestWrite(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path+".tmp", "somebody else's")
	require.NoError(t, WriteAtomic(ctx, path, text("one")))
	require.Equal(t, "one", content(t, path))

	// Nothing shows before the end, and a failure leaves what was there.
	fails := errors.New("no more")
	err := WriteAtomic(ctx, path, func(w io.Writer) error {
		require.NoError(t, text("half")(w))
		require.Equal(t, "one", content(t, path))
		require.Len(t, beginnings(t, dir), 1)
		return fails
	})
	require.ErrorIs(t, err, fails)
	require.Equal(t, "one", content(t, path))
	require.Empty(t, beginnings(t, dir))

	if runtime.GOOS != "windows" {
		require.NoError(t, os.Chmod(path, 0o600))
	}
	before, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, WriteAtomic(ctx, path, text("two")))
	require.Equal(t, "two", content(t, path))
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, before.Mode(), after.Mode())
	require.Equal(t, "somebody else's", content(t, path+".tmp"))

	require.ErrorIs(t, WriteAtomic(ctx, dir, text("x")), ErrFolder)
	require.ErrorIs(t, WriteAtomic(ctx, filepath.Join(dir, "no", "f"), text("x")), fs.ErrNotExist)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

// What is read may not be written, by whatever name it goes.
func TestWriteKeeps(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "kept")
	require.NoError(t, os.Link(path, filepath.Join(dir, "hard")))
	symlink(t, "f", filepath.Join(dir, "soft"))
	for _, name := range []string{"f", "hard", "soft", "./f"} {
		err := WriteAtomic(t.Context(), filepath.Join(dir, name), text("x"), filepath.Join(dir, "none"), path)
		require.ErrorIs(t, err, ErrOutputIsInput, name)
		require.Equal(t, "kept", content(t, path))
	}
}

// A symbolic link stays, and what it points to is written, there or not.
func TestWriteThroughLink(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o777))
	for link, to := range map[string]string{"there": "a/f", "dangling": "a/b/../g", "twice": "there"} {
		symlink(t, to, filepath.Join(dir, link))
	}
	write(t, filepath.Join(dir, "a", "f"), "old")
	require.NoError(t, WriteAtomic(t.Context(), filepath.Join(dir, "twice"), text("new")))
	require.Equal(t, "new", content(t, filepath.Join(dir, "a", "f")))
	require.NoError(t, WriteAtomic(t.Context(), filepath.Join(dir, "dangling"), text("new")))
	require.Equal(t, "new", content(t, filepath.Join(dir, "a", "g")))
	for _, link := range []string{"there", "dangling", "twice"} {
		info, err := os.Lstat(filepath.Join(dir, link))
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&fs.ModeSymlink, link)
	}
	symlink(t, "loop", filepath.Join(dir, "loop"))
	require.Error(t, WriteAtomic(t.Context(), filepath.Join(dir, "loop"), text("x")))
	require.Empty(t, beginnings(t, dir))
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d")
	d, err := CreateAtomicFolder(path)
	require.NoError(t, err)
	require.NoError(t, d.Write("f", text("x")))
	require.ErrorIs(t, d.Write("f", text("x")), fs.ErrExist)
	require.NoDirExists(t, path, "nothing may show before Commit")
	require.NoError(t, d.Commit())
	require.NoError(t, d.Close())
	require.Equal(t, "x", content(t, filepath.Join(path, "f")))
	require.ErrorIs(t, d.Commit(), os.ErrClosed)

	_, err = CreateAtomicFolder(path)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "not empty")
	_, err = CreateAtomicFolder(filepath.Join(path, "f"))
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = CreateAtomicFolder(filepath.Join(path, "no", "parent"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = CreateAtomicFolder(".")
	require.Error(t, err)

	given, err := CreateAtomicFolder(filepath.Join(dir, "e"))
	require.NoError(t, err)
	require.NoError(t, given.Write("f", text("x")))
	require.NoError(t, given.Close())
	require.NoError(t, given.Close())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)

	// Somebody else may be faster.
	late, err := CreateAtomicFolder(filepath.Join(dir, "e"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "e", "theirs"), 0o777))
	require.ErrorIs(t, late.Commit(), fs.ErrExist)
	require.NoError(t, late.Close())
	require.DirExists(t, filepath.Join(dir, "e", "theirs"))
	require.Empty(t, beginnings(t, dir))
}

// An empty folder behind a symbolic link is filled where it is; its mode stays.
func TestFolderThroughLink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "sub", "real"), filepath.Join(dir, "link")
	require.NoError(t, os.MkdirAll(real, 0o777))
	require.NoError(t, os.Chmod(real, 0o700))
	symlink(t, "sub/real", link)
	d, err := CreateAtomicFolder(link)
	require.NoError(t, err)
	require.NoError(t, d.Write("f", text("x")))
	require.NoError(t, d.Commit())
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
	require.Equal(t, "x", content(t, filepath.Join(real, "f")))
	if info, err = os.Stat(real); runtime.GOOS != "windows" {
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	}
}

// What a killed writer left is removed by the next one for the same name; what a
// living one has in the making is not, nor is anything of another name.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	const left = partialInfix + "0123456789abcdef"
	folders := runtime.GOOS != "windows" // which locks none
	if folders {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "d"+left, "sub"), 0o777))
		write(t, filepath.Join(dir, "d"+left, "sub", "f"), "x")
	}
	for _, name := range []string{"f" + left, "f" + left + "0", "f" + partialInfix + "0123456789abcdeX", "dd" + left} {
		write(t, filepath.Join(dir, name), "x")
	}
	alive, err := CreateAtomicFolder(filepath.Join(dir, "d"))
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(dir, "d"+left))
	second, err := CreateAtomicFolder(filepath.Join(dir, "d"))
	require.NoError(t, err)
	require.DirExists(t, alive.Path())
	require.NoError(t, second.Close())

	living, err := CreateAtomic(t.Context(), filepath.Join(dir, "f"))
	require.NoError(t, err)
	require.NoError(t, WriteAtomic(t.Context(), filepath.Join(dir, "f"), text("x")))
	require.NoFileExists(t, filepath.Join(dir, "f"+left))
	require.NoError(t, living.Commit())
	require.NoError(t, alive.Close())
	require.Len(t, beginnings(t, dir), 3, "of other names")
}

// A name may be as long as the file system lets it be.
func TestLongName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("é", 127)) // 254 bytes
	require.NoError(t, WriteAtomic(t.Context(), path, text("x")))
	require.FileExists(t, path)
}

func TestCancelledWrite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	path := filepath.Join(t.TempDir(), "f")
	err := WriteAtomic(ctx, path, func(io.Writer) error { cancel(); return errors.New("stopped") })
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, path)
}
