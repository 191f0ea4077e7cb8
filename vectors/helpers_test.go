package vectors

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// rawNPY is a version 1.0 file with the given header text and data, and no
// padding: its data begin wherever they do.
func rawNPY(header string, data []byte) []byte {
	b := []byte(npyMagic + "\x01\x00")
	b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	return append(append(b, header...), data...)
}

func npyBytes(t testing.TB, dtype string, shape []int, values ...float32) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteNPY(&b, dtype, shape, values))
	return b.Bytes()
}

func npyInts(t testing.TB, dtype string, shape []int, values ...int64) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteNPYInts(&b, dtype, shape, values))
	return b.Bytes()
}

// safetensorsBytes puts a JSON header before data.
func safetensorsBytes(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func f32Bytes(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// tempFile writes a file into a new folder.
func tempFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o644))
	return path
}

// collect copies the documents from to to.
func collect(s Source, from, to int) ([]Document, error) {
	var docs []Document
	for d, err := range s.Docs(context.Background(), from, to) {
		if err != nil {
			return docs, err
		}
		d.Tokens, d.Payload = slices.Clone(d.Tokens), slices.Clone(d.Payload)
		docs = append(docs, d)
	}
	return docs, nil
}

// all reads a whole source, and checks that its accessors agree with what it
// reads, and that reading one document at a time, backwards, gives the same.
func all(t testing.TB, s Source) []Document {
	t.Helper()
	docs, err := collect(s, 0, s.Len())
	require.NoError(t, err)
	require.Len(t, docs, s.Len())
	for i := len(docs) - 1; i >= 0; i-- {
		require.Equal(t, docs[i].ID, s.ID(i))
		require.Len(t, docs[i].Tokens, s.Rows(i)*s.Dim())
		one, err := collect(s, i, i+1)
		require.NoError(t, err)
		require.Equal(t, docs[i:i+1], one)
	}
	return docs
}

func open(t testing.TB, files Files) Source {
	t.Helper()
	s, err := Open(context.Background(), files)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()); require.NoError(t, s.Close()) })
	return s
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}
