package index

import (
	"bytes"
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// disturbed is a source during the last reading of which something happens.
type disturbed struct {
	vectors.Source
	passes int // over all documents, before the last one
	happen func()
}

func (d *disturbed) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		whole := from == 0 && to == d.Len()
		if whole {
			d.passes--
		}
		for doc, err := range d.Source.Docs(ctx, from, to) {
			if whole && d.passes < 0 && doc.ID == d.ID(d.Len()/2) {
				d.happen()
			}
			if !yield(doc, err) {
				return
			}
		}
	}
}

// Files that change while an index is built or added to: nothing is committed,
// and no document gets the payload of another.
func TestFilesChangeDuringBuild(t *testing.T) {
	const dim = 8
	ctx, dir := context.Background(), t.TempDir()
	docs := corpus(60, 6, dim, 3)
	var values []float32
	var lengths []int64
	var ids, payload strings.Builder
	for _, d := range docs {
		values = append(values, d.Tokens...)
		lengths = append(lengths, int64(len(d.Tokens)/dim))
		ids.WriteString(d.ID + "\n")
		payload.WriteString(`{"_id":"` + d.ID + `"}` + "\n")
	}
	files := vectors.Files{
		Vectors: filepath.Join(dir, "v.npy"), Lengths: filepath.Join(dir, "l.npy"),
		IDs: filepath.Join(dir, "i.txt"), Payload: filepath.Join(dir, "p.jsonl"),
	}
	var array, lens bytes.Buffer
	require.NoError(t, vectors.WriteNPY(&array, "<f4", []int{len(values) / dim, dim}, values))
	require.NoError(t, vectors.WriteNPYInts(&lens, "<i4", []int{len(lengths)}, lengths))
	content := map[string][]byte{files.Vectors: array.Bytes(), files.Lengths: lens.Bytes(), files.IDs: []byte(ids.String()), files.Payload: []byte(payload.String())}
	open := func(passes int, path string) vectors.Source {
		for path, b := range content {
			require.NoError(t, os.WriteFile(path, b, 0o666))
		}
		src, err := vectors.Open(context.Background(), files)
		require.NoError(t, err)
		t.Cleanup(func() { _ = src.Close() })
		return &disturbed{src, passes, func() {
			longer := append([]byte(`{"_id":"zzz"}`+"\n"), content[path]...)
			require.NoError(t, os.WriteFile(path, longer, 0o666))
		}}
	}
	there := newPath(t)
	build(t, there, dim, docs[:5], nil)
	for path := range content {
		made := newPath(t)
		_, err := Build(ctx, made, open(0, path), &BuildOptions{Centroids: 8, SampleDocs: 5})
		require.ErrorIs(t, err, vectors.ErrChanged)
		require.ErrorContains(t, err, path)
		require.NoFileExists(t, made)

		ix := writing(t, there)
		_, err = ix.Add(ctx, open(0, path), &AddOptions{Replace: true})
		require.ErrorIs(t, err, vectors.ErrChanged)
		require.ErrorContains(t, err, path)
		require.NoError(t, ix.Close())
		reading(t, there, func(s *Snapshot) {
			require.NoError(t, s.Verify(ctx))
			require.Equal(t, 5, s.Len())
		})
	}
}
