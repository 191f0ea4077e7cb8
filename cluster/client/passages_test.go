package client_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// passages makes a document of n passages; 0: it is whole.
func passages(t testing.TB, maker *searchtest.Maker, id string, n int) (docs []vectors.Document) {
	t.Helper()
	whole := vectors.Document{ID: id, Tokens: maker.Tokens(3), Payload: fmt.Appendf(nil, `{"title":%q,"text":"whole"}`, id)}
	if n == 0 {
		return []vectors.Document{whole}
	}
	for i := range n {
		p := vectors.Passage{Of: id, Number: i, Start: 10 * i, End: 10*i + 9}
		text, err := p.Payload(fmt.Appendf(nil, `{"title":%q,"text":"part %d"}`, id, i))
		require.NoError(t, err)
		docs = append(docs, vectors.Document{ID: p.ID(), Tokens: maker.Tokens(2 + i%3), Payload: text})
	}
	return docs
}

// Random changes of documents with passages, in batches so small that most documents have one of
// their own: what a cluster has and finds then is what one index has and finds.
func TestPassages(t *testing.T) {
	client.SmallFeedback(t)
	maker := searchtest.New(7, dim, 12)
	var docs []vectors.Document
	for i := range 30 {
		docs = append(docs, passages(t, maker, fmt.Sprint("d", i), i%5)...)
	}
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 4, Replicas: 2, Acks: 2}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki", BatchBytes: 900})
	one := searchtest.Build(t, dim, docs, &index.BuildOptions{Like: codecOf(t, c)})
	engine, err := search.New(c.Ctx, one, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	random := rand.New(rand.NewPCG(1, 2))
	some := func() string { return fmt.Sprint("d", random.IntN(33)) }
	for step := range effort.Cases(15, 400) {
		switch n := random.IntN(10); {
		case n < 5:
			var add []vectors.Document
			seen := map[string]bool{}
			for range 1 + random.IntN(4) {
				if id := some(); !seen[id] {
					seen[id] = true
					add = append(add, passages(t, maker, id, random.IntN(7))...)
				}
			}
			_, err := one.Add(c.Ctx, searchtest.Source(t, dim, add), &index.AddOptions{Replace: true})
			require.NoError(t, err)
			_, err = f.Add(c.Ctx, searchtest.Source(t, dim, add), &client.WriteOptions{Replace: true})
			require.NoError(t, err)
		case n < 6: // which is refused if anything of the document is there
			add := passages(t, maker, some(), random.IntN(4))
			_, want := one.Add(c.Ctx, searchtest.Source(t, dim, add), nil)
			_, err := f.Add(c.Ctx, searchtest.Source(t, dim, add), nil)
			require.Equal(t, errors.Is(want, index.ErrDuplicateID), errors.Is(err, index.ErrDuplicateID), "%v %v", want, err)
			require.Equal(t, want == nil, err == nil, "%v %v", want, err)
		default:
			ids := []string{some(), some(), fmt.Sprint(some(), "#", random.IntN(3)), "nobody"}
			want, missing, err := one.Delete(c.Ctx, ids)
			require.NoError(t, err)
			r, err := f.Delete(c.Ctx, ids, nil)
			require.NoError(t, err)
			require.Equal(t, want, index.Affected{Documents: r.Deleted, Passages: r.Passages}, ids)
			slices.Sort(missing)
			slices.Sort(r.Missing)
			require.Equal(t, slices.Compact(missing), slices.Compact(r.Missing))
		}
		likeOne(t, c, engine, f, maker, random, step)
		if t.Failed() {
			break
		}
	}
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
}

// likeOne compares searches by documents, with matches and with feedback, of a cluster and of an
// index.
func likeOne(t *testing.T, c *clustertest.Cluster, one *search.Engine, f *client.Client, maker *searchtest.Maker, random *rand.Rand, step int) {
	t.Helper()
	q := search.Query{Vectors: maker.Tokens(4), Dim: dim}
	all, err := one.Search(c.Ctx, q, search.Options{K: 1000, Mode: search.Exhaustive})
	require.NoError(t, err)
	for i, o := range []search.Options{
		{K: 1000, Mode: search.Exhaustive, Payload: true},
		{K: 5, Mode: search.Exhaustive, Matches: true, Payload: true},
		{K: 7, Mode: search.Exhaustive, Group: search.GroupBest, Passages: 2, Payload: true},
		{K: 1000, Mode: search.Exhaustive, Group: search.GroupSum, Passages: 3, Matches: true},
		{K: 3, Mode: search.Exhaustive, Group: search.GroupMaxSim, Payload: true},
		{K: 6, Mode: search.Exhaustive, Feedback: &search.Feedback{Docs: 3}},
		{K: 6, Mode: search.Exhaustive, Group: search.GroupBest, Feedback: &search.Feedback{Docs: 2, Terms: 4, Weight: .7}},
		{K: 6, Mode: search.Exhaustive, Filter: &search.Filter{IDs: []string{"d1", "d2", "d4#1", "d9"}, AllowMissing: true}},
	} {
		if i > 4 && len(all.Hits) > 6 {
			// Of the first ones some are named too, as good ones or as bad ones.
			o.Feedback = &search.Feedback{Docs: random.IntN(3), Unlike: []string{all.Hits[random.IntN(6)].ID}}
			whole, _ := vectors.SplitPassageID(all.Hits[random.IntN(4)].ID)
			o.Feedback.Like = []string{whole, all.Hits[3].ID, all.Hits[4].ID}
		}
		d, err := one.Describe(c.Ctx)
		require.NoError(t, err)
		if k := uint64(d.Centroids); o.Feedback != nil && k*k < d.Tokens {
			continue // an index has terms of its own then, and a cluster has centroids
		}
		want, err := one.Search(c.Ctx, q, o)
		got, gotErr := f.Search(c.Ctx, q, o)
		if err != nil {
			require.ErrorIs(t, err, search.ErrOption) // what is good is bad, too
			require.ErrorIs(t, gotErr, search.ErrOption)
			continue
		}
		require.NoError(t, gotErr)
		sameHits(t, want.Hits, got.Hits, fmt.Sprintf("step %d, options %d", step, i))
	}
	if len(all.Hits) == 0 {
		return
	}
	id := all.Hits[random.IntN(len(all.Hits))].ID
	if random.IntN(2) == 0 { // the best passage of its document
		id, _ = vectors.SplitPassageID(id)
	}
	for _, k := range []int{3, 1000} {
		o := search.Options{K: k, Mode: search.Exhaustive}
		want, err := one.Explain(c.Ctx, q, id, o)
		require.NoError(t, err)
		got, err := f.Explain(c.Ctx, q, id, o)
		require.NoError(t, err)
		assert.Equal(t, []any{want.ID, want.Stage, want.Rank}, []any{got.ID, got.Stage, got.Rank}, "step %d: %s, k %d", step, id, k)
	}
}

func sameHits(t *testing.T, want, got []search.Hit, what string) {
	t.Helper()
	if !assert.Len(t, got, len(want), what) {
		return
	}
	for i := range want {
		w, g := &want[i], &got[i]
		assert.Equal(t, w.ID, g.ID, "%s: hit %d", what, i)
		assert.InDelta(t, w.Score, g.Score, 1e-5, "%s: hit %d", what, i)
		assert.Equal(t, string(w.Payload), string(g.Payload), "%s: hit %d", what, i)
		assert.Equal(t, w.Passage, g.Passage, "%s: hit %d", what, i)
		assert.Equal(t, w.Tokens, g.Tokens, "%s: hit %d", what, i)
		if assert.Len(t, g.Matches, len(w.Matches), what) {
			for j := range w.Matches {
				assert.Equal(t, w.Matches[j].DocToken, g.Matches[j].DocToken, what)
				assert.InDelta(t, w.Matches[j].Score, g.Matches[j].Score, 1e-5, what)
			}
		}
		sameHits(t, w.Passages, g.Passages, what+": passages")
	}
}

// What else means documents by their ids means their passages; a large answer leaves payloads out
// and they are read, and one of a collection whose passages lie apart says that it cannot.
func TestPassagesByID(t *testing.T) {
	maker := searchtest.New(8, dim, 12)
	docs := slices.Concat(passages(t, maker, "a", 3), passages(t, maker, "b", 0), passages(t, maker, "c", 2))
	large := passages(t, maker, "large", 3)
	for i := range large {
		p := vectors.Passage{Of: "large", Number: i, End: 9}
		var err error
		large[i].Payload, err = p.Payload(fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", 2<<20)))
		require.NoError(t, err)
	}
	docs = append(docs, large...)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Shards: 3}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki"})
	one := single(t, c, docs)
	for _, group := range search.Groupings() {
		q := search.Query{Vectors: maker.Tokens(3), Dim: dim}
		o := search.Options{K: 4, Mode: search.Exhaustive, Group: group, Passages: 3, Payload: true}
		want, err := one.Search(c.Ctx, q, o)
		require.NoError(t, err)
		got, err := f.Search(c.Ctx, q, o)
		require.NoError(t, err)
		sameHits(t, want.Hits, got.Hits, string(group))
	}
	r, err := f.SetPayload(c.Ctx, []string{"a", "b", "c#1"}, condition.Fields{"seen": []byte("true")}, nil)
	require.NoError(t, err)
	assert.Equal(t, []int{3, 4}, []int{r.Updated, r.Passages})
	facet, err := f.Facet(c.Ctx, "seen", collection.Selection{IDs: []string{"a", "a#1", "c"}}, index.FacetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 5, facet.Docs)
	assert.EqualValues(t, 1, facet.Missing)
	bad := docs[0]
	bad.Payload = []byte(`{"_passage":{"of":"b","n":0,"start":0,"end":1}}`)
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, []vectors.Document{bad}), &client.WriteOptions{Replace: true})
	require.ErrorIs(t, err, client.ErrRefused)
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{Feedback: &search.Feedback{Like: []string{"nobody"}}})
	require.ErrorIs(t, err, search.ErrUnknownID)
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{Effort: 2})
	require.ErrorIs(t, err, search.ErrOption, "rather than a search without it")

	// A document comes with all of its passages, and an id is that of one thing.
	fresh := passages(t, maker, "new", 3)
	plain := func(id string) vectors.Document { return vectors.Document{ID: id, Tokens: maker.Tokens(2)} }
	for name, wrong := range map[string][]vectors.Document{
		"others in between":                {fresh[0], fresh[1], plain("other"), fresh[2]},
		"out of order":                     {fresh[1], fresh[0]},
		"beside the document as a whole":   {fresh[0], plain("new")},
		"the name of a passage that stays": {plain("a#1")},
	} {
		_, err = f.Add(c.Ctx, searchtest.Source(t, dim, wrong), &client.WriteOptions{Replace: true})
		require.ErrorIs(t, err, client.ErrRefused, name)
	}
	long := passages(t, maker, "long", 9)
	for i := range long {
		p := vectors.Passage{Of: "long", Number: i, End: 9}
		long[i].Payload, err = p.Payload(fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", 1<<20)))
		require.NoError(t, err)
	}
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, long), nil)
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorContains(t, err, "with all of its passages")

	m, err := f.Map()
	require.NoError(t, err)
	for _, id := range []string{"a#0", "a#17", "a#1#2"} {
		assert.Equal(t, m.ShardOf("a"), m.ShardOf(id))
	}
}
