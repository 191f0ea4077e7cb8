package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string) { // as another file of the same time
		next := path + ".next"
		require.NoError(t, os.WriteFile(next, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(next, time.Unix(1e9, 0), time.Unix(1e9, 0)))
		require.NoError(t, os.Rename(next, path))
	}
	var heard []string
	read := func() (string, error) {
		b, err := os.ReadFile(path)
		if string(b) == "bad" {
			err = errors.New("bad")
		}
		return string(b), err
	}
	keep := func() (*Kept[string], error) {
		return Keep(read, func(v string, err error) {
			if err != nil {
				v = "error"
			}
			heard = append(heard, v)
		}, path)
	}
	_, err := keep()
	require.ErrorIs(t, err, os.ErrNotExist)
	write("one")
	k, err := keep()
	require.NoError(t, err)
	look := func() string { k.looked = time.Time{}; return k.Get() }
	require.Equal(t, "one", look())
	write("two")
	require.Equal(t, "one", k.Get(), "a second has not passed")
	require.Equal(t, "two", look())
	write("bad")
	require.Equal(t, "two", look())
	require.Equal(t, "two", look()) // tried again, and nobody is told
	require.NoError(t, os.Remove(path))
	require.Equal(t, "two", look())
	write("new")
	require.Equal(t, "new", look())
	k.Reload()
	require.Equal(t, []string{"two", "error", "error", "new", "new"}, heard)
}
