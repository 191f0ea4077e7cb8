package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/search"
)

const testDim = 16

// randomDocs have some words and numbers as metadata; some are passages.
func randomDocs(n int, seed uint64) (docs []collection.DocumentInput) {
	rng := rand.New(rand.NewPCG(seed, 1))
	words := strings.Fields("ant bee cat dog eel fox gnu hen <b>&c \"q\"")
	for i := range n {
		d := collection.DocumentInput{ID: fmt.Sprintf("d%d", i), Dim: testDim}
		for range testDim * (1 + rng.IntN(6)) {
			d.Vectors = append(d.Vectors, float32(rng.NormFloat64()))
		}
		text := fmt.Sprintf("%s %s %s", words[rng.IntN(len(words))], words[rng.IntN(len(words))],
			words[rng.IntN(len(words))])
		passage := ""
		if i%3 == 0 && i > 0 {
			of := i / 12
			d.ID = fmt.Sprintf("long%d#%d", of, i)
			passage = fmt.Sprintf(`,"_passage":{"of":"long%d","n":%d,"start":0,"end":1}`, of, i)
		}
		d.Metadata = fmt.Appendf(nil, `{"text": %q,  "n":%d%s}`, text, i%7, passage)
		docs = append(docs, d)
	}
	slices.SortStableFunc(docs, func(a, b collection.DocumentInput) int { // passages of one are in a row
		of := func(d *collection.DocumentInput) string { id, _, _ := strings.Cut(d.ID, "#"); return id }
		return strings.Compare(of(&a), of(&b))
	})
	return docs
}

// folderAndCluster puts the same documents into a folder and into a collection over nodes.
func folderAndCluster(t *testing.T, nodes, shards int, docs []collection.DocumentInput) (
	single, many collection.Collection) {
	folder, err := store.Open(t.Context(), t.TempDir(), &store.Options{Threads: 1, Derive: store.DeriveKeywords(nil)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close(context.Background())) })
	for _, set := range []collection.Catalog{folder.Catalog(), startNodes(t, nodes, shards, nil)[nodes-1]} {
		c, err := set.Create(t.Context(), "notes", collection.Config{})
		require.NoError(t, err)
		single, many = many, c
		for some := range slices.Chunk(docs, len(docs)/2) {
			r, err := c.Update(t.Context(), some, collection.UpdateOptions{})
			require.NoError(t, err)
			for i := range some {
				require.Equal(t, some[i].ID, r.IDs[i])
			}
		}
	}
	return single, many
}

// Searches over shards answer as one index does.
func TestSearchAsOneIndex(t *testing.T) {
	t.Parallel()
	docs := randomDocs(240, 7)
	single, many := folderAndCluster(t, 3, 4, docs)
	a, err := single.Snapshot(t.Context())
	require.NoError(t, err)
	defer a.Close()
	b, err := many.Snapshot(t.Context())
	require.NoError(t, err)
	numbers := func(v collection.Snapshot, ids ...string) (n []uint64) {
		for d, err := range v.Documents(t.Context(), collection.Selection{IDs: ids}, collection.ReadOptions{}) {
			require.NoError(t, err)
			n = append(n, d.Number)
		}
		return n
	}
	shown := func(v collection.Snapshot, hits []search.Hit) (out []string) {
		for i := range hits {
			h := &hits[i]
			text := fmt.Sprintf("%s %.4f", h.ID, h.Score)
			for j := range h.Passages {
				m, err := v.MetadataOf(&h.Passages[j])
				require.NoError(t, err)
				text += fmt.Sprintf(" [%s %.4f %s %v]", h.Passages[j].ID, h.Passages[j].Score, m, h.Passages[j].Passage)
			}
			m, err := v.MetadataOf(h)
			require.NoError(t, err)
			if h.Passages == nil {
				text += string(m)
			}
			out = append(out, text+fmt.Sprint(len(h.Matches)))
		}
		return out
	}
	least := 0.3
	where := conditiontest.Bind(t, "n > 2 AND n < 6")
	queries := randomDocs(3, 99)
	for name, c := range map[string]struct {
		o      search.Options
		chosen func(v collection.Snapshot) collection.Selection
	}{
		"all":        {o: search.Options{K: 20}},
		"exhaustive": {o: search.Options{K: 300, Mode: search.Exhaustive}},
		"few":        {o: search.Options{K: 1, Mode: search.Exhaustive, Matches: true}},
		"groups":     {o: search.Options{K: 15, Mode: search.Exhaustive, Group: search.GroupSum, Passages: 3}},
		"pages":      {o: search.Options{K: 10, Offset: 20, MinScore: &least, Mode: search.Exhaustive}},
		"candidates": {o: search.Options{
			K: 9, Mode: search.Candidates, Candidates: []string{"d1", "long2", "nobody"}, AllowMissing: true,
		}},
		"a condition": {search.Options{K: 20}, func(collection.Snapshot) collection.Selection {
			return collection.Selection{Where: where}
		}},
		"ids and a condition": {search.Options{K: 20}, func(collection.Snapshot) collection.Selection {
			return collection.Selection{Where: where, IDs: []string{"d1", "d2", "d4", "d5", "long1", "long3", "d200"}}
		}},
		"numbers": {search.Options{K: 20}, func(v collection.Snapshot) collection.Selection {
			ids := []string{"d4", "d77", "long4", "d8"}
			return collection.Selection{Numbers: numbers(v, "d1", "d4", "d77", "long4"), IDs: ids}
		}},
		"feedback": {o: search.Options{K: 20, Mode: search.Exhaustive, Feedback: &search.Feedback{
			Docs: 2, Like: []string{"d10", "long5"}, Unlike: []string{"d11"},
		}}},
	} {
		for i := range queries {
			var results [2][]string
			for side, v := range []collection.Snapshot{a, b} {
				o := c.o
				o.Payload = true
				if c.chosen != nil {
					o.Filter, err = v.Filter(t.Context(), c.chosen(v))
					require.NoError(t, err, name)
				}
				qs := []search.Query{{Vectors: queries[i].Vectors, Dim: testDim}, {Vectors: queries[0].Vectors}}
				r, err := v.Search(t.Context(), qs, o)
				require.NoError(t, err, name)
				require.Len(t, r, 2)
				require.True(t, r[0].Coverage.Complete(), name)
				results[side] = append(shown(v, r[0].Hits), shown(v, r[1].Hits)...)
			}
			require.NotEmpty(t, results[0], name)
			require.Equal(t, results[0], results[1], name)
		}
	}
	for _, q := range []collection.KeywordQuery{
		{Text: "ant bee", K: 30, Payload: true}, {Text: "cat", K: 5, Offset: 5, Payload: true},
		{Text: "dog", K: 10, Passages: 2, Payload: true}, {Text: "eel", K: 300},
	} {
		var scores [2][]string
		for side, v := range []collection.Snapshot{a, b} {
			hits, err := v.(collection.Keywords).SearchKeywords(t.Context(), q)
			require.NoError(t, err)
			for i := range hits {
				scores[side] = append(scores[side], fmt.Sprintf("%.4f", hits[i].Score))
			}
		}
		require.NotEmpty(t, scores[0])
		require.Equal(t, scores[0], scores[1], q.Text)
	}
	contents := func(v collection.Snapshot, s collection.Selection) map[string]string {
		all := map[string]string{}
		for d, err := range v.Documents(t.Context(), s, collection.ReadOptions{Metadata: true, Vectors: true}) {
			require.NoError(t, err)
			all[d.ID] = fmt.Sprintf("%s %s %d %v", d.Metadata, d.Of, d.Passage, d.Vectors)
		}
		return all
	}
	for _, s := range []collection.Selection{{}, {Where: where}, {IDs: []string{"long1", "d1", "long3", "d2"}}} {
		require.Equal(t, contents(a, s), contents(b, s))
	}
}

// A filter of numbers lets no document through that is not among them, even if it is copied, and travels as
// a list that is empty for shards that have none of them.
func TestFiltersFailClosed(t *testing.T) {
	_, many := folderAndCluster(t, 2, 4, randomDocs(40, 3))
	v, err := many.Snapshot(t.Context())
	require.NoError(t, err)
	var number uint64
	for d, err := range v.Documents(t.Context(), collection.Selection{IDs: []string{"d5"}}, collection.ReadOptions{}) {
		require.NoError(t, err)
		number = d.Number
	}
	f, err := v.Filter(t.Context(), collection.Selection{Numbers: []uint64{number}})
	require.NoError(t, err)
	ask := func(f *search.Filter) []search.Hit {
		r, err := v.Search(t.Context(), []search.Query{{Vectors: randomDocs(1, 9)[0].Vectors}},
			search.Options{K: 9, Filter: f})
		require.NoError(t, err)
		return r[0].Hits
	}
	require.Len(t, ask(f), 1)
	require.Equal(t, "d5", ask(f)[0].ID)
	copied := *f
	require.Empty(t, ask(&copied))
	require.Empty(t, ask(&search.Filter{}))
	r, err := v.Search(t.Context(), []search.Query{{Vectors: randomDocs(1, 9)[0].Vectors}},
		search.Options{Filter: search.Only("nobody")})
	require.ErrorIs(t, err, search.ErrUnknownID, r)
}

// A condition that a caller puts into a filter itself is refused in the words of a folder.
func TestConditionInFilter(t *testing.T) {
	one, many := folderAndCluster(t, 2, 4, randomDocs(40, 3))
	e, err := condition.Parse("nosuch = 1")
	require.NoError(t, err)
	where, err := e.Bind()
	require.NoError(t, err)
	q := search.Query{Vectors: randomDocs(1, 9)[0].Vectors}
	var said [2][]string
	for i, c := range []collection.Collection{one, many} {
		v, err := c.Snapshot(t.Context())
		require.NoError(t, err)
		_, searched := v.Search(t.Context(), []search.Query{q}, search.Options{Filter: &search.Filter{Where: where}})
		own := q
		own.Filter = &search.Filter{Where: where}
		_, ofQuery := v.Search(t.Context(), []search.Query{own}, search.Options{})
		_, explained := v.(collection.Explainer).Explain(t.Context(), q, "d5",
			search.Options{Filter: &search.Filter{Where: where}})
		_, fedBack := v.Search(t.Context(), []search.Query{q, own}, search.Options{Feedback: &search.Feedback{Docs: 2}})
		for _, err := range []error{searched, ofQuery, explained, fedBack} {
			require.ErrorIs(t, err, condition.ErrUnknownField)
			said[i] = append(said[i], err.Error())
		}
		require.NoError(t, v.Close())
	}
	require.Equal(t, said[0], said[1])
}

// A request that one shard would refuse is made by none, and names the document by its place in the request.
func TestUpdatesAreWhole(t *testing.T) {
	docs := randomDocs(40, 3)
	_, many := folderAndCluster(t, 2, 4, docs)
	var more []collection.DocumentInput
	for i := range 20 {
		d := docs[0]
		d.ID, d.Metadata = fmt.Sprintf("new%d", i), nil
		more = append(more, d)
	}
	more[13].ID = "d7"
	before := numbersOf(t, many)
	_, err := many.Update(t.Context(), more, collection.UpdateOptions{})
	var of *collection.DocumentError
	require.ErrorAs(t, err, &of)
	require.Equal(t, 13, of.Document)
	require.ErrorIs(t, err, index.ErrDuplicateID)
	require.Equal(t, before.Documents, numbersOf(t, many).Documents, "nothing of the request was stored")
	more[13].ID = ""
	r, err := many.Update(t.Context(), more, collection.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, 20, r.Stored.Documents)
	require.NotEmpty(t, r.IDs[13])
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(r.Numbers))), 20)
}

// The inner routes want the secret, a body of a known size and an operation that there is.
func TestInnerRoutes(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	post := func(path, token, body string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set(headerNode, "n0")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	require.Equal(t, http.StatusUnauthorized, post(innerPath+"look", "", "{}"))
	require.Equal(t, http.StatusUnauthorized, post(innerPath+"look", c.secret+"x", "{}"))
	require.Equal(t, http.StatusNotFound, post(innerPath+"nothing", c.secret, "{}"))
	require.Equal(t, http.StatusNotFound, post("/other", c.secret, "{}"))
	require.Equal(t, http.StatusBadRequest, post(innerPath+"look", c.secret, "{"))
	require.Equal(t, http.StatusOK, post(innerPath+"look", c.secret, `{"shards":[]}`))
	require.Equal(t, http.StatusBadRequest,
		post(innerPath+"look", c.secret, `{"of":2,"shards":[{"shard":1},{"shard":1}]}`))
	require.Equal(t, http.StatusBadRequest, post(innerPath+"look", c.secret, `{"of":2,"shards":[{"shard":2}]}`))
	require.Equal(t, http.StatusBadRequest,
		post(innerPath+"look", c.secret, `{"of":9000000000000000000,"shards":[{"shard":1}]}`))
}

// An answer that can be read only in part counts for none of its shards.
func TestAnswerOfAnotherForm(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"shards":[{"shard":0,"docs":5,"stats":"many"}]}`))
	}))
	defer server.Close()
	f := &fanOut[describeAnswer, describeRequest, *describeAnswer]{
		shards: &shardedCollection{c: c, name: "notes", id: "notes.1"}, m: &Map{Shards: 1, Current: &replica.Generation{Number: 1}},
		op: "look", in: &describeRequest{}, missing: map[int]error{}, stop: func() {},
	}
	require.Empty(t, f.sendTo(t.Context(), &Node{Name: "other", Address: server.URL}, []int{0}))
	require.ErrorIs(t, f.missing[0], errMessage)
}

// A node that refuses a request for its fault is not passed over.
func TestRequestAtFault(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(newFailure(search.ErrOption))
	}))
	defer server.Close()
	f := &fanOut[describeAnswer, describeRequest, *describeAnswer]{
		shards: &shardedCollection{c: c, name: "notes", id: "notes.1"},
		m:      &Map{Shards: 1, Current: &replica.Generation{Number: 1}},
		op:     "look",
		in:     &describeRequest{}, missing: map[int]error{}, stop: func() {},
	}
	require.Empty(t, f.sendTo(t.Context(), &Node{Name: "other", Address: server.URL}, []int{0}))
	require.ErrorIs(t, f.refusal, search.ErrOption)
	require.False(t, c.front.peers.lookUpPeer("other").away)
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Lists, passages and payloads that have no room in one answer are read in several.
func TestMuchMetadata(t *testing.T) {
	t.Parallel()
	c, err := startNodes(t, 2, 2, nil)[1].Create(t.Context(), "notes", collection.Config{})
	require.NoError(t, err)
	docs := make([]collection.DocumentInput, 60)
	var ids []string
	for i := range docs {
		d := randomDocs(1, uint64(i))[0]
		d.ID = fmt.Sprintf("book#%d", i)
		d.Metadata = fmt.Appendf(nil, `{"_passage":{"of":"book","n":%d,"start":0,"end":1},"x":"%s"}`, i,
			strings.Repeat("x", 100<<10))
		docs[i], ids = d, append(ids, d.ID)
	}
	_, err = c.Update(t.Context(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	v, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	slices.Reverse(ids)
	for _, chosen := range []collection.Selection{{IDs: ids}, {IDs: []string{"nobody", "book"}}, {}} {
		var got []string
		for d, err := range v.Documents(t.Context(), chosen, collection.ReadOptions{Metadata: true}) {
			require.NoError(t, err)
			require.Greater(t, len(d.Metadata), 100<<10)
			got = append(got, d.ID)
		}
		if len(chosen.IDs) != len(ids) {
			slices.Reverse(got)
		}
		require.Equal(t, ids, got)
	}
	r, err := v.Search(t.Context(), []search.Query{{Vectors: docs[0].Vectors}}, search.Options{K: 60, Payload: true})
	require.NoError(t, err)
	require.Len(t, r[0].Hits, 60)
	for i := range r[0].Hits {
		require.Greater(t, len(r[0].Hits[i].Payload), 100<<10)
	}
	r, err = v.Search(t.Context(), []search.Query{{Vectors: docs[0].Vectors}},
		search.Options{Payload: true, Group: search.GroupBest, Passages: 50})
	require.NoError(t, err)
	require.Len(t, r[0].Hits, 1)
	require.Greater(t, len(r[0].Hits[0].Passages[49].Payload), 100<<10)
	require.NotContains(t, string(r[0].Hits[0].Payload), "_passage")
}

// A change whose answer is lost is made once.
func TestLostAnswers(t *testing.T) {
	nodes := startNodes(t, 3, 3, nil)
	client, err := Open(t.Context(),
		Config{Store: nodes[0].cfg.Store, Dir: t.TempDir(), Beat: 100 * time.Millisecond, Shards: 3})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close(context.Background())) })
	var lost atomic.Int64
	before := innerClient.Transport
	innerClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := before.RoundTrip(r)
		changes := slices.Contains([]string{"update", "delete", "metadata"}, strings.TrimPrefix(r.URL.Path, innerPath))
		if err == nil && changes && lost.Add(1)%2 == 1 {
			require.NoError(t, answer.Body.Close())
			return nil, errors.New("the answer is lost")
		}
		return answer, err
	})
	t.Cleanup(func() { innerClient.Transport = before })
	c, err := client.Create(t.Context(), "notes", collection.Config{})
	require.NoError(t, err)
	var docs []collection.DocumentInput
	for i := range 30 {
		d := randomDocs(1, uint64(i))[0]
		d.ID = fmt.Sprint("d", i)
		docs = append(docs, d)
	}
	seen := map[uint64]bool{}
	for some := range slices.Chunk(docs, 6) {
		r, err := c.Update(t.Context(), some, collection.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, 6, r.Stored.Documents)
		for _, n := range r.Numbers {
			require.False(t, seen[n])
			seen[n] = true
		}
	}
	n, err := c.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"d1", "d2", "d3", "d4"}},
		map[string]json.RawMessage{"x": []byte(`"<a>  &"`)})
	require.NoError(t, err)
	require.Equal(t, 4, n.Documents)
	n, err = c.Delete(t.Context(), collection.Selection{Where: conditiontest.Bind(t, "x IS NULL")})
	require.NoError(t, err)
	require.Equal(t, 26, n.Documents)
	require.Greater(t, lost.Load(), int64(10))
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, st.Documents)
	require.EqualValues(t, 26, st.Deleted)
	_, err = c.Delete(t.Context(), collection.Selection{Where: conditiontest.Bind(t, "y = 1")})
	require.ErrorContains(t, err, "nearest first: ")
}
