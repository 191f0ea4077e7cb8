package server_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// Scores over HTTP are those of a search of the same file, to the bit, in both forms of
// vectors and in every mode.
func TestScoresAreThoseOfTheEngine(t *testing.T) {
	ctx := context.Background()
	m := searchtest.New(7, 32, 8)
	src, err := vectors.FromDocuments(32, m.Docs("d", 400, 12))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err = index.Build(ctx, path, src, &index.BuildOptions{Nbits: 2, Centroids: 64})
	require.NoError(t, err)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	s := start(t, nil, nil)
	r := s.send(t, "PUT", "/indices/pets/backup", file, octets)
	require.Equal(t, 200, r.status, r.body)
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	defer ix.Close()
	e, err := search.New(ctx, ix, nil)
	require.NoError(t, err)
	defer e.Close()
	for range 5 {
		q := search.Query{Vectors: m.Tokens(6), Dim: 32}
		rows := make([][]float32, 6)
		var raw []byte
		for i := range rows {
			rows[i] = q.Vectors[32*i : 32*i+32]
		}
		for _, x := range q.Vectors {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		for _, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
			want, err := e.Search(ctx, q, search.Options{K: 20, Mode: mode})
			require.NoError(t, err)
			for _, form := range []object{{"embeddings": rows}, {"embeddings_b64": base64.StdEncoding.EncodeToString(raw), "shape": list{6, 32}}} {
				f := s.search(t, "", object{"queries": list{form}, "params": object{"top_k": 20, "mode": mode.String()}})
				require.Len(t, f.Results[0].Scores, 20)
				for i, h := range want.Hits {
					require.Equal(t, h.Ordinal, f.Results[0].Documents[i])
					require.Equal(t, math.Float32bits(h.Score), math.Float32bits(f.Results[0].Scores[i]))
				}
			}
		}
	}
}
