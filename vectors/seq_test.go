package vectors

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// stream yields documents from one buffer that it uses again, as streams do.
func stream(docs []Document, last error) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		var tokens []float32
		var payload []byte
		for _, d := range docs {
			tokens, payload = append(tokens[:0], d.Tokens...), append(payload[:0], d.Payload...)
			next := Document{ID: d.ID, Tokens: tokens}
			if d.Payload != nil {
				next.Payload = payload
			}
			if !yield(next, nil) {
				return
			}
		}
		if last != nil {
			yield(Document{}, last)
		}
	}
}

// A stream is what its documents are in memory, however much of it may stay there.
func TestFromSeq(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dim := rapid.IntRange(1, 4).Draw(rt, "dim")
		named := rapid.Bool().Draw(rt, "ids")
		var docs []Document
		for i := range rapid.IntRange(0, 12).Draw(rt, "docs") {
			d := Document{Tokens: rapid.SliceOfN(rapid.Float32Range(-1, 1), 0, 4).Draw(rt, "tokens")}
			for len(d.Tokens)%dim != 0 {
				d.Tokens = append(d.Tokens, 0)
			}
			if named {
				d.ID = "d" + strconv.Itoa(i)
			}
			if rapid.Bool().Draw(rt, "payload") {
				d.Payload = []byte(`{"n": 1}`)
			}
			docs = append(docs, d)
		}
		want, err := FromDocuments(dim, docs)
		require.NoError(rt, err)
		for _, memory := range []int64{0, 1, 300} {
			got, err := FromSeq(context.Background(), dim, stream(docs, nil), &SeqOptions{Memory: memory})
			require.NoError(rt, err)
			require.Equal(rt, want.Len(), got.Len())
			require.Equal(rt, want.Dim(), got.Dim())
			for range 2 {
				i := 0
				for d, err := range got.Docs(context.Background(), 0, got.Len()) {
					require.NoError(rt, err)
					require.Equal(rt, want.ID(i), d.ID)
					require.Equal(rt, len(docs[i].Tokens), len(d.Tokens))
					for j, v := range docs[i].Tokens {
						require.Equal(rt, v, d.Tokens[j])
					}
					require.Equal(rt, docs[i].Payload, d.Payload)
					i++
				}
				require.Equal(rt, len(docs), i)
			}
			require.NoError(rt, got.Close())
		}
	})
}

func TestFromSeqErrors(t *testing.T) {
	docs := []Document{{ID: "a", Tokens: []float32{1, 2}}, {ID: "b", Tokens: []float32{3, 4}}}
	broken := errors.New("the cursor broke")
	for _, memory := range []int64{0, 1} {
		o := &SeqOptions{Memory: memory}
		_, err := FromSeq(t.Context(), 2, stream(docs, broken), o)
		require.ErrorIs(t, err, broken)
		_, err = FromSeq(t.Context(), 2, stream([]Document{docs[0], docs[0]}, nil), o)
		require.ErrorIs(t, err, ErrID)
		_, err = FromSeq(t.Context(), 3, stream(docs, nil), o)
		require.ErrorIs(t, err, ErrShape)
		_, err = FromSeq(t.Context(), 2, stream([]Document{{Tokens: []float32{1, float32(nan())}}}, nil), o)
		require.ErrorIs(t, err, ErrValue)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = FromSeq(ctx, 2, stream(docs, nil), o)
		require.ErrorIs(t, err, context.Canceled)
	}
	path := filepath.Join(t.TempDir(), "spool")
	src, err := FromSeq(t.Context(), 2, stream(docs, nil), &SeqOptions{Spool: SpoolOptions{Path: path}})
	require.NoError(t, err)
	require.NoError(t, src.Close())
	require.FileExists(t, path)
	_, err = FromSeq(t.Context(), 2, stream(docs, nil), &SeqOptions{Spool: SpoolOptions{Path: path}})
	require.ErrorIs(t, err, os.ErrExist)
}

func nan() float64 {
	var zero float64
	return zero / zero
}
