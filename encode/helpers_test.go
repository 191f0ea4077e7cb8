package encode

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/vectors"
)

// shared gives the path of real data: in the repository, where the kind, which is
// the first element, has no folder of its own, or beside the checkout. Without it
// the test is skipped.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	inside := filepath.Join(append([]string{"..", "docs", "examples", "quickstart"}, elem[1:]...)...)
	if _, err := os.Stat(inside); err == nil {
		return inside
	}
	return realdata.Path(t, elem...)
}

// nano and mini are the folders of the two test models, miniGraph the second one as a graph.
func nano(t testing.TB) string      { return shared(t, "models", "colbert-nano") }
func mini(t testing.TB) string      { return realdata.Mini(t) }
func miniGraph(t testing.TB) string { return realdata.Path(t, "models", "colbert-mini") }

func open(t testing.TB, dir string, o *Options) *Encoder {
	t.Helper()
	e, err := Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func localOf(e *Encoder) *local { return e.backend.(*local) }

// chunked sets how many ids a worker gets at once.
func chunked(e *Encoder, ids int) *Encoder {
	localOf(e).chunk = ids
	return e
}

// collection is a small folder of BEIR's layout, as tests read it.
type collection struct {
	docs, queries []Text
	qrels         map[string]map[string]int
}

func load(t testing.TB, name string) *collection {
	t.Helper()
	dir := shared(t, "data", name)
	c := &collection{qrels: map[string]map[string]int{}}
	b, err := os.ReadFile(filepath.Join(dir, "qrels", "test.tsv"))
	require.NoError(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if f := strings.Fields(line); i > 0 && f[2] != "0" {
			if c.qrels[f[0]] == nil {
				c.qrels[f[0]] = map[string]int{}
			}
			c.qrels[f[0]][f[1]] = int(f[2][0] - '0')
		}
	}
	read := func(file string) (list []Text) {
		f, err := os.Open(filepath.Join(dir, file))
		require.NoError(t, err)
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var r struct{ ID, Title, Text string }
			var m map[string]any
			require.NoError(t, json.Unmarshal(lines.Bytes(), &m))
			r.ID, _ = m["_id"].(string)
			r.Title, _ = m["title"].(string)
			r.Text, _ = m["text"].(string)
			list = append(list, Text{ID: r.ID, Title: r.Title, Text: r.Text})
		}
		require.NoError(t, lines.Err())
		return list
	}
	c.docs = read("corpus.jsonl")
	for _, q := range read("queries.jsonl") {
		if c.qrels[q.ID] != nil {
			c.queries = append(c.queries, q)
		}
	}
	return c
}

// encoded are the vectors of all documents and queries.
type encoded struct {
	dim           int
	docs, queries [][]float32
}

func encodeAll(t testing.TB, e *Encoder, c *collection) (out encoded) {
	t.Helper()
	out.dim = e.Dim()
	i := 0
	for doc, err := range e.Documents(t.Context(), Texts(c.docs...)) {
		require.NoError(t, err)
		require.Equal(t, c.docs[i].ID, doc.ID)
		out.docs = append(out.docs, append([]float32(nil), doc.Tokens...))
		i++
	}
	require.Len(t, out.docs, len(c.docs))
	out.queries = encodeQueries(t, e, c)
	return out
}

func encodeQueries(t testing.TB, e *Encoder, c *collection) (out [][]float32) {
	t.Helper()
	var texts []string
	for _, q := range c.queries {
		texts = append(texts, q.Text)
	}
	list, err := e.Queries(t.Context(), texts)
	require.NoError(t, err)
	for _, em := range list {
		out = append(out, em.Vectors)
	}
	return out
}

// maxSim is the exact score.
func maxSim(q, d []float32, dim int) (sum float64) {
	for i := 0; i < len(q); i += dim {
		best := math.Inf(-1)
		for j := 0; j < len(d); j += dim {
			s := float32(0)
			for k, x := range q[i : i+dim] {
				s += x * d[j+k]
			}
			best = max(best, float64(s))
		}
		sum += best
	}
	return sum
}

// rank gives the ten best documents of each query, and the mean nDCG@10.
func rank(c *collection, v encoded) (top [][]int, ndcg float64) {
	for i, q := range c.queries {
		scores := make([]float64, len(v.docs))
		for j, d := range v.docs {
			scores[j] = math.Inf(-1)
			if len(d) > 0 {
				scores[j] = maxSim(v.queries[i], d, v.dim)
			}
		}
		var best []int
		taken := map[int]bool{}
		for range min(10, len(scores)) {
			at := -1
			for j, s := range scores {
				if !taken[j] && (at < 0 || s > scores[at]) {
					at = j
				}
			}
			taken[at] = true
			best = append(best, at)
		}
		dcg, ideal := 0.0, 0.0
		for r, j := range best {
			dcg += float64(c.qrels[q.ID][c.docs[j].ID]) / math.Log2(float64(r)+2)
		}
		var grades []int
		for _, g := range c.qrels[q.ID] {
			grades = append(grades, g)
		}
		for r := range min(10, len(grades)) {
			at := r
			for k := r; k < len(grades); k++ {
				if grades[k] > grades[at] {
					at = k
				}
			}
			grades[r], grades[at] = grades[at], grades[r]
			ideal += float64(grades[r]) / math.Log2(float64(r)+2)
		}
		top, ndcg = append(top, best), ndcg+dcg/ideal/float64(len(c.queries))
	}
	return top, ndcg
}

// difference is the largest one of two lists of vectors.
func difference(t testing.TB, want, got []float32) (d float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		d = max(d, math.Abs(float64(want[i])-float64(got[i])))
	}
	return d
}

// arrays is a file of named arrays.
type arrays interface {
	Array(name string) (*vectors.Array, error)
}

func floatsOf(t testing.TB, a arrays, name string) []float32 {
	t.Helper()
	array, err := a.Array(name)
	require.NoError(t, err)
	x := make([]float32, array.Len())
	require.NoError(t, array.Float32s(x, 0))
	return x
}

func intsOf(t testing.TB, a arrays, name string) []int32 {
	t.Helper()
	array, err := a.Array(name)
	require.NoError(t, err)
	x := make([]int64, array.Len())
	require.NoError(t, array.Ints(x, 0))
	y := make([]int32, len(x))
	for i, v := range x {
		y[i] = int32(v)
	}
	return y
}
