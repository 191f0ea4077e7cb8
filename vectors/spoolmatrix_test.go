package vectors

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// The vectors of a spool become the .npy file that a writer would have made.
func TestSpoolMatrix(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dim := rapid.IntRange(1, 5).Draw(rt, "dim")
		docs := anyDocuments(rt, dim)
		at := func(name string) string { return filepath.Join(dir, fmt.Sprint(n, name)) }
		o := &SpoolOptions{Path: at("spool"), Vectors: at("part"), Float16: rapid.Bool().Draw(rt, "float16"), Resume: true}
		cut := rapid.IntRange(0, len(docs)).Draw(rt, "closed after")
		s, err := SpoolDocuments(context.Background(), dim, sequence(docs[:cut]), o)
		require.NoError(rt, err)
		require.NoError(rt, s.Close())
		if rapid.Bool().Draw(rt, "more vectors than documents") { // as a kill between two writes leaves them
			part := readFile(t, o.Vectors)
			require.NoError(rt, os.WriteFile(o.Vectors, append(part, 1, 2, 3, 4, 5), 0o600))
		}
		s, err = NewSpool(dim, o)
		require.NoError(rt, err)
		require.Equal(rt, cut, s.Len())
		var tokens []float32
		for i, d := range docs {
			if i >= cut {
				require.NoError(rt, s.Add(d))
			}
			tokens = append(tokens, d.Tokens...)
		}
		require.NoError(rt, s.CompleteMatrix(at("npy")))
		dtype := "<f4"
		if o.Float16 {
			dtype = "<f2"
		}
		var want bytes.Buffer
		require.NoError(rt, WriteNPY(&want, dtype, []int{len(tokens) / dim, dim}, tokens))
		require.Equal(rt, want.Bytes(), readFile(t, at("npy")))
		require.NoFileExists(t, o.Vectors)

		if len(docs) > 0 {
			_, err = collect(s, 0, 1)
			require.ErrorIs(rt, err, os.ErrClosed)
		}
		require.ErrorIs(rt, s.Add(Document{}), os.ErrClosed)
		require.ErrorIs(rt, s.CompleteMatrix(at("again")), os.ErrClosed)
		require.NoError(rt, s.Close())
	})
	_, err := NewSpool(2, &SpoolOptions{Vectors: filepath.Join(dir, "alone")})
	require.ErrorIs(t, err, ErrShape)
}

// Wherever a kill, or a loss of power, has cut the two files, what is whole in both is
// gone on with, and the files are then as if nothing had happened.
func TestSpoolMatrixResumesAfterACut(t *testing.T) {
	const dim = 2
	docs := []Document{
		{ID: "a", Tokens: []float32{1, 2}, Payload: []byte("{}")},
		{ID: "b", Tokens: []float32{3, 4, 5, 6}},
		{ID: "c"},
		{ID: "d", Tokens: []float32{7, 8}},
	}
	dir := t.TempDir()
	o := &SpoolOptions{Path: filepath.Join(dir, "s"), Vectors: filepath.Join(dir, "v"), Resume: true}
	s, err := NewSpool(dim, o)
	require.NoError(t, err)
	records, rows := []int64{s.size}, []int64{s.matrix.size}
	for _, d := range docs {
		require.NoError(t, s.Add(d))
		records, rows = append(records, s.size), append(rows, s.matrix.size)
	}
	require.NoError(t, s.Close())
	whole, vectors := readFile(t, o.Path), readFile(t, o.Vectors)
	cuts := []int64{0, matrixHeaderBytes - 1}
	for _, end := range rows {
		cuts = append(cuts, end, end+1, end+4)
	}
	for cut := records[0]; cut <= int64(len(whole)); cut += int64(effort.Cases(7, 1)) {
		for _, cutVectors := range cuts {
			cutVectors = min(cutVectors, int64(len(vectors)))
			require.NoError(t, os.WriteFile(o.Path, whole[:cut], 0o600))
			require.NoError(t, os.WriteFile(o.Vectors, vectors[:cutVectors], 0o600))
			want := 0
			for want < len(docs) && cut >= records[want+1] && (cutVectors >= rows[want+1] || rows[want+1] == rows[want]) {
				want++
			}
			s, err := NewSpool(dim, o)
			require.NoError(t, err, "%d, %d", cut, cutVectors)
			require.Equal(t, want, s.Len(), "%d, %d", cut, cutVectors)
			for _, d := range docs[want:] {
				require.NoError(t, s.Add(d))
			}
			require.NoError(t, s.Close())
			require.Equal(t, whole, readFile(t, o.Path))
			require.Equal(t, vectors[matrixHeaderBytes:], readFile(t, o.Vectors)[matrixHeaderBytes:])
		}
	}
}

// Vectors that are damaged with whole ones behind them are an error that names the
// document, and leaves the files as they are.
func TestSpoolMatrixResumesNoDamage(t *testing.T) {
	const dim, n = 2, 4
	dir := t.TempDir()
	o := &SpoolOptions{Path: filepath.Join(dir, "s"), Vectors: filepath.Join(dir, "v"), Resume: true}
	s, err := NewSpool(dim, o)
	require.NoError(t, err)
	var ends []int64
	for i := range n {
		require.NoError(t, s.Add(Document{ID: fmt.Sprint(i), Tokens: make([]float32, (1+i%2)*dim)}))
		ends = append(ends, s.matrix.size)
	}
	require.NoError(t, s.Close())
	whole, vectors := readFile(t, o.Path), readFile(t, o.Vectors)
	for at := matrixHeaderBytes; at < len(vectors); at++ {
		damaged := bytes.Clone(vectors)
		damaged[at] ^= 8
		require.NoError(t, os.WriteFile(o.Path, whole, 0o600))
		require.NoError(t, os.WriteFile(o.Vectors, damaged, 0o600))
		doc := 0
		for ends[doc] <= int64(at) {
			doc++
		}
		s, err := NewSpool(dim, o)
		if doc == n-1 {
			require.NoError(t, err)
			require.Equal(t, doc, s.Len())
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorIs(t, err, ErrFormat)
		var fe *FileError
		require.ErrorAs(t, err, &fe)
		require.Equal(t, doc, fe.Doc)
		require.Equal(t, whole, readFile(t, o.Path))
		require.Equal(t, damaged, readFile(t, o.Vectors))
	}
}

// A process was killed when the matrix was made: the next one takes that back, if it goes
// on with the same documents. Whoever is refused, or has the vectors, leaves it as it is.
func TestSpoolTakesItsMatrixBack(t *testing.T) {
	docs := []Document{{ID: "a", Tokens: []float32{1, 2}}, {ID: "b", Tokens: []float32{3, 4, 5, 6}}}
	for _, c := range []struct {
		name   string
		change func(*SpoolOptions)
		others bool // vectors are there
		open   bool // the first one lives
		want   error
	}{
		{name: "the same"},
		{name: "another model", change: func(o *SpoolOptions) { o.Tag = "x" }, want: ErrSpool},
		{name: "other numbers", change: func(o *SpoolOptions) { o.Float16 = true }, want: ErrSpool},
		{name: "in use", open: true, want: ErrSpoolInUse},
		{name: "vectors are there", others: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			o := SpoolOptions{Path: filepath.Join(dir, "s"), Vectors: filepath.Join(dir, "v"), Matrix: filepath.Join(dir, "m"), Resume: true}
			s, err := SpoolDocuments(t.Context(), 2, sequence(docs), &o)
			require.NoError(t, err)
			defer s.Close()
			require.NoError(t, s.CompleteMatrix(o.Matrix))
			if !c.open {
				require.NoError(t, s.Close())
			}
			matrix := readFile(t, o.Matrix)
			if c.others {
				require.NoError(t, os.WriteFile(o.Vectors, nil, 0o600))
			}
			again := o
			if c.change != nil {
				c.change(&again)
			}
			s, err = NewSpool(2, &again)
			require.ErrorIs(t, err, c.want)
			if err != nil || c.others {
				require.Equal(t, matrix, readFile(t, o.Matrix))
			}
			if err != nil {
				require.NoFileExists(t, o.Vectors)
				return
			}
			defer s.Close()
			if c.others {
				require.Zero(t, s.Len())
				return
			}
			require.NoFileExists(t, o.Matrix)
			require.Equal(t, len(docs), s.Len())
			require.NoError(t, s.CompleteMatrix(o.Matrix))
			require.Equal(t, matrix, readFile(t, o.Matrix))
		})
	}
}
