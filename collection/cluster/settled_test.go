package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// An answer that takes several requests is that of the generation before a bulk build, or of the one after it.
func TestAnswersOfOneGeneration(t *testing.T) {
	var mu sync.Mutex
	var after string // the operation after whose answer there is a build
	var answers int  // those before it
	var rebuild func()
	transport := innerClient.Transport
	innerClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := transport.RoundTrip(r)
		mu.Lock()
		defer mu.Unlock()
		if after != "" && strings.TrimPrefix(r.URL.Path, innerPath) == after {
			if answers--; answers < 0 {
				after = ""
				rebuild()
			}
		}
		return answer, err
	})
	t.Cleanup(func() { innerClient.Transport = transport })
	n := startNodes(t, 1, 2, nil)[0]
	client, err := Open(t.Context(), Config{Store: n.cfg.Store, Dir: t.TempDir(), Beat: testBeat})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close(context.Background())) })
	declared(t, n, randomDocs(60, 0)...)
	seed := uint64(0)
	rebuild = func() {
		before, err := n.findMap(t.Context(), "wiki")
		require.NoError(t, err)
		seed++
		_, err = Build(t.Context(), n.cfg.Store, "wiki", BuildOptions{}, sourceOf(t, randomDocs(60+int(seed), seed)))
		require.NoError(t, err)
		await(t, "what was built is searched", func() bool {
			m, err := n.findMap(t.Context(), "wiki")
			return err == nil && m.Current.Number != before.Current.Number
		})
	}
	wiki, err := client.Get("wiki")
	require.NoError(t, err)
	shown := func(hits []search.Hit) (text string) {
		for _, h := range hits {
			text += fmt.Sprintf("%s %.3f %s; ", h.ID, h.Score, h.Payload)
		}
		return text
	}
	var queries []search.Query
	for i := range queriesAtOnce + 1 {
		queries = append(queries, search.Query{Vectors: randomDocs(1, uint64(100+i))[0].Vectors, Dim: testDim})
	}
	searched := func(o search.Options, qs ...search.Query) func(v collection.Snapshot) (string, error) {
		return func(v collection.Snapshot) (text string, err error) {
			r, err := v.Search(t.Context(), qs, o)
			for i := range r {
				text += shown(r[i].Hits)
			}
			return text, err
		}
	}
	for _, c := range []struct {
		name, after string
		answers     int
		do          func(v collection.Snapshot) (string, error)
	}{
		{"a page", "search", 1, searched(search.Options{K: 8, Offset: 8, Mode: search.Pruned, Payload: true}, queries[0])},
		{"many queries", "search", 1, searched(search.Options{K: 5}, queries...)},
		{"feedback of the first", "search", 0,
			searched(search.Options{K: 9, Feedback: &search.Feedback{Docs: 3}}, queries[0])},
		{"feedback of ids", "evidence", 0,
			searched(search.Options{K: 9, Feedback: &search.Feedback{Like: []string{"d1", "d4"}}}, queries[0])},
		{"words", "words", 0, func(v collection.Snapshot) (string, error) {
			hits, err := v.(collection.Keywords).SearchKeywords(t.Context(), collection.KeywordQuery{Text: "ant bee", K: 30})
			return shown(hits), err
		}},
		{"facets", "facets", 0, func(v collection.Snapshot) (text string, err error) {
			facets, err := v.(collection.Faceter).Facets(t.Context(), []condition.Field{"n", "text"}, collection.Selection{},
				index.FacetOptions{Values: 100})
			for _, f := range facets {
				text += fmt.Sprint(f.Values)
			}
			return text, err
		}},
		{"explanation", "explain", 0, func(v collection.Snapshot) (string, error) {
			x, err := v.(collection.Explainer).Explain(t.Context(), queries[0], "d1", search.Options{K: 100})
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%d %.3f %.3f", x.Rank, x.Score, *x.StageLimit), nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := func() string {
				v, err := wiki.Snapshot(t.Context())
				require.NoError(t, err)
				text, err := c.do(v)
				require.NoError(t, err)
				return text
			}
			await(t, "the client has heard", func() bool {
				a, aerr := n.findMap(t.Context(), "wiki")
				b, berr := client.findMap(t.Context(), "wiki")
				return aerr == nil && berr == nil && a.Version == b.Version
			})
			before := answer()
			mu.Lock()
			after, answers = c.after, c.answers
			mu.Unlock()
			during := answer()
			mu.Lock()
			require.Empty(t, after)
			mu.Unlock()
			if then := answer(); during != before {
				require.Equal(t, then, during)
			}
		})
	}
}

// The passages of a document that come in several answers are those of one state of it.
func TestPassagesOfOneState(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	book := func(text string) []collection.DocumentInput {
		docs := testDocs(0, 60, testDim)
		for i := range docs {
			docs[i].ID = fmt.Sprintf("book#%d", i)
			docs[i].Metadata = fmt.Appendf(nil, `{"_passage":{"of":"book","n":%d,"start":0,"end":1},"x":%q}`, i,
				strings.Repeat(text, 100<<10))
		}
		return docs
	}
	wiki := declared(t, c, book("a")...).(*shardedCollection)
	read := func(first func()) (n int, texts map[string]bool, err error) {
		texts = map[string]bool{}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		err = wiki.readDocuments(ctx, collection.Selection{IDs: []string{"book"}}, collection.ReadOptions{Metadata: true},
			func(d collection.StoredDocument) bool {
				if n++; n == 1 && first != nil {
					first()
				}
				texts[d.ID[:5]+string(d.Metadata[len(d.Metadata)-3])] = true
				return true
			})
		return n, texts, err
	}
	n, texts, err := read(nil)
	require.NoError(t, err)
	require.Equal(t, 60, n)
	require.Len(t, texts, 1)
	n, _, err = read(func() {
		_, err := wiki.Update(t.Context(), book("b"), collection.UpdateOptions{Replace: true})
		require.NoError(t, err)
	})
	require.ErrorIs(t, err, collection.ErrUnreachable, "%d passages of 60", n)
	n, _, err = read(func() {
		_, err := Build(t.Context(), c.cfg.Store, "wiki", BuildOptions{}, sourceOf(t, testDocs(1000, 300, testDim)))
		require.NoError(t, err)
		await(t, "what was built is searched", func() bool { return numbersOf(t, wiki).Documents == 300 })
	})
	require.ErrorIs(t, err, collection.ErrUnreachable, "%d passages", n)
}

// Documents of a long list are those of one generation.
func TestListOfOneGeneration(t *testing.T) {
	c := startNodes(t, 1, 2, nil)[0]
	wiki := declared(t, c, testDocs(0, 300, testDim)...).(*shardedCollection)
	var ids []string
	for i := range 300 {
		ids = append(ids, fmt.Sprint("d", i))
	}
	n, o := 0, collection.ReadOptions{Metadata: true}
	err := wiki.readDocuments(t.Context(), collection.Selection{IDs: ids}, o, func(d collection.StoredDocument) bool {
		if n++; n == 1 {
			_, err := Build(t.Context(), c.cfg.Store, "wiki", BuildOptions{}, sourceOf(t, testDocs(200, 300, testDim)))
			require.NoError(t, err)
			await(t, "what was built is searched", func() bool {
				m, err := c.findMap(t.Context(), "wiki")
				return err == nil && m.Current.Number > 1
			})
		}
		return true
	})
	require.ErrorIs(t, err, errRebuilt)
	require.Equal(t, listBlock, n)
}
