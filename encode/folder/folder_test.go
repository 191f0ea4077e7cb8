package folder

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/vectors"
)

func write(t testing.TB, root, path, text string) {
	t.Helper()
	at := filepath.Join(root, filepath.FromSlash(path))
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o777))
	require.NoError(t, os.WriteFile(at, []byte(text), 0o666))
}

func TestScan(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"a.md": "# A", "sub/b.go": "package b", "Makefile": "all:", ".hidden/c.md": "c", ".d.md": "d", "picture.png": "x", "large.txt": strings.Repeat("x", 101),
		"out/e.md": "e", ".gitignore": "out/",
	} {
		write(t, root, path, text)
	}
	require.NoError(t, os.Symlink(filepath.Join(root, "a.md"), filepath.Join(root, "link.md")))
	require.NoError(t, os.Symlink(root, filepath.Join(root, "round")))
	var dirs []string
	files, passed, err := Scan(t.Context(), root, 100, func(dir string) { dirs = append(dirs, dir) })
	require.NoError(t, err)
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	require.Equal(t, []string{"Makefile", "a.md", "sub/b.go"}, paths)
	require.Equal(t, Skipped{Kinds: 1, Large: 1, Files: []SkippedFile{
		{"large.txt", "101 bytes, more than --max-file"}, {"picture.png", "no kind of text by its name"},
	}}, passed)
	require.Equal(t, []string{root, filepath.Join(root, "sub")}, dirs)

	_, _, err = Scan(t.Context(), filepath.Join(root, "a.md"), 0, nil)
	require.ErrorIs(t, err, ErrFolder)
	_, _, err = Scan(t.Context(), filepath.Join(root, "none"), 0, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = Scan(gone, root, 0, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestReadRefuses(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.md", "text")
	write(t, root, "b.md", "a\xffb")
	write(t, root, "c.md", "a\x00b")
	write(t, root, "d.md", "\xff\xfea\x00")
	files, _, err := Scan(t.Context(), root, 0, nil)
	require.NoError(t, err)
	c, err := files[0].Read(0)
	require.NoError(t, err)
	require.Equal(t, "text", c.Text)
	require.Len(t, c.Digest, 32)
	for _, f := range files[1:] {
		_, err = f.Read(0)
		require.ErrorIs(t, err, ErrBinary)
	}
	require.ErrorContains(t, err, "it is UTF-16: iconv -f UTF-16")
	write(t, root, "a.md", "\ufefftext")
	marked, err := files[0].Read(0)
	require.NoError(t, err)
	require.Equal(t, "text", marked.Text)
	require.NotEqual(t, c.Digest, marked.Digest)
	_, err = files[0].Read(3)
	require.ErrorIs(t, err, ErrLarge)
	require.NoError(t, os.Remove(filepath.Join(root, "a.md")))
	_, err = files[0].Read(0)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Passages of a file are parts of it that lie in the lines that they say, and leave no
// word out.
func TestTextsKnowTheirLines(t *testing.T) {
	root := t.TempDir()
	part := rapid.SampledFrom([]string{"# Head", "## Sub", "word", "two words.", "", "\t", "func a() {", "}", "```", "日本。", "x y z w v u", "\n"})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"x.md", "x.go", "x.txt", "odd#3.md"}).Draw(t, "name")
		text := strings.Join(rapid.SliceOfN(part, 0, 30).Draw(t, "parts"), rapid.SampledFrom([]string{"\n", "\r\n", "\n\n"}).Draw(t, "end"))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o666))
		k, _ := encode.KindByName(name)
		f := File{Path: name, kind: k, root: root}
		c, err := f.Read(0)
		require.NoError(t, err)
		size := rapid.IntRange(1, 9).Draw(t, "size")
		seen, n := make([]bool, len(text)), 0
		for p, err := range c.Texts(encode.Splitting{Window: size, Overlap: rapid.IntRange(0, size-1).Draw(t, "overlap")}) {
			require.NoError(t, err)
			var own struct {
				Path, Digest, Text string
				Line               int
			}
			require.NoError(t, json.Unmarshal(p.Payload, &own))
			require.Equal(t, name, own.Path)
			require.Equal(t, c.Digest, own.Digest)
			require.Equal(t, p.Text, own.Text)
			at, err := vectors.PassageFromPayload(p.ID, p.Payload)
			require.NoError(t, err)
			start, end := 0, len(text)
			if at != nil {
				require.Equal(t, name, at.ParentID)
				start, end = at.Start, at.End
			}
			require.Equal(t, 1+strings.Count(text[:start], "\n"), own.Line)
			require.Equal(t, text[start:end], p.Text)
			for i := start; i < end; i++ {
				seen[i] = true
			}
			n++
		}
		require.Positive(t, n, "a file is known even if it has no word")
		for i, is := range seen {
			require.True(t, is || strings.TrimSpace(text[i:i+1]) == "", "byte %d of %q is in no passage", i, text)
		}
	})
}

// What comes into a folder while it is gone through is there, or told of: whoever watches
// is told of a folder before it is read.
func TestScanMissesNothing(t *testing.T) {
	root := t.TempDir()
	files, _, err := Scan(t.Context(), root, 0, func(dir string) { write(t, dir, "late.md", "late") })
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// A name that no document can have keeps no other file out.
func TestScanNames(t *testing.T) {
	root := t.TempDir()
	write(t, root, "good.md", "good")
	odd := 0
	for _, name := range []string{"line\nbreak.md", "latin\xe4.md"} {
		if os.WriteFile(filepath.Join(root, name), []byte("odd"), 0o666) == nil { // not every system has such names
			odd++
		}
	}
	files, passed, err := Scan(t.Context(), root, 0, nil)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Equal(t, "good.md", files[0].Path)
	require.Equal(t, odd, passed.Names)
}

// A folder that may not be read is passed over, and so is one whose .gitignore may not be.
func TestScanClosed(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("everything may be read")
	}
	root := t.TempDir()
	write(t, root, "good.md", "good")
	write(t, root, "closed/a.md", "a")
	write(t, root, "listed/a.md", "a")
	write(t, root, "hidden/a.md", "a")
	write(t, root, "hidden/.gitignore", "a.md")
	for path, mode := range map[string]os.FileMode{"closed": 0, "listed": 0o400, "hidden/.gitignore": 0} {
		at := filepath.Join(root, path)
		require.NoError(t, os.Chmod(at, mode))
		t.Cleanup(func() { _ = os.Chmod(at, 0o700) })
	}
	files, passed, err := Scan(t.Context(), root, 0, nil)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Equal(t, []string{"closed", "hidden", "listed"}, passed.Closed)
	for path, hidden := range map[string]bool{"closed": true, "closed/a.md": true, "closed.md": false, "good.md": false} {
		require.Equal(t, hidden, passed.MayHide(path), path)
	}
	require.NoError(t, os.Chmod(root, 0))
	t.Cleanup(func() { _ = os.Chmod(root, 0o700) })
	_, _, err = Scan(t.Context(), root, 0, nil)
	require.ErrorIs(t, err, os.ErrPermission)
}
