package interop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pylateFolder is the folder of an index of PyLate, with a file of ids from testdata.
func pylateFolder(t *testing.T, ids string) string {
	dir := filepath.Join(t.TempDir(), "indexes", "name")
	require.NoError(t, os.CopyFS(filepath.Join(dir, pylateInside), os.DirFS("testdata/real/fast-plaid")))
	if ids != "" {
		data, err := os.ReadFile(filepath.Join("testdata/pylate", ids))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, pylateIDs), data, 0o600))
	}
	return dir
}

func TestPyLateFolder(t *testing.T) {
	dir := pylateFolder(t, pylateIDs)
	for _, given := range []string{dir, filepath.Join(dir, pylateInside)} {
		x, err := Open(given)
		require.NoError(t, err)
		require.Equal(t, EngineFastPlaid, x.Engine)
		require.Len(t, x.DocLens, 46)
		require.Empty(t, x.Warnings)
		require.Len(t, x.IDs, 46)
		for n, id := range x.IDs {
			want := fmt.Sprintf("doc %d", n)
			switch n {
			case 7:
				want = "long " + strings.Repeat("x", 1500)
			case 9:
				want = "1009"
			}
			require.Equal(t, want, id)
		}
		require.NotEmpty(t, collect(t, x, 100).codes)
		require.NoError(t, x.Unchanged())
	}
	x, err := Open(pylateFolder(t, "removed.sqlite"))
	require.NoError(t, err)
	require.Equal(t, []string{"", "doc 1"}, x.IDs[:2])
	require.Equal(t, "", x.IDs[40])
	require.Len(t, x.Warnings, 1)
	require.Contains(t, x.Warnings[0], "2 documents have no id")

	x, err = Open(pylateFolder(t, ""))
	require.NoError(t, err)
	require.Nil(t, x.IDs)

	_, err = Open(filepath.Dir(dir))
	require.ErrorIs(t, err, ErrNotIndex)
	require.ErrorContains(t, err, "did you mean "+dir+" in it?")
	require.NoError(t, os.WriteFile(filepath.Join(dir, pylateIDs+"-journal"), []byte("x"), 0o600))
	_, err = Open(dir)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "changes wait in")
}

// TestBrokenPyLateIDs: ids for documents that are not there, and files cut short.
func TestBrokenPyLateIDs(t *testing.T) {
	dir := pylateFolder(t, pylateIDs)
	path := filepath.Join(dir, pylateIDs)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"empty": {}, "text": []byte(strings.Repeat("text", 128)), "cut to a page": good[:512], "cut within one": good[:1000],
		"another number": bytes.Replace(good, []byte("45\x80"), []byte("46\x80"), 1),
		"another table":  bytes.Replace(good, []byte("tableunnamedunnamed"), []byte("tableunnamexunnamed"), 1),
		"no pickle":      bytes.Replace(good, []byte("\x80\x05\x95\x09"), []byte("\x80\x09\x95\x09"), 1),
	} {
		require.NotEqual(t, good, data, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		_, err = Open(dir)
		require.Error(t, err, name)
		require.True(t, isFault(err), "%s: %v", name, err)
		require.ErrorContains(t, err, pylateIDs, name)
	}
}

func FuzzDict(f *testing.F) {
	for _, name := range []string{pylateIDs, "removed.sqlite"} {
		data, err := os.ReadFile(filepath.Join("testdata/pylate", name))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := eachDictRow(bytes.NewReader(data), int64(len(data)), func(key string, value []byte) error {
			if len(key)+len(value) > maxRow {
				t.Fatalf("a row of %d bytes", len(key)+len(value))
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrBroken) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("error of no kind: %v", err)
		}
	})
}
