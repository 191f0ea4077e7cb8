package plaid_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/search/keywords"
)

const testDim = 8

func TestMain(m *testing.M) {
	effort.Rapid(15, 100)
	os.Exit(m.Run())
}

// create is a new collection, which is closed when the test ends.
func create(t *testing.T, o *plaid.Options) *plaid.Collection {
	t.Helper()
	c, err := plaid.Create(t.Context(), filepath.Join(t.TempDir(), "docs.plaid"), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// unit is tokens of unit length.
func unit(rng *rand.Rand, tokens int) []float32 {
	v := make([]float32, tokens*testDim)
	for t := range tokens {
		row, sum := v[t*testDim:(t+1)*testDim], 0.
		for i := range row {
			row[i] = float32(rng.NormFloat64())
			sum += float64(row[i]) * float64(row[i])
		}
		for i := range row {
			row[i] /= float32(math.Sqrt(sum))
		}
	}
	return v
}

func maxSim(query, doc []float32) (score float64) {
	for q := 0; q < len(query); q += testDim {
		best := math.Inf(-1)
		for d := 0; d < len(doc); d += testDim {
			dot := 0.
			for i := range testDim {
				dot += float64(query[q+i]) * float64(doc[d+i])
			}
			best = max(best, dot)
		}
		score += best
	}
	return score
}

type modelDoc struct {
	vectors []float32
	word    string
	n       int
}

func (d modelDoc) document(id string) plaid.Document {
	return plaid.Document{ID: id, Text: d.word, Vectors: d.vectors, Payload: fmt.Appendf(nil, `{"n":%d}`, d.n)}
}

// growth is so small that collections of tests are trained.
var growth = collection.Growth{Flat: 40, Until: 160, Factor: 1.5}

// Random operations do what they would do to a map.
func TestModel(t *testing.T) {
	words := []string{"zebra", "yak", "wolf", "vole"}
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		dir, err := os.MkdirTemp("", "plaid-model-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "docs.plaid")
		o := &plaid.Options{Dim: testDim, Growth: growth, Bits: 8}
		c, err := plaid.Create(ctx, path, o)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		_, err = plaid.Create(ctx, path, o)
		require.True(t, errors.Is(err, plaid.ErrExists) || errors.Is(err, plaid.ErrLocked), err)

		want := map[string]modelDoc{}
		drawDocs := func() (ids []string, docs []plaid.Document, now map[string]modelDoc) {
			now = map[string]modelDoc{}
			for _, i := range rng.Perm(12)[:1+rng.IntN(5)] {
				id := fmt.Sprint("d", i)
				d := modelDoc{unit(rng, 1+rng.IntN(6)), words[rng.IntN(len(words))], rng.IntN(5)}
				ids, docs, now[id] = append(ids, id), append(docs, d.document(id)), d
			}
			return ids, docs, now
		}
		for range rapid.IntRange(5, 25).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"add", "update", "delete", "where", "payload", "reopen", "search", "hybrid", "get", "backup", "reader"}).Draw(t, "op") {
			case "add":
				ids, docs, now := drawDocs()
				got, err := c.Add(ctx, docs...)
				if slices.ContainsFunc(ids, func(id string) bool { _, ok := want[id]; return ok }) {
					require.ErrorIs(t, err, plaid.ErrDuplicateID)
					break
				}
				require.NoError(t, err)
				require.Equal(t, ids, got)
				maps.Copy(want, now)
			case "update":
				_, docs, now := drawDocs()
				_, err := c.Update(ctx, docs...)
				require.NoError(t, err)
				maps.Copy(want, now)
			case "delete":
				ids, _, _ := drawDocs()
				there := 0
				for _, id := range ids {
					if _, ok := want[id]; ok {
						there++
					}
					delete(want, id)
				}
				n, err := c.Delete(ctx, plaid.Selection{IDs: ids})
				require.NoError(t, err)
				require.Equal(t, index.Affected{Documents: there}, n)
			case "where":
				limit, gone := rng.IntN(3), 0
				maps.DeleteFunc(want, func(_ string, d modelDoc) bool {
					if d.n < limit {
						gone++
					}
					return d.n < limit
				})
				n, err := c.Delete(ctx, plaid.Selection{Where: "n < ?", Args: []any{limit}})
				if errors.Is(err, plaid.ErrUnknownField) {
					require.Empty(t, want)
					break
				}
				require.NoError(t, err)
				require.Equal(t, index.Affected{Documents: gone}, n)
			case "payload":
				n, err := c.UpdatePayload(ctx, plaid.Selection{IDs: slices.Collect(maps.Keys(want))}, map[string]any{"n": 4})
				if len(want) == 0 { // no ids say nothing
					require.ErrorIs(t, err, collection.ErrSelection)
					break
				}
				require.NoError(t, err)
				require.Equal(t, index.Affected{Documents: len(want)}, n)
				for id, d := range want {
					d.n = 4
					want[id] = d
				}
			case "reopen":
				require.NoError(t, c.Close())
				_, err := c.Search(ctx, plaid.Query{Vectors: unit(rng, 1)})
				require.ErrorIs(t, err, plaid.ErrClosed)
				c, err = plaid.Open(ctx, path, o)
				require.NoError(t, err)
			case "search":
				checkSearch(t, c, want, unit(rng, 1+rng.IntN(3)), rng.IntN(4))
			case "hybrid":
				word := words[rng.IntN(len(words))]
				hits, err := c.Search(ctx, plaid.Query{Text: word, Vectors: unit(rng, 1), Hybrid: true, Alpha: 1e-9, K: 20})
				require.NoError(t, err)
				for i, h := range hits { // those with the word are before the others
					require.Equal(t, want[h.ID].word, h.Text)
					require.False(t, i > 0 && h.Text == word && hits[i-1].Text != word)
				}
				require.Len(t, hits, len(want))
			case "get":
				id := fmt.Sprint("d", rng.IntN(12))
				d, err := c.Get(ctx, id)
				w, ok := want[id]
				if !ok {
					require.ErrorIs(t, err, plaid.ErrNotFound)
					break
				}
				require.NoError(t, err)
				w.vectors = nil
				require.Equal(t, w.document(id), d)
			case "backup":
				to := filepath.Join(dir, "backup.plaid")
				r, err := c.Backup(ctx, to)
				require.NoError(t, err)
				require.Equal(t, len(want), r.Docs)
				copied, err := plaid.Open(ctx, to, &plaid.Options{ReadOnly: true})
				require.NoError(t, err)
				checkSearch(t, copied, want, unit(rng, 2), 0)
				_, err = copied.Add(ctx, modelDoc{unit(rng, 1), "x", 0}.document("x"))
				require.ErrorIs(t, err, plaid.ErrReadOnly)
				require.NoError(t, copied.Close())
			case "reader":
				n, err := c.Len(ctx)
				require.NoError(t, err)
				require.Equal(t, len(want), n)
			}
		}
		checkSearch(t, c, want, unit(rng, 2), 0)
	})
}

// checkSearch holds a search of all documents of n from a limit on against brute force.
func checkSearch(t require.TestingT, c *plaid.Collection, want map[string]modelDoc, query []float32, limit int) {
	q := plaid.Query{Vectors: query, K: 100}
	if limit > 0 && len(want) > 0 {
		q.Where, q.Args = "n >= ?", []any{limit}
	} else {
		limit = 0
	}
	hits, err := c.Search(context.Background(), q)
	require.NoError(t, err)
	scores := map[string]float64{}
	for id, d := range want {
		if d.n >= limit {
			scores[id] = maxSim(query, d.vectors)
		}
	}
	require.Len(t, hits, len(scores))
	for i, h := range hits {
		require.InDelta(t, scores[h.ID], h.Score, .08, "8 bits a component")
		require.False(t, i > 0 && h.Score > hits[i-1].Score)
		require.Equal(t, want[h.ID].word, h.Text)
		require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, want[h.ID].n), string(h.Payload))
	}
}

// Many goroutines change and search a collection of texts at a time.
func TestConcurrentUse(t *testing.T) {
	ctx := t.Context()
	c := create(t, &plaid.Options{Model: model})
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range effort.Cases(2, 50) {
				id := fmt.Sprintf("w%d-%d", w, i)
				if _, err := c.Add(ctx, plaid.Document{ID: id, Text: "The number " + id}); err != nil {
					t.Error(err)
					return
				}
				hits, err := c.Search(ctx, plaid.Query{Text: "number " + id, Hybrid: i%2 == 0, K: 1000})
				if err != nil || !slices.ContainsFunc(hits, func(h plaid.Hit) bool { return h.ID == id }) {
					t.Errorf("%s is not found: %v", id, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// What was parted is found, read, replaced and deleted as one document.
func TestPassages(t *testing.T) {
	ctx := t.Context()
	c := create(t, &plaid.Options{Model: model, Passages: &encode.Splitting{Window: 6}})
	text := "Owls hunt at night and sleep by day, and <bees> & wasps make nests of wax and wood."
	doc := plaid.Document{ID: "a#1", Title: "Nature", Text: text, Payload: []byte(`{"year":2024}`)}
	ids, err := c.Add(ctx, doc, plaid.Document{ID: "short", Text: "Owls"})
	require.NoError(t, err)
	require.Equal(t, []string{"a#1", "short"}, ids)
	n, err := c.Len(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	got, err := c.Get(ctx, "a#1")
	require.NoError(t, err)
	require.Equal(t, doc, got)
	hits, err := c.Search(ctx, plaid.Query{Text: "who makes nests of wood?", Passages: 2, Highlight: true})
	require.NoError(t, err)
	require.Len(t, hits, 2, "the passages of a document are one hit")
	require.Equal(t, "a#1", hits[0].ID)
	require.Len(t, hits[0].Passages, 2)
	require.NotEmpty(t, hits[0].Passages[0].Spans)
	require.Equal(t, hits[0].Text, text[hits[0].Passages[0].Passage.Start:hits[0].Passages[0].Passage.End])
	require.Empty(t, hits[1].Passages, "the other one is stored as one")
	each, err := c.Search(ctx, plaid.Query{Text: "who makes nests of wood?", Group: plaid.EachPassage})
	require.NoError(t, err)
	require.Greater(t, len(each), 2)
	for _, h := range each {
		require.Equal(t, h.ID != "short", h.Passage != nil)
		require.Empty(t, h.Passages)
	}
	_, err = c.Search(ctx, plaid.Query{Text: "x", Group: plaid.EachPassage, Passages: 2})
	require.ErrorIs(t, err, plaid.ErrOption)
	_, err = c.Add(ctx, plaid.Document{ID: "a#1", Text: "again"})
	require.ErrorIs(t, err, plaid.ErrDuplicateID)
	_, err = c.Update(ctx, plaid.Document{ID: "a#1", Text: "again"})
	require.NoError(t, err)
	n, err = c.Len(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	got, err = c.Get(ctx, "a#1")
	require.NoError(t, err)
	require.Equal(t, "again", got.Text)
	deleted, err := c.Delete(ctx, plaid.Selection{IDs: []string{"a#1"}})
	require.NoError(t, err)
	require.Equal(t, 1, deleted.Documents)
}

// A text that is longer than the model reads just works: all of it is stored and found, as one
// document, with a name of its own where it has none. Texts that fit stay as they are.
func TestLongTexts(t *testing.T) {
	ctx := t.Context()
	c := create(t, &plaid.Options{Model: model})
	long := strings.Repeat("Owls hunt at night. ", 500) + "The cathedral has a spire."
	chinese := strings.Repeat("我们在这里看到了许多不同的东西，", 200) + "end"
	ids, err := c.Add(ctx, plaid.Document{Text: "short"}, plaid.Document{Text: long}, plaid.Document{Vectors: make([]float32, 128)},
		plaid.Document{ID: "chinese", Title: "T", Text: chinese}, plaid.Document{ID: "short#1", Text: "short"})
	require.NoError(t, err)
	require.Len(t, ids, 5)
	require.Regexp(t, `^[A-Z2-7]{26}$`, ids[1])
	require.Equal(t, []string{"chinese", "short#1"}, ids[3:])
	for id, text := range map[string]string{ids[0]: "short", ids[1]: long, ids[3]: chinese, ids[4]: "short"} {
		d, err := c.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, text, d.Text)
	}
	hits, err := c.Search(ctx, plaid.Query{Text: "which building has a spire?", Group: "best", Passages: 1, K: 1})
	require.NoError(t, err)
	require.Equal(t, ids[1], hits[0].ID)
	require.Contains(t, hits[0].Passages[0].Text, "spire")
	n, err := c.Delete(ctx, plaid.Selection{IDs: ids[1:2]})
	require.NoError(t, err)
	require.Equal(t, 1, n.Documents)
	require.Greater(t, n.Passages, 5)
}

// An index that another way has made is opened with the model that it names, and one that
// is opened for reading stays as it is.
func TestOpenOther(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "docs.plaid")
	c, err := plaid.Create(ctx, path, &plaid.Options{Model: model})
	require.NoError(t, err)
	_, err = c.Add(ctx, plaid.Document{Text: "Owls hunt."}, plaid.Document{Text: "Bees make honey."})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	c, err = plaid.Open(ctx, path, &plaid.Options{ReadOnly: true})
	require.NoError(t, err)
	other, err := plaid.Open(ctx, path, &plaid.Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, other.Close())
	_, err = plaid.Open(ctx, path, nil)
	require.ErrorIs(t, err, plaid.ErrLocked)
	hits, err := c.Search(ctx, plaid.Query{Text: "honey", Hybrid: true, Like: []string{"1"}})
	require.NoError(t, err)
	require.Equal(t, []string{"1", "0"}, []string{hits[0].ID, hits[1].ID})
	require.NoError(t, c.Close())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// A search by words alone finds what has them, and needs no model.
func TestWords(t *testing.T) {
	ctx := t.Context()
	c := create(t, &plaid.Options{Dim: 2})
	_, err := c.Add(ctx, plaid.Document{ID: "owl", Text: "Owls hunt.", Vectors: []float32{1, 0}},
		plaid.Document{ID: "bee", Text: "Bees make honey.", Vectors: []float32{0, 1}, Payload: []byte(`{"year": 1}`)},
		plaid.Document{ID: "bear", Text: "Bears eat honey.", Vectors: []float32{0, 1}, Payload: []byte(`{"year": 2}`)})
	require.NoError(t, err)
	hits, err := c.Search(ctx, plaid.Query{Text: "honey", Keywords: true, Where: "year > 1"})
	require.NoError(t, err)
	require.Len(t, hits, 1)
	require.Equal(t, "bear", hits[0].ID)
	require.Equal(t, "Bears eat honey.", hits[0].Text)
	require.Positive(t, hits[0].Score)
}

// A collection that is only read searches by words and writes nothing, whether the keywords are
// not there, are those of now, or are older.
func TestWordsOfReaders(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	path := filepath.Join(dir, "docs.plaid")
	files := func() map[string]string {
		all := map[string]string{}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			all[e.Name()] = string(data)
		}
		return all
	}
	write := func(id string, o *plaid.Options, search bool) {
		c, err := plaid.Create(ctx, path, o)
		if err != nil {
			require.ErrorIs(t, err, plaid.ErrExists)
			c, err = plaid.Open(ctx, path, o)
			require.NoError(t, err)
		}
		_, err = c.Add(ctx, plaid.Document{ID: id, Text: "running " + id, Vectors: unit(rand.New(rand.NewPCG(1, 2)), 1)})
		require.NoError(t, err)
		if search {
			_, err = c.Search(ctx, plaid.Query{Text: id, Keywords: true})
			require.NoError(t, err)
		}
		require.NoError(t, c.Close())
	}
	read := func(text string, want int) {
		t.Helper()
		before := files()
		for range 2 { // at a time
			c, err := plaid.Open(ctx, path, &plaid.Options{ReadOnly: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			for _, q := range []plaid.Query{{Text: text, Keywords: true}, {Text: text, Vectors: unit(rand.New(rand.NewPCG(1, 2)), 1), Hybrid: true}} {
				hits, err := c.Search(ctx, q)
				require.NoError(t, err)
				if q.Keywords {
					require.Len(t, hits, want)
				}
			}
		}
		require.Equal(t, before, files())
	}
	write("owl", &plaid.Options{Dim: testDim}, false)
	read("owl", 1)
	write("bee", &plaid.Options{Dim: testDim, Keywords: &keywords.Settings{Stemmer: keywords.English}}, true)
	read("runs", 2)
	write("cat", &plaid.Options{Dim: testDim}, false)
	read("runs", 3)
}

// Numbers and fields of payloads are what they were.
func TestPayloadStays(t *testing.T) {
	ctx := t.Context()
	c := create(t, &plaid.Options{Dim: 2})
	doc := plaid.Document{ID: "a", Title: "<t>", Text: `a "text"`, Vectors: []float32{1, 0}, Payload: []byte(`{"big":9007199254740993,"list":[1,{"x":null}]}`)}
	_, err := c.Add(ctx, doc)
	require.NoError(t, err)
	got, err := c.Get(ctx, "a")
	require.NoError(t, err)
	doc.Vectors = nil
	require.Equal(t, doc, got)
	require.True(t, json.Valid(got.Payload))
	ix, err := c.Index()
	require.NoError(t, err)
	stored, err := ix.Get("a")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(stored.Payload), `{"title":"<t>","text":"a \"text\"","big":`), string(stored.Payload))
	var _ *index.Index = ix
}

// Lists are compared as their text, so the signs of HTML are stored as they came, by Add and by
// UpdatePayload.
func TestListsKeepTheirText(t *testing.T) {
	ctx := t.Context()
	c := create(t, &plaid.Options{Model: model})
	list := []string{"a<b", "c&d"}
	_, err := c.Add(ctx, plaid.Document{ID: "added", Text: "owls hunt", Payload: []byte(`{"tags": ["a<b", "c&d"]}`)}, plaid.Document{ID: "updated", Text: "dogs bark"})
	require.NoError(t, err)
	_, err = c.UpdatePayload(ctx, plaid.Selection{IDs: []string{"updated"}}, map[string]any{"tags": list})
	require.NoError(t, err)
	for _, pattern := range []string{`%"a<b"%`, `%c&d%`} {
		hits, err := c.Search(ctx, plaid.Query{Text: "owls", Where: "tags LIKE ?", Args: []any{pattern}, K: 5})
		require.NoError(t, err)
		require.Len(t, hits, 2, pattern)
	}
}
