package hub

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A list of files names none outside the folder, and only hashes that can be names of blobs.
func FuzzListing(f *testing.F) {
	commit := strings.Repeat("a", 40)
	f.Add([]byte(`{"sha": "` + commit + `", "siblings": [
		{"rfilename": "a/b", "size": 1, "blobId": "` + commit + `", "lfs": {"sha256": "x", "size": 2}}]}`))
	f.Add([]byte(`{"sha": "` + commit + `", "siblings": [{"rfilename": "../b", "size": -1}, {"rfilename": ""}, null]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseListing(b)
		if err != nil {
			require.ErrorIs(t, err, ErrAnswer)
			return
		}
		require.Regexp(t, commitPattern, l.commit)
		for path, file := range l.files {
			require.Equal(t, path, file.Path)
			require.True(t, filepath.IsLocal(filepath.FromSlash(path)), path)
			require.True(t, file.hash == "" || isHash(file.hash))
			require.GreaterOrEqual(t, file.Bytes, int64(-1))
		}
	})
}

// A name leads to a folder within the cache, and is read as it is written.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a/b", "a/b@c", "../a", "a/b@../../c", "a/b@refs/pr/1", "a--b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := Parse(s)
		if !ok {
			return
		}
		require.Equal(t, s, n.String())
		require.Equal(t, 2, strings.Count(n.folder(), "--"))
		require.Equal(t, n.folder(), filepath.Base(n.folder()))
		ref := filepath.Join("refs", filepath.FromSlash(n.revision()))
		require.True(t, filepath.IsLocal(ref))
		require.True(t, strings.HasPrefix(ref, "refs"+string(filepath.Separator)), ref)
		require.NotContains(t, n.downloadCommand(), " --help")
		require.NotContains(t, n.downloadCommand(), ";")
	})
}
