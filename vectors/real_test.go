package vectors

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/realdata"
)

// Collections beside the checkout: what its README says of them holds.
func TestRealCollections(t *testing.T) {
	for _, c := range []struct {
		set                string
		docs, tokens, most int
		empty, queries     int
	}{
		{"scifact-sample", 46, 9021, 290, 0, 24},
		{"cranfield", 1400, 235915, 286, 2, 225},
	} {
		t.Run(c.set, func(t *testing.T) {
			base := realdata.Path(t, "data", c.set)
			dir := filepath.Join(base, "vectors")
			s := open(t, Files{
				Vectors: filepath.Join(dir, "docs.npy"), Lengths: filepath.Join(dir, "doclens.npy"),
				IDs: filepath.Join(dir, "doc_ids.txt"), Payload: filepath.Join(base, "corpus.jsonl"),
			})
			require.Equal(t, c.docs, s.Len())
			require.Equal(t, 128, s.Dim())
			tokens, most, empty, i := 0, 0, 0, 0
			for d, err := range s.Docs(context.Background(), 0, s.Len()) {
				require.NoError(t, err)
				require.Contains(t, string(d.Payload), `"`+d.ID+`"`)
				n := len(d.Tokens) / 128
				if n != s.Rows(i) {
					t.Fatalf("document %d has %d rows, Rows says %d", i, n, s.Rows(i))
				}
				tokens, most, i = tokens+n, max(most, n), i+1
				if n == 0 {
					empty++
				}
				for at := 0; at < len(d.Tokens); at += 128 {
					sum := 0.0
					for _, v := range d.Tokens[at : at+128] {
						sum += float64(v) * float64(v)
					}
					if math.Abs(sum-1) > 2e-3 {
						t.Fatalf("document %s, token %d: squared norm %v", d.ID, at/128, sum)
					}
				}
			}
			require.Equal(t, c.tokens, tokens)
			require.LessOrEqual(t, most, c.most)
			require.Equal(t, c.empty, empty)
			q := open(t, Files{Vectors: filepath.Join(dir, "queries.npy"), IDs: filepath.Join(dir, "query_ids.txt")})
			require.Equal(t, c.queries, q.Len())
			require.Equal(t, 32, q.Rows(0))
			_, err := collect(q, 0, q.Len())
			require.NoError(t, err)
		})
	}
}

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
