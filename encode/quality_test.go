package encode

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// stored are the vectors of a collection that Python computed, as float16.
func stored(t testing.TB, name string) (out encoded, ids int) {
	t.Helper()
	dir := shared(t, "data", name, "vectors")
	read := func(files vectors.Files) (list [][]float32) {
		s, err := vectors.Open(t.Context(), files)
		require.NoError(t, err)
		defer s.Close()
		out.dim = s.Dim()
		for d, err := range s.Docs(t.Context(), 0, s.Len()) {
			require.NoError(t, err)
			list = append(list, slices.Clone(d.Tokens))
		}
		return list
	}
	out.docs = read(vectors.Files{Vectors: filepath.Join(dir, "docs.npy"), Lengths: filepath.Join(dir, "doclens.npy")})
	out.queries = read(vectors.Files{Vectors: filepath.Join(dir, "queries.npy")})
	for _, d := range out.docs {
		ids += len(d) / out.dim
	}
	return out, ids
}

// fault is what differs from the stored vectors: "" if nothing does.
func fault(want, got [][]float32) string {
	if len(want) != len(got) {
		return "number of texts"
	}
	equal, all := 0, 0
	for i := range want {
		if len(want[i]) != len(got[i]) {
			return "number of vectors"
		}
		for j, x := range want[i] {
			// Half a unit in the last place of float16, and what float32 may differ by.
			if d := math.Abs(float64(x - got[i][j])); d > math.Abs(float64(x))/2048+3e-6 {
				return "a component"
			}
			if kernels.F16ToF32(kernels.F16FromF32(got[i][j])) == x {
				equal++
			}
		}
		all += len(want[i])
	}
	if float64(equal) < 0.993*float64(all) {
		return "too many last bits"
	}
	return ""
}

// collections are those that are held against Python: the larger ones are
// called for by PLAID_ENCODE_LARGE.
func collections() []string {
	if os.Getenv("PLAID_ENCODE_LARGE") != "" {
		return []string{"scifact-sample", "lotte-500", "cranfield"}
	}
	return []string{"scifact-sample"}
}

// TestStored: text to vectors, against onnxruntime with the same weights; lengths
// of all texts, components, rankings.
func TestStored(t *testing.T) {
	effort.SkipBrief(t, "TestSameBytes has its goroutines")
	want := map[string]float64{"scifact-sample": 0.8731, "lotte-500": 0.9687, "cranfield": 0.5470}
	for _, name := range collections() {
		c := load(t, name)
		reference, kept := stored(t, name)
		dir := mini(t)
		if !effort.Long() {
			c.docs, reference.docs = c.docs[:8], reference.docs[:8]
			c.queries, reference.queries = c.queries[:10], reference.queries[:10]
		}
		exact := encodeAll(t, open(t, dir, nil), c)
		require.Empty(t, fault(reference.docs, exact.docs))
		require.Empty(t, fault(reference.queries, exact.queries))
		if !effort.Long() {
			continue
		}
		n := 0
		for _, d := range exact.docs {
			n += len(d) / exact.dim
		}
		require.Equal(t, kept, n)
		best, ndcg := rank(c, exact)
		t.Logf("%s: %d vectors, nDCG@10 %.4f", name, n, ndcg)
		require.InDelta(t, want[name], ndcg, 2e-4)

		rough := encodeAll(t, open(t, dir, &Options{Precision: Int8}), c)
		top, ndcg := rank(c, rough)
		same, all := 0, 0
		for i := range best {
			for _, j := range top[i] {
				all++
				for _, k := range best[i] {
					if j == k {
						same++
					}
				}
			}
		}
		t.Logf("%s, int8: nDCG@10 %.4f, overlap %.3f", name, ndcg, float64(same)/float64(all))
		require.InDelta(t, want[name], ndcg, 0.005)
		require.GreaterOrEqual(t, float64(same), 0.95*float64(all))
		least, mean := cosines(exact.docs, rough.docs, exact.dim)
		t.Logf("%s, int8: cosines, least %.4f, mean %.5f", name, least, mean)
		require.Greater(t, least, 0.975)
		require.Greater(t, mean, 0.9985)
	}
}

// TestNanoRanks: the small model's own figure, of its README.
func TestNanoRanks(t *testing.T) {
	if !effort.Long() {
		t.Skip("long")
	}
	c := load(t, "scifact-sample")
	_, ndcg := rank(c, encodeAll(t, open(t, nano(t), nil), c))
	t.Logf("nDCG@10 %.4f", ndcg)
	require.InDelta(t, 0.8910, ndcg, 2e-4)
}

// cosines of unit vectors.
func cosines(want, got [][]float32, dim int) (least, mean float64) {
	least = 1
	n := 0
	for i := range want {
		for j := 0; j < len(want[i]); j += dim {
			s := 0.0
			for k := range dim {
				s += float64(want[i][j+k]) * float64(got[i][j+k])
			}
			least, mean, n = min(least, s), mean+s, n+1
		}
	}
	return least, mean / float64(n)
}
