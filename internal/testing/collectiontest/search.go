package collectiontest

import (
	"errors"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// testSearch tests searches by vectors, with selections.
func (s *suite) testSearch() {
	s.withSnapshot(func(v collection.Snapshot) {
		along := func(axis int) search.Query {
			d := document("", axis)
			return search.Query{Vectors: d.Vectors, Dim: dim}
		}
		all, err := v.Filter(s.Context(), collection.Selection{})
		require.NoError(s, err)
		require.Nil(s, all)
		hits := func(q search.Query, chosen collection.Selection, k int) []search.Hit {
			s.Helper()
			require.NoError(s, v.Check(&q))
			f, err := v.Filter(s.Context(), chosen)
			require.NoError(s, err)
			r, err := v.Search(s.Context(), []search.Query{q}, search.Options{K: k, Filter: f, Payload: true})
			require.NoError(s, err)
			return r[0].Hits
		}
		best := hits(along(2), collection.Selection{}, 1)
		require.Equal(s, "c", best[0].ID)
		require.Equal(s, s.numbers["c"], collection.HitNumber(&best[0]))
		m, err := v.MetadataOf(&best[0])
		require.NoError(s, err)
		require.JSONEq(s, `{"n":2}`, string(m))
		among := func(chosen collection.Selection) (ids []string) {
			s.Helper()
			ids = []string{}
			for _, h := range hits(along(0), chosen, 5) {
				ids = append(ids, h.ID)
			}
			slices.Sort(ids)
			return ids
		}
		require.Equal(s, []string{"a", "b"}, among(collection.Selection{IDs: []string{"b", "a", "nobody"}}))
		require.Equal(s, []string{"b"},
			among(collection.Selection{IDs: []string{"b", "a"}, Numbers: []uint64{s.numbers["b"], s.numbers["c"]}}))
		require.Equal(s, []string{"c"},
			among(collection.Selection{IDs: []string{"b", "c"}, Numbers: []uint64{s.numbers["b"], s.numbers["c"]},
				Where: conditiontest.Bind(s, "n > 1")}))
		require.Empty(s, among(collection.Selection{IDs: []string{}}))
		require.Empty(s, among(collection.Selection{Numbers: []uint64{}, Where: conditiontest.Bind(s, "n > 1")}))
		wrong := search.Query{Vectors: []float32{1, 0}, Dim: 2}
		require.Error(s, v.Check(&wrong))
	})
	s.testSearcher()
}

// testSearcher tests [collection.Searcher].
func (s *suite) testSearcher() {
	searcher := collection.NewSearcher(s.c)
	d, err := searcher.Describe(s.Context())
	require.NoError(s, err)
	require.Equal(s, dim, d.Dim)
	q := search.Query{Vectors: document("", 2).Vectors, Dim: dim}
	r, err := searcher.Search(s.Context(), q, search.Options{K: 1, Payload: true})
	require.NoError(s, err)
	require.Equal(s, "c", r.Hits[0].ID)
	require.JSONEq(s, `{"n":2}`, string(r.Hits[0].Payload))
	r, err = searcher.Search(s.Context(), q, search.Options{K: 5,
		Filter: &search.Filter{Where: conditiontest.Bind(s, "n > 1"), IDs: []string{"b", "c"}, AllowMissing: true}})
	require.NoError(s, err)
	require.Len(s, r.Hits, 1)
	require.Nil(s, r.Hits[0].Payload)
	words, err := searcher.SearchKeywords(s.Context(), collection.KeywordQuery{Text: "c", K: 3, Payload: true})
	require.NoError(s, err)
	require.Len(s, words, 1)
	require.JSONEq(s, `{"n":2}`, string(words[0].Payload))
	wrong := search.Query{Vectors: []float32{1, 0}, Dim: 2}
	_, err = searcher.Search(s.Context(), wrong, search.Options{K: 1})
	require.Error(s, err)
	require.False(s, errors.As(err, new(*search.QueryError)), "a single query has no number")
	_, err = searcher.SearchBatch(s.Context(), []search.Query{q, wrong}, search.Options{K: 1})
	require.ErrorAs(s, err, new(*search.QueryError))
	require.NoError(s, searcher.Close())
	require.NoError(s, searcher.Close())
	_, err = searcher.Search(s.Context(), q, search.Options{K: 1})
	require.ErrorIs(s, err, search.ErrClosed)
}

// testFacets tests facets.
func (s *suite) testFacets() {
	s.withSnapshot(func(v collection.Snapshot) {
		faceter, ok := v.(collection.Faceter)
		require.True(s, ok, "facets")
		n, err := condition.ParseField("n")
		require.NoError(s, err)
		facet := func(chosen collection.Selection, values int) *index.Facet {
			s.Helper()
			all, err := faceter.Facets(s.Context(), []condition.Field{n, n}, chosen,
				index.FacetOptions{Values: values})
			require.NoError(s, err)
			require.Len(s, all, 2)
			require.Equal(s, all[0], all[1])
			return all[0]
		}
		f := facet(collection.Selection{}, 2)
		require.EqualValues(s, 5, f.Docs)
		require.EqualValues(s, 2, f.Others)
		require.Len(s, f.Values, 2)
		require.Equal(s, "0", f.Values[0].Value.String())
		require.EqualValues(s, 2, f.Values[0].Docs)
		require.Equal(s, "1", f.Values[1].Value.String(), "equal counts are in the order of the values")
		f = facet(collection.Selection{IDs: []string{"a", "nobody", "c", "a"}, Numbers: []uint64{s.numbers["a"],
			s.numbers["b"], s.numbers["c"]}, Where: conditiontest.Bind(s, "n < 2")}, 0)
		require.EqualValues(s, 1, f.Docs)
		require.Len(s, f.Values, 1)
		for _, none := range []collection.Selection{{IDs: []string{}}, {Numbers: []uint64{}},
			{Where: conditiontest.Bind(s, "n > 9")}} {
			f = facet(none, 0)
			require.Zero(s, f.Docs)
			require.Empty(s, f.Values)
		}
		fails := func(field condition.Field, o index.FacetOptions, chosen collection.Selection) error {
			_, err := faceter.Facets(s.Context(), []condition.Field{field}, chosen, o)
			require.Error(s, err)
			return err
		}
		require.ErrorIs(s, fails("nosuch", index.FacetOptions{}, collection.Selection{}), condition.ErrUnknownField)
		require.ErrorIs(s, fails(n, index.FacetOptions{},
			collection.Selection{Where: conditiontest.Bind(s, "nosuch = 0")}), condition.ErrUnknownField)
		require.ErrorIs(s, fails(n, index.FacetOptions{Memory: 1}, collection.Selection{}), index.ErrTooManyValues)
		require.ErrorIs(s, fails(condition.FieldID, index.FacetOptions{}, collection.Selection{}), index.ErrOption)
	})
}

// testLists tests conditions and facets over lists and nested fields, also in updates and deletions.
func (s *suite) testLists() {
	var docs []collection.DocumentInput
	for i, id := range slices.Sorted(maps.Keys(conditiontest.ListDocs)) {
		d := document(id, i)
		d.Metadata = conditiontest.ListDocs[id]
		docs = append(docs, d)
	}
	_, err := s.c.Update(s.Context(), docs, collection.UpdateOptions{Replace: true})
	require.NoError(s, err)
	s.withSnapshot(func(v collection.Snapshot) {
		for text, want := range conditiontest.ListCases {
			f, err := v.Filter(s.Context(), collection.Selection{Where: conditiontest.Bind(s, text)})
			require.NoError(s, err)
			r, err := v.Search(s.Context(), []search.Query{{Vectors: document("", 0).Vectors, Dim: dim}},
				search.Options{K: 100, Filter: f, Mode: search.Exhaustive})
			require.NoError(s, err)
			got := []string{}
			for _, h := range r[0].Hits {
				got = append(got, h.ID)
			}
			require.ElementsMatch(s, want, got, text)
		}
		for name, want := range conditiontest.ListFacets {
			field, err := condition.ParseField(name)
			require.NoError(s, err)
			facets, err := v.(collection.Faceter).Facets(s.Context(), []condition.Field{field},
				collection.Selection{Where: conditiontest.Bind(s, "list = TRUE")}, index.FacetOptions{})
			require.NoError(s, err)
			got := map[string]uint64{}
			for _, v := range facets[0].Values {
				got[v.Value.String()] = v.Docs
			}
			require.Equal(s, want, got, name)
			require.EqualValues(s, len(docs), facets[0].Docs)
		}
	})
	n, err := s.c.Delete(s.Context(), collection.Selection{Where: conditiontest.Bind(s, "author.name = 'Ann'")})
	require.NoError(s, err)
	require.Equal(s, 3, n.Documents)
	n, err = s.c.Delete(s.Context(), collection.Selection{Where: conditiontest.Bind(s, "list = TRUE")})
	require.NoError(s, err)
	require.Equal(s, 1, n.Documents)
}

// testKeywords tests searches by words, and explanations.
func (s *suite) testKeywords() {
	s.withSnapshot(func(v collection.Snapshot) {
		searcher, ok := v.(collection.Keywords)
		require.True(s, ok, "keywords")
		find := func(text string, chosen ...collection.Selection) (ids []string) {
			s.Helper()
			q := collection.KeywordQuery{Text: text, K: 3, Payload: true}
			for _, c := range chosen {
				f, err := v.Filter(s.Context(), c)
				require.NoError(s, err)
				q.Filters = append(q.Filters, f)
			}
			hits, err := searcher.SearchKeywords(s.Context(), q)
			require.NoError(s, err)
			ids = []string{}
			for i, h := range hits {
				require.Equal(s, s.numbers[h.ID], collection.HitNumber(&hits[i]))
				m, err := v.MetadataOf(&hits[i])
				require.NoError(s, err)
				require.Contains(s, string(m), `"n"`)
				ids = append(ids, h.ID)
			}
			slices.Sort(ids)
			return ids
		}
		require.Equal(s, []string{"c"}, find("c"), "ids are words")
		require.Equal(s, []string{"b", "d"}, find("d b nobody"))
		require.Equal(s, []string{"a", "e"}, find("0"))
		require.Empty(s, find("nobody"))
		require.Equal(s, []string{"b"}, find("d b c", collection.Selection{},
			collection.Selection{Where: conditiontest.Bind(s, "n < 3")}, collection.Selection{IDs: []string{"b", "d"}}))
		require.Empty(s, find("c", collection.Selection{IDs: []string{}}))
		_, err := searcher.SearchKeywords(s.Context(),
			collection.KeywordQuery{Text: `"open`, Mode: keywords.Expression, K: 1})
		require.ErrorIs(s, err, keywords.ErrSyntax)

		explainer, ok := v.(collection.Explainer)
		require.True(s, ok, "explanations")
		q := search.Query{Vectors: document("", 2).Vectors, Dim: dim}
		x, err := explainer.Explain(s.Context(), q, "c", search.Options{K: 1})
		require.NoError(s, err)
		require.Equal(s, search.StageReturned, x.Stage)
		require.Equal(s, 1, x.Rank)
		x, err = explainer.Explain(s.Context(), q, "d", search.Options{K: 1})
		require.NoError(s, err)
		require.NotEqual(s, search.StageReturned, x.Stage)
		traceable, ok := v.(collection.Traceable)
		require.True(s, ok, "a measured recall")
		stage, err := traceable.Tracer().Trace(s.Context(), q, "c", search.Options{K: 1})
		require.NoError(s, err)
		require.Equal(s, search.StageReturned, stage)
		tokens, err := explainer.QueryTokens(s.Context(), &q)
		require.NoError(s, err)
		require.Len(s, tokens, dim)
	})
}
