package vectors

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func packed(t *testing.T, content, kind string) []byte {
	var b bytes.Buffer
	if kind == ".gz" {
		z := gzip.NewWriter(&b)
		_, err := z.Write([]byte(content))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return b.Bytes()
	}
	z, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	_, err = z.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

// Ids, lengths and payloads may be compressed, and a JSON list may begin with a mark.
func TestPackedBeside(t *testing.T) {
	for _, kind := range []string{".gz", ".zst"} {
		for content, name := range map[string]string{"a\r\nb\n": "ids.txt", "\ufeff[\"a\", \"b\"]": "ids.json"} {
			path := tempFile(t, name+kind, packed(t, content, kind))
			ids, err := ReadIDs(context.Background(), path)
			require.NoError(t, err, path)
			require.Equal(t, []string{"a", "b"}, ids)
		}
		in := new(inputs)
		lengths, err := in.readLengths(context.Background(), tempFile(t, "l.txt"+kind, packed(t, "3\n0\n", kind)))
		require.NoError(t, err)
		require.Equal(t, []int64{3, 0}, lengths)

		temporary := t.TempDir()
		t.Setenv("TMPDIR", temporary)
		t.Setenv("TMP", temporary)
		object := `{"_id":"b","t":"` + strings.Repeat("x", 9999) + `"}`
		path := tempFile(t, "p.jsonl"+kind, packed(t, "{\"_id\":\"a\"}\n"+object+"\n", kind))
		p, err := OpenPayloads(context.Background(), path)
		require.NoError(t, err)
		got, err := p.Get("b")
		require.NoError(t, err)
		require.Equal(t, object, string(got))
		require.NoError(t, p.CheckUnchanged())
		require.NoError(t, p.Close())
		left, err := os.ReadDir(temporary)
		require.NoError(t, err)
		require.Empty(t, left)

		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = OpenPayloads(context.Background(), tempFile(t, "cut.jsonl"+kind, whole[:len(whole)-3]))
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, "is cut short")
		_, err = ReadIDs(context.Background(), tempFile(t, "cut.txt"+kind, packed(t, "a\nb\n", kind)[:20]))
		require.ErrorIs(t, err, ErrFormat)
		left, err = os.ReadDir(temporary)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	_, err := ReadIDs(context.Background(), tempFile(t, "ids.npy.gz", nil))
	require.ErrorContains(t, err, "gunzip")
}
