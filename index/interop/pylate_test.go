package interop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plaid-ir/plaid/vectors"
	"github.com/stretchr/testify/require"
)

// pylateFolder is the folder of an index of PyLate, with a file of ids from testdata.
func pylateFolder(t *testing.T, ids string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "indexes", "name")
	require.NoError(t, os.CopyFS(filepath.Join(dir, pylateInside), os.DirFS("testdata/real/fast-plaid")))
	if ids != "" {
		data, err := os.ReadFile(filepath.Join("testdata/pylate", ids))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, pylateIDs+filepath.Ext(ids)), data, 0o600))
	}
	return dir
}

func TestPyLateFolder(t *testing.T) {
	for _, form := range []string{".sqlite", ".pkl"} {
		dir := pylateFolder(t, pylateIDs+form)
		for _, given := range []string{dir, filepath.Join(dir, pylateInside)} {
			x, err := Open(given)
			require.NoError(t, err)
			require.Equal(t, EngineFastPlaid, x.Engine)
			require.Len(t, x.DocLens, 46)
			ids, err := x.IDs(t.Context())
			require.NoError(t, err)
			require.Empty(t, x.Warnings)
			require.Len(t, ids, 46)
			for n, id := range ids {
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
		x, err := Open(pylateFolder(t, "removed"+form))
		require.NoError(t, err)
		ids, err := x.IDs(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"", "doc 1"}, ids[:2])
		require.Equal(t, "", ids[40])
		require.Len(t, x.Warnings, 1)
		require.Contains(t, x.Warnings[0], "2 documents have no id")
	}
	x, err := Open(pylateFolder(t, ""))
	require.NoError(t, err)
	ids, err := x.IDs(t.Context())
	require.NoError(t, err)
	require.Nil(t, ids)

	dir := pylateFolder(t, pylateIDs+".sqlite")
	_, err = Open(filepath.Dir(dir))
	require.ErrorIs(t, err, ErrNotIndex)
	require.ErrorContains(t, err, "did you mean "+dir+" in it?")
	refused := func(reason string) {
		t.Helper()
		x, err := Open(dir)
		require.NoError(t, err)
		_, err = x.IDs(t.Context())
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, reason)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, pylateIDs+".sqlite-journal"), []byte("x"), 0o600))
	refused("changes wait in")
	require.NoError(t, os.WriteFile(filepath.Join(dir, pylateIDs+".pkl"), []byte("x"), 0o600))
	refused("ids in ../" + pylateIDs + ".pkl and in")
	require.NoError(t, os.WriteFile(filepath.Join(dir, idsFile), []byte("a\n"), 0o600))
	x, err = Open(dir)
	require.NoError(t, err)
	_, err = x.IDs(t.Context())
	require.ErrorIs(t, err, vectors.ErrID)
	require.ErrorContains(t, err, "1 ids for the 46 documents")
}

// TestBrokenPyLateIDs: ids for documents that are not there, and files cut short.
func TestBrokenPyLateIDs(t *testing.T) {
	for _, form := range []string{".sqlite", ".pkl"} {
		dir := pylateFolder(t, pylateIDs+form)
		path := filepath.Join(dir, pylateIDs+form)
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		replace := func(old, with string) []byte { return bytes.Replace(good, []byte(old), []byte(with), 1) }
		cases := map[string][]byte{
			"empty": {}, "text": []byte(strings.Repeat("text", 128)), "cut to a page": good[:512], "cut": good[:len(good)-1],
		}
		if form == ".sqlite" {
			cases["another number"] = replace("45\x80", "46\x80")
			cases["another table"] = replace("tableunnamedunnamed", "tableunnamexunnamed")
			cases["no pickle"] = replace("\x80\x05\x95\x09", "\x80\x09\x95\x09")
		} else {
			cases["another number"] = replace("K-\x8c", "K.\x8c")
			cases["a number twice"] = replace("K-\x8c", "K+\x8c")
			cases["no dictionary"] = []byte("\x80\x05]\x94.")
			cases["code"] = []byte("cos\nsystem\n(S'false'\ntR.")
		}
		for name, data := range cases {
			require.NotEqual(t, good, data, name)
			require.NoError(t, os.WriteFile(path, data, 0o600))
			x, err := Open(dir)
			require.NoError(t, err)
			_, err = x.IDs(t.Context())
			require.Error(t, err, name)
			require.True(t, isContentError(err), "%s: %v", name, err)
			require.ErrorContains(t, err, pylateIDs+form, name)
		}
	}
}

func FuzzDict(f *testing.F) {
	for _, name := range []string{pylateIDs + ".sqlite", "removed.sqlite"} {
		data, err := os.ReadFile(filepath.Join("testdata/pylate", name))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := visitSQLiteDict(bytes.NewReader(data), int64(len(data)), func(key string, value []byte) error {
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

// Editors of Windows begin JSON with a byte order mark.
func TestMarkedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "marked")
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/real/fast-plaid")))
	all, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, name := range all {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, append([]byte("\ufeff"), text...), 0o600))
	}
	x, err := Open(dir)
	require.NoError(t, err)
	require.Len(t, x.DocLens, 46)
}
