package plaid_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/vectors"
)

// zoo is a collection of documents of passages.
func zoo(t *testing.T) *plaid.Collection {
	path := filepath.Join(t.TempDir(), "docs.plaid")
	o := &plaid.Options{Model: model, Passages: &encode.Splitting{By: encode.BySentences, Window: 12}, Growth: growth}
	c, err := plaid.Create(t.Context(), path, o)
	require.NoError(t, err)
	_, err = c.Add(t.Context(),
		plaid.Document{ID: "owl", Title: "Owls", Text: "Owls hunt at night. They sleep by day in trees. Their nests are of twigs."},
		plaid.Document{ID: "bee", Text: "Bees make honey in the hive. Wasps make nests of wood and paper. Bees sleep at night too."},
		plaid.Document{ID: "cat", Text: "Cats sleep most of the day. At night they hunt mice."},
		plaid.Document{ID: "pike", Text: "Pikes hunt fish in lakes."})
	require.NoError(t, err)
	require.NoError(t, c.Close()) // which waits for the training
	c, err = plaid.Open(t.Context(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A question that is longer than the model reads is answered, and the log says that it was cut.
func TestLongQuestionIsLogged(t *testing.T) {
	var log bytes.Buffer
	c, err := plaid.Create(t.Context(), filepath.Join(t.TempDir(), "docs.plaid"), &plaid.Options{Model: model, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	_, err = c.Add(t.Context(), plaid.Document{ID: "owl", Text: "Owls hunt at night."})
	require.NoError(t, err)
	for _, q := range []plaid.Query{{Text: "who hunts?"}, {Text: strings.Repeat("who hunts? ", 50), Keywords: true}} {
		_, err = c.Search(t.Context(), q)
		require.NoError(t, err)
		require.NotContains(t, log.String(), "a question was cut")
	}
	hits, err := c.Search(t.Context(), plaid.Query{Text: strings.Repeat("who hunts at night? ", 50)})
	require.NoError(t, err)
	require.Equal(t, "owl", hits[0].ID)
	require.Regexp(t, `level=WARN msg="a question was cut.*dropped_tokens=[1-9]`, log.String())
}

// Texts that the model makes nothing of are stored, and the log tells of them.
func TestUnknownTextIsLogged(t *testing.T) {
	var log bytes.Buffer
	c, err := plaid.Create(t.Context(), filepath.Join(t.TempDir(), "docs.plaid"), &plaid.Options{Model: model, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	_, err = c.Add(t.Context(), plaid.Document{Text: "Owls hunt at night."})
	require.NoError(t, err)
	require.NotContains(t, log.String(), "mostly unknown")
	_, err = c.Add(t.Context(), plaid.Document{Text: "Owls hunt."}, plaid.Document{Text: "☃☃☃ ☃"})
	require.NoError(t, err)
	require.Regexp(t, `level=WARN msg="texts are mostly unknown to the model.*texts=1`, log.String())
}

// Hybrid searches rank documents, with the passages and the words that were found, whichever side
// has brought them.
func TestHybridOfPassages(t *testing.T) {
	c := zoo(t)
	ask := func(q plaid.Query) []plaid.Hit {
		q.Text, q.K = "what do animals hunt at night?", 3
		hits, err := c.Search(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, hits, 3)
		return hits
	}
	for _, group := range search.Groupings() {
		byVectors := ask(plaid.Query{Group: group, Passages: 2})
		for alpha, same := range map[float64]bool{.4: false, 1: true} {
			hits := ask(plaid.Query{Group: group, Passages: 2, Hybrid: true, Alpha: alpha, Highlight: true})
			seen := map[string]bool{}
			for i, h := range hits {
				require.False(t, seen[h.ID], "%s comes twice", h.ID)
				seen[h.ID] = true
				require.LessOrEqual(t, len(h.Passages), 2)
				require.NoError(t, h.NoSpans)
				shown := h.Passages
				if h.ID == "pike" { // its text is short
					require.Empty(t, h.Passages)
					shown = []plaid.Hit{h}
				} else {
					require.NotEmpty(t, h.Passages)
					require.Nil(t, h.Spans)
				}
				for _, p := range shown {
					require.NoError(t, p.NoSpans)
					require.NotEmpty(t, p.Spans, p.Text)
					for _, s := range p.Spans {
						require.Equal(t, map[string]string{"title": p.Title, "text": p.Text}[s.Field][s.Start:s.End], s.Text)
					}
				}
				if same {
					require.Equal(t, byVectors[i].ID, h.ID)
				}
			}
		}
	}
}

// Groups by words are all that there are, be it none, and however many are asked for.
func TestGroupsByWordsOfAny(t *testing.T) {
	c := zoo(t)
	for _, live := range []int{4, 0} {
		for _, q := range []plaid.Query{{Keywords: true}, {Hybrid: true}, {Keywords: true, K: math.MaxInt}, {Hybrid: true, K: math.MaxInt}, {Keywords: true, Passages: math.MaxInt}} {
			q.Text, q.Group = "owls bees cats pikes", search.GroupBest
			hits, err := c.Search(t.Context(), q)
			require.NoError(t, err, "%+v", q)
			require.Len(t, hits, live, "%+v", q)
		}
		_, err := c.Delete(t.Context(), plaid.Selection{IDs: []string{"owl", "bee", "cat", "pike"}})
		require.NoError(t, err)
	}
}

// A search by words reads the payloads of hits alone, also where one document has nearly all of the
// passages that have them.
func TestMemoryOfGroupsByWords(t *testing.T) {
	if effort.RaceDetector {
		t.Skip("the race detector allocates, too")
	}
	const n = 2000
	o := &plaid.Options{Model: model, Passages: &encode.Splitting{By: encode.ByWords, Window: 12}, Growth: growth}
	c, err := plaid.Create(t.Context(), filepath.Join(t.TempDir(), "docs.plaid"), o)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Add(t.Context(), plaid.Document{
		ID: "long", Text: strings.Repeat("owl hunts ", n), Payload: fmt.Appendf(nil, `{"f":%q}`, strings.Repeat("x", 50_000)),
	})
	require.NoError(t, err)
	allocated := func(q plaid.Query) uint64 {
		var before, after runtime.MemStats
		least := uint64(math.MaxUint64)
		for range 3 { // the first makes the keywords
			runtime.ReadMemStats(&before)
			hits, err := c.Search(t.Context(), q)
			require.NoError(t, err)
			require.NotEmpty(t, hits)
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		return least
	}
	q := plaid.Query{Text: "owl", K: 10, Keywords: true} // hybrid searches find words by it, too
	require.Less(t, allocated(q), uint64(4<<20), "for one hit: all payloads are 16 MiB, each time that they are read")
}

// What says of which document something is a passage, and where in it, is not among its words.
func TestWordsOfPassages(t *testing.T) {
	c := zoo(t)
	for _, text := range []string{"0", "20", "bee"} {
		hits, err := c.Search(t.Context(), plaid.Query{Text: text, Keywords: true})
		require.NoError(t, err)
		require.Empty(t, hits, text)
	}
}

// Feedback on the first document is that on its best passage.
func TestFeedbackOfAQuery(t *testing.T) {
	c := zoo(t)
	ask := func(q plaid.Query) (found []string) {
		q.Text = "who sleeps?"
		hits, err := c.Search(t.Context(), q)
		require.NoError(t, err)
		for _, h := range hits {
			found = append(found, fmt.Sprintf("%s %.4f", h.ID, h.Score))
		}
		return found
	}
	first, err := c.Search(t.Context(), plaid.Query{Text: "who sleeps?", Group: "best"})
	require.NoError(t, err)
	for _, q := range []plaid.Query{{}, {Group: "maxsim"}, {Hybrid: true}, {Hybrid: true, Group: "best"}} {
		liked, plain := q, q
		q.Feedback, liked.Like = 1, []string{first[0].Passages[0].ID}
		require.Equal(t, ask(liked), ask(q))
		if !q.Hybrid { // whose scores are relative
			require.NotEqual(t, ask(plain), ask(q))
		}
	}
	_, err = c.Search(t.Context(), plaid.Query{Text: "x", Feedback: -1})
	require.ErrorIs(t, err, plaid.ErrOption)
	_, err = c.Search(t.Context(), plaid.Query{Text: "x", Like: []string{"cat"}, Unlike: []string{"cat"}})
	require.ErrorIs(t, err, plaid.ErrOption)
}

// Why there are no words is told.
func TestNoSpans(t *testing.T) {
	ctx := t.Context()
	c := zoo(t)
	hits, err := c.Search(ctx, plaid.Query{Text: "fish"})
	require.NoError(t, err)
	require.Nil(t, hits[0].Spans)
	require.NoError(t, hits[0].NoSpans, "nobody has asked")
	e, err := c.Encoder(ctx)
	require.NoError(t, err)
	eels, err := e.Query(ctx, "fish")
	require.NoError(t, err)
	_, err = c.Add(ctx, plaid.Document{ID: "eel", Vectors: eels.Vectors}, plaid.Document{ID: "carp", Text: "carp", Vectors: eels.Vectors})
	require.NoError(t, err)
	hits, err = c.Search(ctx, plaid.Query{Text: "fish", Highlight: true})
	require.NoError(t, err)
	why := map[string]error{"eel": highlight.ErrNoText, "carp": highlight.ErrOtherText}
	shown := 0
	for _, h := range hits {
		require.ErrorIs(t, h.NoSpans, why[h.ID], h.ID)
		require.Equal(t, why[h.ID] == nil, h.NoSpans == nil, h.ID)
		require.True(t, h.NoSpans == nil || h.Spans == nil, h.ID)
		shown += len(h.Spans)
	}
	require.Positive(t, shown)

	var docs []vectors.Document
	for d, err := range e.Documents(ctx, func(yield func(encode.Text, error) bool) {
		yield(encode.Text{ID: "a", Text: "owls hunt at night", Payload: []byte(`{"text":"owls hunt at night"}`)}, nil)
	}) {
		require.NoError(t, err)
		docs = append(docs, vectors.Document{ID: d.ID, Tokens: append([]float32(nil), d.Tokens...), Payload: d.Payload})
	}
	src, err := vectors.FromDocuments(e.Dim(), docs)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "pooled.plaid")
	_, err = index.Build(ctx, path, src, &index.BuildOptions{Pool: 2, Centroids: 2})
	require.NoError(t, err)
	pooled, err := plaid.Open(ctx, path, &plaid.Options{Model: model, ReadOnly: true})
	require.NoError(t, err)
	defer pooled.Close()
	hits, err = pooled.Search(ctx, plaid.Query{Text: "owls", Highlight: true})
	require.NoError(t, err)
	require.ErrorIs(t, hits[0].NoSpans, highlight.ErrPooled)
}

// A collection that is too small to be trained learns from what is liked, from what is not, and
// from the best documents, by vectors and beside words.
func TestFeedbackOfSmallCollections(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := create(t, &plaid.Options{Dim: testDim})
	var docs []plaid.Document
	for i := range 200 {
		docs = append(docs, plaid.Document{ID: fmt.Sprint("d", i), Text: []string{"owl", "bee"}[i%2], Vectors: unit(rng, 6)})
	}
	_, err := c.Add(t.Context(), docs...)
	require.NoError(t, err)
	for _, q := range []plaid.Query{{}, {Group: "best"}, {Text: "owl", Hybrid: true}} {
		q.Vectors, q.K = unit(rng, 4), 200
		ranks := func(q plaid.Query) map[string]int {
			hits, err := c.Search(t.Context(), q)
			require.NoError(t, err)
			at := map[string]int{}
			for i, h := range hits {
				at[h.ID] = i
			}
			require.Len(t, at, 200)
			return at
		}
		plain := ranks(q)
		var first, low string
		for id, rank := range plain {
			switch rank {
			case 0:
				first = id
			case 150:
				low = id
			}
		}
		liked, unliked, fed := q, q, q
		liked.Like, unliked.Unlike, fed.Feedback = []string{low}, []string{first}, 3
		require.Less(t, ranks(liked)[low], 150)
		require.NotEqual(t, plain, ranks(unliked))
		require.NotEqual(t, plain, ranks(fed))
	}
}

// Pages of one size have each document once, and all that match, at every way to search; documents
// of one score stay in the order in which they were added. A least score leaves the better ones.
func TestPagesOfQueries(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := create(t, &plaid.Options{Dim: testDim})
	const n = 400
	var docs []plaid.Document
	same := unit(rng, 3)
	for i := range n {
		d := plaid.Document{ID: fmt.Sprint("d", i), Text: []string{"owl", "bee hive", "owl and bee"}[i%3], Vectors: same, Payload: fmt.Appendf(nil, `{"n":%d}`, i%2)}
		if i%4 > 0 {
			d.Vectors = unit(rng, 6)
		}
		docs = append(docs, d)
	}
	_, err := c.Add(t.Context(), docs...)
	require.NoError(t, err)
	vectors := unit(rng, 4)
	for name, x := range map[string]struct {
		q    plaid.Query
		want int
	}{
		"vectors":   {plaid.Query{Vectors: vectors}, n},
		"documents": {plaid.Query{Vectors: vectors, Group: plaid.EachPassage}, n},
		"condition": {plaid.Query{Vectors: vectors, Where: "n = 1"}, n / 2},
		"feedback":  {plaid.Query{Vectors: vectors, Feedback: 2, Like: []string{"d9"}}, n},
		"words":     {plaid.Query{Text: "owl", Keywords: true}, 267},
		"each word": {plaid.Query{Text: "owl", Keywords: true, Group: plaid.EachPassage}, 267},
		"hybrid":    {plaid.Query{Vectors: vectors, Text: "owl", Hybrid: true}, n},
		"alpha":     {plaid.Query{Vectors: vectors, Text: "owl", Hybrid: true, Alpha: 1}, n},
		"both":      {plaid.Query{Vectors: vectors, Text: "bee", Hybrid: true, Alpha: .1, Where: "n = 1", Feedback: 1}, n / 2},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(k, offset int) []plaid.Hit {
				q := x.q
				q.K, q.Offset = k, offset
				hits, err := c.Search(t.Context(), q)
				require.NoError(t, err)
				return hits
			}
			for _, k := range []int{0, 33} {
				size, seen := k, map[string]bool{}
				if k == 0 {
					size = 10
				}
				var last plaid.Hit
				for offset := 0; ; offset += size {
					hits := ask(k, offset)
					require.Equal(t, hits, ask(k, offset), "asked again")
					for i, h := range hits {
						require.False(t, seen[h.ID], "%s comes twice", h.ID)
						seen[h.ID] = true
						require.NotEmpty(t, h.Text)
						if i > 0 || offset > 0 && x.q.Vectors == nil {
							require.LessOrEqual(t, h.Score, last.Score)
						}
						last = h
					}
					if len(hits) < size {
						break
					}
				}
				require.Len(t, seen, x.want)
				require.Empty(t, ask(k, x.want))
				require.Empty(t, ask(k, math.MaxInt-size))
			}
			best := ask(30, 0)
			q := x.q
			q.K, q.MinScore = 30, &best[10].Score
			got, err := c.Search(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, slices.DeleteFunc(best, func(h plaid.Hit) bool { return h.Score < *q.MinScore }), got)
			for _, bad := range []plaid.Query{{Offset: -1}, {K: 1, Offset: math.MaxInt}, {MinScore: new(math.NaN())}, {MinScore: new(math.Inf(-1))}} {
				q := x.q
				q.K, q.Offset, q.MinScore = bad.K, bad.Offset, bad.MinScore
				_, err := c.Search(t.Context(), q)
				require.ErrorIs(t, err, plaid.ErrOption)
			}
		})
	}
}
