package interop

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBundled reads the indexes of testdata/real, which the programs themselves
// wrote, and compares MaxSim over what was read with the scores that they give
// (ColBERT and fast-plaid compute in half precision, next-plaid in bytes). They
// are read, held against their own lists, and written anew without a loss.
func TestBundled(t *testing.T) {
	ctx := context.Background()
	queries, perQuery := readQueries(t, filepath.Join("..", "..", "docs", "examples", "quickstart", "scifact-sample", "vectors", "queries.npy"))
	for _, c := range []struct {
		engine string
		slack  float64
	}{
		{EngineColBERT, 7e-3},
		{EngineFastPlaid, 7e-3},
		{EngineNextPlaid, 7e-3},
	} {
		t.Run(c.engine, func(t *testing.T) {
			dir := filepath.Join("testdata", "real", c.engine)
			before := snapshot(t, dir)
			x := reopen(t, dir)
			require.Equal(t, c.engine, x.Engine)
			require.Empty(t, x.Warnings)
			require.Equal(t, []int{128, 2, 256, 46}, []int{x.Dim, x.Nbits, x.K, len(x.DocLens)})
			require.Equal(t, int64(736), x.Tokens)
			differences, err := x.VerifyIVF(ctx)
			require.NoError(t, err)
			require.Empty(t, differences)

			hits := readHits(t, dir+".hits.tsv", 1, func(s string) int {
				n, err := strconv.Atoi(s)
				require.NoError(t, err)
				return n
			})
			require.Len(t, hits, 24*46)
			require.Less(t, worst(t, x, queries, perQuery, hits, 1), c.slack)

			copied := filepath.Join(t.TempDir(), "copy")
			export(t, x, copied, 100)
			y := reopen(t, copied)
			require.Empty(t, y.Warnings)
			require.Equal(t, x.Centroids, y.Centroids)
			require.Equal(t, x.Weights, y.Weights)
			require.Equal(t, x.DocLens, y.DocLens)
			require.Equal(t, collect(t, x, 100), collect(t, y, 1<<16))
			require.NoError(t, x.Unchanged())
			require.Equal(t, before, snapshot(t, dir))
		})
	}
}
