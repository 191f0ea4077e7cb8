package encode

import (
	"cmp"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/realdata"
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
	localOf(e).chunkIDs = ids
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
	read := func(file string) []Text {
		list, err := all(JSONL(t.Context(), filepath.Join(dir, file)))
		require.NoError(t, err)
		for i := range list {
			list[i].Payload = nil
		}
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

// short cuts texts to some words: what is encoded does not matter where vectors are compared.
func short(docs []Text) []Text {
	for i, d := range docs {
		docs[i].Text = strings.ToValidUTF8(d.Text[:min(len(d.Text), 200)], "")
	}
	return docs
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
	gain := func(grades []int) (sum float64) {
		for r, g := range grades[:min(10, len(grades))] {
			sum += float64(g) / math.Log2(float64(r)+2)
		}
		return sum
	}
	for i, q := range c.queries {
		scores, order := make([]float64, len(v.docs)), make([]int, len(v.docs))
		for j, d := range v.docs {
			order[j], scores[j] = j, math.Inf(-1)
			if len(d) > 0 {
				scores[j] = maxSim(v.queries[i], d, v.dim)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
		best, grades := order[:min(10, len(order))], []int{}
		for _, j := range best {
			grades = append(grades, c.qrels[q.ID][c.docs[j].ID])
		}
		ideal := slices.Sorted(maps.Values(c.qrels[q.ID]))
		slices.Reverse(ideal)
		top, ndcg = append(top, best), ndcg+gain(grades)/gain(ideal)/float64(len(c.queries))
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
