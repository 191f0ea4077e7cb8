package vectors

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkDocs(b *testing.B) {
	docs := make([]float32, 1000*128*128)
	for i := range docs {
		docs[i] = float32(i%251) / 256
	}
	npy := tempFile(b, "d.npy", npyBytes(b, "<f2", []int{1000, 128, 128}, docs...))
	path := filepath.Join(b.TempDir(), "d.jsonl")
	var lines strings.Builder
	for i := range 100 {
		for j := range docs[:128*128] {
			docs[j] = float32(math.Sin(float64(i*128*128 + j)))
		}
		lines.WriteString(jsonLines(128, Document{ID: string(rune('一' + i)), Tokens: docs[:128*128]}))
	}
	require.NoError(b, os.WriteFile(path, []byte(lines.String()), 0o644))
	for name, path := range map[string]string{"npy-f2": npy, "jsonl": path} {
		b.Run(name, func(b *testing.B) {
			s, err := Open(context.Background(), Files{Vectors: path})
			require.NoError(b, err)
			defer s.Close()
			b.SetBytes(int64(s.Len()) * 128 * 128 * 4)
			for b.Loop() {
				for _, err := range s.Docs(context.Background(), 0, s.Len()) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
	b.Run("jsonl-open", func(b *testing.B) {
		st, err := os.Stat(path)
		require.NoError(b, err)
		b.SetBytes(st.Size())
		for b.Loop() {
			s, err := Open(context.Background(), Files{Vectors: path})
			require.NoError(b, err)
			s.Close()
		}
	})
}
