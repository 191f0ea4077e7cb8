package interop

import (
	"bufio"
	"bytes"
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/vectors"
)

// TestRealColBERT reads the reference index in its two forms: they must agree,
// their lists must follow from their codes, and the source must stay as it is.
func TestRealColBERT(t *testing.T) {
	skipReal(t)
	dirs := []string{realdata.Path(t, "data", "lotte-500", "plaid-index"), realdata.Path(t, "data", "lotte-500", "plaid-npy")}
	var got []*Index
	var streams []collected
	for i, dir := range dirs {
		before := snapshot(t, dir)
		x, err := Open(dir)
		require.NoError(t, err)
		require.Equal(t, []string{EngineColBERT, EngineNPY}[i], x.Engine)
		require.Empty(t, x.Warnings)
		require.Equal(t, []int{128, 2, 2048, 500}, []int{x.Dim, x.Nbits, x.K, len(x.DocLens)})
		require.Equal(t, int64(56658), x.Tokens)
		require.True(t, x.CentroidsF16)
		got = append(got, x)
		streams = append(streams, collect(t, x, 1000))
		differences, err := x.VerifyIVF(context.Background())
		require.NoError(t, err)
		require.Empty(t, differences)
		require.NoError(t, x.Unchanged())
		require.Equal(t, before, snapshot(t, dir))
	}
	require.Equal(t, got[0].Centroids, got[1].Centroids)
	require.Equal(t, got[0].Cutoffs, got[1].Cutoffs)
	require.Equal(t, got[0].Weights, got[1].Weights)
	require.Equal(t, got[0].DocLens, got[1].DocLens)
	require.Equal(t, streams[0], streams[1])
	require.Equal(t, streams[0], collect(t, reopen(t, dirs[0]), 1<<20), "the block size must not matter")
}

func skipReal(t *testing.T) {
	if !effort.Long() {
		t.Skip("the small ones of TestBundled are read in the same way")
	}
}

func reopen(t *testing.T, dir string) *Index {
	x, err := Open(dir)
	require.NoError(t, err)
	return x
}

// decode reconstructs all token vectors, unit length, in float64 rounded to float32.
func decode(x *Index, c collected) []float32 {
	out := make([]float32, len(c.codes)*x.Dim)
	for t, code := range c.codes {
		v := out[t*x.Dim : (t+1)*x.Dim]
		row := c.residuals[t*x.RowBytes() : (t+1)*x.RowBytes()]
		var sum float64
		for j := range v {
			bit := j * x.Nbits
			field := row[bit/8] >> (bit % 8) & (1<<x.Nbits - 1)
			w := float64(x.Centroids[int(code)*x.Dim+j]) + float64(x.Weights[field])
			v[j] = float32(w)
			sum += w * w
		}
		inv := 1 / max(math.Sqrt(sum), 1e-6)
		for j := range v {
			v[j] = float32(float64(v[j]) * inv)
		}
	}
	return out
}

// maxSim is the sum over query tokens of the largest dot product, in float64.
func maxSim(query, doc []float32, dim int) float64 {
	var sum float64
	for q := 0; q < len(query); q += dim {
		best := math.Inf(-1)
		for d := 0; d < len(doc); d += dim {
			var dot float64
			for j := range dim {
				dot += float64(query[q+j]) * float64(doc[d+j])
			}
			best = max(best, dot)
		}
		sum += best
	}
	return sum
}

// readQueries reads [n, tokens, dim] query vectors and scales them to unit length.
func readQueries(t *testing.T, path string) (values []float32, perQuery int) {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	a, err := vectors.NewNPY(bytes.NewReader(b), int64(len(b)), path)
	require.NoError(t, err)
	values = make([]float32, a.Len())
	require.NoError(t, a.Float32s(values, 0))
	dim := a.Shape[2]
	for at := 0; at < len(values); at += dim {
		var sum float64
		for _, v := range values[at : at+dim] {
			sum += float64(v) * float64(v)
		}
		if sum > 0 {
			for j := range dim {
				values[at+j] = float32(float64(values[at+j]) / math.Sqrt(sum))
			}
		}
	}
	return values, a.Shape[1] * dim
}

// golden is a row of a results file.
type goldenHit struct {
	query, doc int
	score      float64
}

// readHits reads tab-separated lines whose last column is the score; query
// names the query's row by its first column.
func readHits(t *testing.T, path string, docColumn int, query func(string) int) []goldenHit {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var out []goldenHit
	for s := bufio.NewScanner(f); s.Scan(); {
		cols := strings.Split(s.Text(), "\t")
		score, err := strconv.ParseFloat(cols[len(cols)-1], 64)
		if err != nil {
			continue // the title line
		}
		doc, err := strconv.Atoi(cols[docColumn])
		require.NoError(t, err)
		out = append(out, goldenHit{query(cols[0]), doc, score})
	}
	require.NotEmpty(t, out)
	return out
}

// worst is the largest difference between golden scores and those of an index.
// every takes one hit in so many, as the whole is many seconds of float64.
func worst(t *testing.T, x *Index, queries []float32, perQuery int, hits []goldenHit, every int) float64 {
	decoded := decode(x, collect(t, x, 4096))
	starts := []int{0}
	for _, n := range x.DocLens {
		starts = append(starts, starts[len(starts)-1]+int(n)*x.Dim)
	}
	var off float64
	for i := 0; i < len(hits); i += every {
		h := hits[i]
		score := maxSim(queries[h.query*perQuery:(h.query+1)*perQuery], decoded[starts[h.doc]:starts[h.doc+1]], x.Dim)
		off = max(off, math.Abs(score-h.score))
	}
	return off
}

// TestRealScores decodes what was read with the folder's own weights and
// compares MaxSim with what the engines themselves, or NumPy, answer. A wrong
// bit order is off by 1 to 5.
func TestRealScores(t *testing.T) {
	skipReal(t)
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		return n
	}
	t.Run("lotte-500", func(t *testing.T) {
		queries, perQuery := readQueries(t, realdata.Path(t, "data", "lotte-500", "colbertv2", "query_embedding.npy"))
		rows := map[string]int{} // query ids in order of first appearance: that of queries.jsonl
		text, err := os.ReadFile(realdata.Path(t, "data", "lotte-500", "queries.jsonl"))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			_, rest, _ := strings.Cut(line, `"_id": "`)
			id, _, ok := strings.Cut(rest, `"`)
			require.True(t, ok)
			rows[id] = len(rows)
		}
		hits := readHits(t, realdata.Path(t, "data", "lotte-500", "golden-decoded-top50.tsv"), 2, func(s string) int {
			row, ok := rows[s]
			require.True(t, ok, s)
			return row
		})
		x := reopen(t, realdata.Path(t, "data", "lotte-500", "plaid-index"))
		require.Less(t, worst(t, x, queries, perQuery, hits, 23), 1e-4)
	})
	for _, c := range []struct {
		engine, results string
		slack           float64
	}{
		{"fast-plaid", "wide.tsv", 7e-3},
		{"next-plaid", "wide-float.tsv", 1e-4},
		{"next-plaid", "wide-int8.tsv", 7e-3},
	} {
		t.Run(c.engine+" "+c.results, func(t *testing.T) {
			queries, perQuery := readQueries(t, realdata.Path(t, "golden", "input", "queries.npy"))
			dir := realdata.Path(t, "golden", c.engine+"-nbits2")
			before := snapshot(t, dir)
			x := reopen(t, dir)
			require.Equal(t, c.engine, x.Engine)
			require.Empty(t, x.Warnings)
			require.Equal(t, int64(17926), x.Tokens)
			hits := readHits(t, realdata.Path(t, "golden", c.engine+"-nbits2-results", c.results), 1, number)
			require.Less(t, worst(t, x, queries, perQuery, hits, 11), c.slack)
			differences, err := x.VerifyIVF(context.Background())
			require.NoError(t, err)
			require.Empty(t, differences)
			require.NoError(t, x.Unchanged())
			require.Equal(t, before, snapshot(t, dir))
		})
	}
}

// TestRealExport writes each real index anew; the copy must read the same.
func TestRealExport(t *testing.T) {
	skipReal(t)
	for _, elem := range [][]string{{"data", "lotte-500", "plaid-index"}, {"golden", "fast-plaid-nbits2"}} {
		x := reopen(t, realdata.Path(t, elem...))
		dir := t.TempDir() + "/copy"
		export(t, x, dir, 777)
		y := reopen(t, dir)
		require.Equal(t, EngineNextPlaid, y.Engine)
		require.Empty(t, y.Warnings)
		require.Equal(t, x.Centroids, y.Centroids)
		require.Equal(t, x.Cutoffs, y.Cutoffs)
		require.Equal(t, x.Weights, y.Weights)
		require.Equal(t, x.DocLens, y.DocLens)
		require.Equal(t, collect(t, x, 1<<16), collect(t, y, 1<<16))
		differences, err := y.VerifyIVF(context.Background())
		require.NoError(t, err)
		require.Empty(t, differences)
	}
}

// export writes an opened index to dir.
func export(t require.TestingT, x *Index, dir string, block int) {
	w, err := Create(dir, Header{
		Dim: x.Dim, Nbits: x.Nbits, Centroids: x.Centroids, Cutoffs: x.Cutoffs, Weights: x.Weights, DocLens: x.DocLens,
	})
	require.NoError(t, err)
	defer w.Close()
	for b, err := range x.Blocks(context.Background(), block) {
		require.NoError(t, err)
		require.NoError(t, w.WriteBlock(b.Codes, b.Residuals))
	}
	require.NoError(t, w.Commit(context.Background()))
}
