package search

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// longForm leaves a test of whole collections to the long form.
func longForm(t testing.TB) {
	t.Helper()
	if !effort.Long() {
		t.Skip("takes long: PLAID_LONG is not set")
	}
}

func number(t testing.TB, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	require.NoError(t, err)
	return v
}

func imported(t *testing.T, dir string) *index.Index {
	t.Helper()
	path := filepath.Join(t.TempDir(), "imported.plaid")
	_, err := index.Import(context.Background(), dir, path, nil)
	require.NoError(t, err)
	return searchtest.Open(t, path)
}

// An imported reference index of ColBERT, with real queries, against MaxSim
// over its decoded vectors in float64.
func TestRealColBERTIndex(t *testing.T) {
	ix := imported(t, realdata.Path(t, "data", "lotte-500", "plaid-index"))
	queries := searchtest.Load(t, vectors.Files{Vectors: realdata.Path(t, "data", "lotte-500", "colbertv2", "query_embedding.npy")})
	require.Len(t, queries, 100)
	golden := searchtest.Table(t, realdata.Path(t, "data", "lotte-500", "golden-decoded-top50.tsv"), true)
	require.Len(t, golden, 100*50)

	e := on(t, ix, 2)
	const k, tol = 50, 2e-3
	worst, swaps, recall50, recall10, seen := 0.0, 0, 0.0, 0.0, 0.0
	oracle := newOracle(t, searchtest.Snapshot(t, ix))
	for i, q := range queries {
		if !effort.Long() && i%9 != 0 {
			continue
		}
		seen++
		want := golden[i*k : (i+1)*k] // its queries are in the order of the file
		require.Equal(t, want[0][0], want[k-1][0])
		exact := search(t, e, Query{Vectors: q.Tokens}, Options{K: k, Mode: Exhaustive}).Hits
		require.Len(t, exact, k)
		if i%45 == 0 {
			oracle.check(t, Query{Vectors: q.Tokens}, exact, k, nil)
		}
		scores, names := map[string]float64{}, []string{}
		for _, row := range want {
			scores[row[2]] = number(t, row[4])
			names = append(names, row[2])
		}
		for r, h := range exact {
			at := number(t, want[r][4])
			own, ok := scores[h.ID]
			if !ok {
				own = number(t, want[k-1][4]) // it took the last place in a near tie
			}
			require.InDelta(t, own, h.Score, tol, "query %d, document %s", i, h.ID)
			require.InDelta(t, at, h.Score, tol, "query %d, rank %d", i, r+1)
			worst = max(worst, abs(at-float64(h.Score)))
			if h.ID != want[r][2] {
				swaps++
			}
		}
		pruned := search(t, e, Query{Vectors: q.Tokens}, Options{K: k})
		recall50 += shareFound(ids(pruned.Hits), names, k)
		recall10 += shareFound(ids(search(t, e, Query{Vectors: q.Tokens}, Options{}).Hits), names, 10)
	}
	recall50, recall10 = recall50/seen, recall10/seen
	t.Logf("worst score difference %.2e, %d of 5000 places swapped, pruned recall@50 %.4f, recall@10 (k = 10) %.4f", worst, swaps, recall50, recall10)
	require.GreaterOrEqual(t, recall50, 0.99)
	require.GreaterOrEqual(t, recall10, 0.99)
}

// shareFound is the share of the first k of want that are among the first k of got.
func shareFound(got, want []string, k int) float64 {
	got, want = got[:min(k, len(got))], want[:min(k, len(want))]
	found := 0
	for _, id := range want {
		if slices.Contains(got, id) {
			found++
		}
	}
	return float64(found) / float64(len(want))
}

func abs(x float64) float64 { return max(x, -x) }

// Indexes as two other engines left them, against what those engines answer.
func TestRealEngines(t *testing.T) {
	for _, c := range []struct {
		dir, results string
		tol          float64
	}{
		{"fast-plaid-nbits2", "wide.tsv", 7e-3},
		{"next-plaid-nbits2", "wide-float.tsv", 7e-3},
		{"next-plaid-nbits2", "wide-int8.tsv", 7e-3},
	} {
		t.Run(c.dir+" "+c.results, func(t *testing.T) {
			e := on(t, imported(t, realdata.Path(t, "golden", c.dir)), 2)
			queries := searchtest.Load(t, vectors.Files{Vectors: realdata.Path(t, "golden", "input", "queries.npy")})
			rows := searchtest.Table(t, realdata.Path(t, "golden", c.dir+"-results", c.results), true)
			want := make([]map[string]float64, len(queries))
			for i := range want {
				want[i] = map[string]float64{}
			}
			for _, row := range rows {
				q, err := strconv.Atoi(row[0])
				require.NoError(t, err)
				want[q][row[1]] = number(t, row[3])
			}
			worst := 0.0
			for i, q := range queries {
				codec.Normalize(q.Tokens, 128)
				for _, o := range []Options{{K: 150, Mode: Exhaustive}, {K: 150}} {
					hits := search(t, e, Query{Vectors: q.Tokens}, o).Hits
					require.Len(t, hits, 150)
					require.GreaterOrEqual(t, len(want[i]), 149) // it lost one document of one query
					for _, h := range hits {
						if _, ok := want[i][h.ID]; !ok {
							continue
						}
						worst = max(worst, abs(want[i][h.ID]-float64(h.Score)))
						require.InDelta(t, want[i][h.ID], h.Score, c.tol, "query %d, document %s", i, h.ID)
					}
				}
			}
			t.Logf("worst score difference %.2e", worst)
		})
	}
}

// cranfield is the collection, and the index of it at 2 bits that its tests
// share; built once.
var cranfield struct {
	once    sync.Once
	err     error
	dir     string
	path    string
	report  *index.BuildReport
	seconds float64
}

func TestMain(m *testing.M) {
	effort.Rapid(20, 100)
	code := m.Run()
	if cranfield.dir != "" {
		_ = os.RemoveAll(cranfield.dir)
	}
	os.Exit(code)
}

func cranfieldFiles(t testing.TB) vectors.Files {
	d := realdata.Path(t, "data", "cranfield", "vectors")
	return vectors.Files{Vectors: filepath.Join(d, "docs.npy"), Lengths: filepath.Join(d, "doclens.npy"), IDs: filepath.Join(d, "doc_ids.txt")}
}

func buildCranfield(files vectors.Files, path string, o *index.BuildOptions) (*index.BuildReport, error) {
	src, err := vectors.Open(context.Background(), files)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return index.Build(context.Background(), path, src, o)
}

func cranfieldIndex(t testing.TB) *index.Index {
	t.Helper()
	files := cranfieldFiles(t)
	cranfield.once.Do(func() {
		if cranfield.dir, cranfield.err = os.MkdirTemp("", "plaid-cranfield"); cranfield.err != nil {
			return
		}
		cranfield.path = filepath.Join(cranfield.dir, "2.plaid")
		start := time.Now()
		cranfield.report, cranfield.err = buildCranfield(files, cranfield.path, nil)
		cranfield.seconds = time.Since(start).Seconds()
	})
	require.NoError(t, cranfield.err)
	ix, err := index.Open(context.Background(), cranfield.path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	return ix
}

func cranfieldQueries(t testing.TB) []vectors.Document {
	d := realdata.Path(t, "data", "cranfield", "vectors")
	return searchtest.Load(t, vectors.Files{Vectors: filepath.Join(d, "queries.npy"), IDs: filepath.Join(d, "query_ids.txt")})
}

func batch(queries []vectors.Document) []Query {
	out := make([]Query, len(queries))
	for i, q := range queries {
		out[i] = Query{Vectors: q.Tokens}
	}
	return out
}

// agreement is the mean overlap at k of results with lists by query.
func agreement(results []Result, want [][]string, k int) float64 {
	sum := 0.0
	for i, r := range results {
		sum += shareFound(ids(r.Hits), want[i], k)
	}
	return sum / float64(len(results))
}

func ndcg(t *testing.T, qrels *eval.Qrels, queries []vectors.Document, lists func(i int) []eval.ScoredDocument) float64 {
	t.Helper()
	run := &eval.Run{}
	for i, q := range queries {
		require.NoError(t, run.Add(q.ID, lists(i)...))
	}
	measures, err := eval.ParseMeasures("nDCG@10")
	require.NoError(t, err)
	r, err := eval.Evaluate(qrels, run, measures, eval.Options{})
	require.NoError(t, err)
	return r.Means[0]
}

func batched(t testing.TB, e *Engine, qs []Query, o Options) []Result {
	t.Helper()
	results, err := e.SearchBatch(context.Background(), qs, o)
	require.NoError(t, err)
	return results
}

func TestRealCranfield(t *testing.T) {
	longForm(t)
	ctx := context.Background()
	ix := cranfieldIndex(t)
	queries := cranfieldQueries(t)
	qs := batch(queries)
	e := on(t, ix, 2)
	t.Logf("built in %.1f s: %+v", cranfield.seconds, *cranfield.report)

	exact := make([][]string, len(queries))
	truth := make([][]eval.ScoredDocument, len(queries))
	row := map[string]int{}
	for i, q := range queries {
		row[q.ID] = i
	}
	for _, cols := range searchtest.Table(t, realdata.Path(t, "data", "cranfield", "vectors", "exact-top100.tsv"), false) {
		i := row[cols[0]]
		exact[i] = append(exact[i], cols[1])
		truth[i] = append(truth[i], eval.ScoredDocument{Doc: cols[1], Score: number(t, cols[3])})
	}
	qrels, err := eval.LoadQrels(realdata.Path(t, "data", "cranfield", "qrels", "test.tsv"))
	require.NoError(t, err)
	exactNDCG := ndcg(t, qrels, queries, func(i int) []eval.ScoredDocument { return truth[i] })
	require.InDelta(t, 0.5470, exactNDCG, 5e-4)

	quality := func(t *testing.T, e *Engine, nbits int, least float64) []Result {
		t.Helper()
		results := batched(t, e, qs, Options{K: 100, Mode: Exhaustive})
		top10, top100 := agreement(results, exact, 10), agreement(results, exact, 100)
		value := ndcg(t, qrels, queries, func(i int) []eval.ScoredDocument {
			var hits []eval.ScoredDocument
			for _, h := range results[i].Hits {
				hits = append(hits, eval.ScoredDocument{Doc: h.ID, Score: float64(h.Score)})
			}
			return hits
		})
		t.Logf("%d bits: agreement with exact %.4f of the top 10, %.4f of the top 100; nDCG@10 %.4f, exact %.4f", nbits, top10, top100, value, exactNDCG)
		require.GreaterOrEqual(t, top10, least)
		require.InDelta(t, exactNDCG, value, 0.005)
		return results
	}

	var exhaustive []Result
	t.Run("2 bits", func(t *testing.T) { exhaustive = quality(t, e, 2, 0.93) })

	t.Run("pruned", func(t *testing.T) {
		want := make([][]string, len(queries))
		for i, r := range exhaustive {
			want[i] = ids(r.Hits)
		}
		for _, k := range []int{10, 100} {
			results := batched(t, e, qs, Options{K: k})
			recall := agreement(results, want, k)
			var s Stats
			for _, r := range results {
				s.Add(r.Stats)
			}
			t.Logf("k = %d: recall of exhaustive %.4f; a query: %d of %d documents exact, %d refined, plans %v", k, recall,
				int(s.ExactDocs)/s.Queries, int(s.Allowed)/s.Queries, int(s.RefinedDocs)/s.Queries, s.Plans)
			if k == 10 {
				require.GreaterOrEqual(t, recall, 0.995)
			} else {
				require.GreaterOrEqual(t, recall, 0.99)
			}
			// What was found has the score, to the bit, that exhaustive search gives it.
			for i, r := range results {
				full := map[uint32]float32{}
				for _, h := range exhaustive[i].Hits {
					full[h.Ordinal] = h.Score
				}
				for _, h := range r.Hits {
					if v, ok := full[h.Ordinal]; ok {
						require.Equal(t, v, h.Score)
					}
				}
			}
			// With probing forced, as large collections have it.
			forced := batched(t, e, qs, Options{K: k, Probes: map[int]int{10: 4, 100: 8}[k]})
			t.Logf("k = %d: recall with %d probes forced %.4f", k, map[int]int{10: 4, 100: 8}[k], agreement(forced, want, k))
		}
	})

	t.Run("oracle", func(t *testing.T) {
		o := newOracle(t, searchtest.Snapshot(t, ix))
		for i := 0; i < len(queries); i += 45 {
			o.check(t, qs[i], exhaustive[i].Hits, 100, nil)
		}
	})

	t.Run("size", func(t *testing.T) {
		in, err := searchtest.Snapshot(t, ix).Info(ctx)
		require.NoError(t, err)
		t.Logf("%.2f bytes a token, file %d bytes, content %d: %+v", in.BytesPerToken, in.Pages.Size, in.Sizes.Total(), in.Sizes)
		require.LessOrEqual(t, in.BytesPerToken, 38.5)
		require.LessOrEqual(t, float64(in.Pages.Size), 1.10*float64(in.Sizes.Total()))
	})

	for _, c := range []struct {
		nbits int
		least float64
	}{{4, 0.97}, {8, 0.99}} {
		t.Run(fmt.Sprintf("%d bits", c.nbits), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.plaid")
			_, err := buildCranfield(cranfieldFiles(t), path, &index.BuildOptions{Nbits: c.nbits})
			require.NoError(t, err)
			quality(t, on(t, searchtest.Open(t, path), 2), c.nbits, c.least)
		})
	}
}
