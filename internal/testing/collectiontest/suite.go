// Package collectiontest is a test suite that every [collection.Catalog] has to pass.
package collectiontest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/search"
)

// Name is the name of the collection that the suite creates and removes.
const Name = "suite"

const dim = 4

// suite is a collection with documents a to e, and their numbers by id.
type suite struct {
	*testing.T
	catalog collection.Catalog
	c       collection.Collection
	numbers map[string]uint64
	shards  int // of the collection, among which limits are divided
}

// Run runs the suite on a catalog without a collection called [Name].
func Run(t *testing.T, catalog collection.Catalog) { RunShards(t, catalog, 1) }

// RunShards is Run for a catalog whose collections have several shards, which divide the limit on
// documents among them.
func RunShards(t *testing.T, catalog collection.Catalog, shards int) {
	s := &suite{T: t, catalog: catalog, numbers: map[string]uint64{}, shards: shards}
	s.testCreate()
	s.testUpdate()
	s.testRead()
	s.testSearch()
	s.testFacets()
	s.testKeywords()
	s.testWhole()
	s.testLists()
	s.testChange()
	s.testPassages()
	s.testLimit()
	existed, err := catalog.Remove(t.Context(), Name)
	require.NoError(t, err)
	require.True(t, existed)
	_, err = catalog.Get(Name)
	require.ErrorIs(t, err, collection.ErrUnknown)
	require.NotContains(t, catalog.Names(), Name)
}

// countDocuments counts the documents that a search finds for an id.
func (s *suite) countDocuments(id string) (n int) {
	s.withSnapshot(func(v collection.Snapshot) {
		filter, err := v.Filter(s.Context(), collection.Selection{IDs: []string{id}})
		require.NoError(s, err)
		r, err := v.Search(s.Context(), []search.Query{{Vectors: document("", 1).Vectors, Dim: dim}},
			search.Options{K: 100, Mode: search.Exhaustive, Filter: filter})
		require.NoError(s, err)
		n = len(r[0].Hits)
	})
	return n
}

// testCreate tests the creation of collections, and creates that of the suite.
func (s *suite) testCreate() {
	existed, err := s.catalog.Remove(s.Context(), Name)
	require.NoError(s, err, "a name that is not there is no error")
	require.False(s, existed)
	_, err = s.catalog.Get(Name)
	require.ErrorIs(s, err, collection.ErrUnknown)
	_, err = s.catalog.Create(s.Context(), ".bad", collection.Config{})
	require.ErrorIs(s, err, collection.ErrName)
	_, err = s.catalog.Create(s.Context(), Name, collection.Config{Nbits: 3})
	require.ErrorIs(s, err, collection.ErrConfig)
	s.c, err = s.catalog.Create(s.Context(), Name, collection.Config{Nbits: 2})
	require.NoError(s, err)
	require.Equal(s, Name, s.c.Name())
	require.Equal(s, 2, s.c.Config().Nbits)
	require.NoError(s, s.c.Err())
	_, err = s.catalog.Create(s.Context(), Name, collection.Config{})
	require.ErrorIs(s, err, collection.ErrExists)
	require.Contains(s, s.catalog.Names(), Name)
	_, err = s.c.Snapshot(s.Context())
	require.ErrorIs(s, err, collection.ErrEmpty)
	if verifier, ok := s.c.(collection.Verifier); ok {
		require.ErrorIs(s, verifier.Verify(s.Context()), collection.ErrEmpty)
	}
	st, err := s.c.Stats(s.Context())
	require.NoError(s, err)
	require.Zero(s, st.Documents)
	require.Equal(s, collection.StageEmpty, st.Growth.Stage)
}

// document returns a document with one vector along an axis, and with n as metadata.
func document(id string, n int) collection.DocumentInput {
	d := collection.DocumentInput{
		ID:       id,
		Dim:      dim,
		Vectors:  make([]float32, dim),
		Metadata: fmt.Appendf(nil, `{"n":%d}`, n),
	}
	d.Vectors[n%dim] = 1
	return d
}

// testUpdate tests updates, and adds the documents.
func (s *suite) testUpdate() {
	docs := []collection.DocumentInput{document("a", 0), document("b", 1), document("c", 2), document("d", 3),
		document("e", 0)}
	bad := slices.Clone(docs)
	bad[3].Vectors, bad[3].Dim = []float32{1, 0}, 2
	_, err := s.c.Update(s.Context(), bad, collection.UpdateOptions{})
	var documentErr *collection.DocumentError
	require.ErrorAs(s, err, &documentErr)
	require.Equal(s, 3, documentErr.Document)
	require.ErrorIs(s, err, index.ErrDimension)
	bad = slices.Clone(docs)
	bad[1].Metadata = []byte(`{"_subset_":1}`)
	_, err = s.c.Update(s.Context(), bad, collection.UpdateOptions{})
	require.ErrorIs(s, err, collection.ErrMetadata)
	_, err = s.c.Snapshot(s.Context())
	require.ErrorIs(s, err, collection.ErrEmpty, "all or nothing")

	r, err := s.c.Update(s.Context(), docs, collection.UpdateOptions{Replace: true})
	require.NoError(s, err)
	require.Len(s, r.Numbers, len(docs))
	for i, d := range docs {
		require.Equal(s, d.ID, r.IDs[i])
		s.numbers[d.ID] = r.Numbers[i]
	}
	require.Len(s, s.numbers, len(docs))
	st, err := s.c.Stats(s.Context())
	require.NoError(s, err)
	require.EqualValues(s, len(docs), st.Documents)
	require.EqualValues(s, len(docs), st.Metadata)
	require.Equal(s, dim, st.Dim)
}

// withSnapshot calls test with a snapshot of the newest state.
func (s *suite) withSnapshot(test func(v collection.Snapshot)) {
	s.Helper()
	v, err := s.c.Snapshot(s.Context())
	require.NoError(s, err)
	defer func() { require.NoError(s, v.Close()) }()
	test(v)
}

// readIDs returns the ids of the documents of a selection, in their order.
func (s *suite) readIDs(v collection.Snapshot, chosen collection.Selection, o collection.ReadOptions) []string {
	s.Helper()
	ids := []string{}
	for d, err := range v.Documents(s.Context(), chosen, o) {
		require.NoError(s, err)
		require.Equal(s, s.numbers[d.ID], d.Number)
		ids = append(ids, d.ID)
	}
	return ids
}

// testRead tests reading documents.
func (s *suite) testRead() {
	s.withSnapshot(func(v collection.Snapshot) {
		require.Equal(s, dim, v.Dim())
		require.GreaterOrEqual(s, v.MaxHits(), 5)
		d, err := v.Describe(s.Context())
		require.NoError(s, err)
		require.EqualValues(s, 5, d.Docs)
		numbersOf := func(ids ...string) (numbers []uint64) {
			for _, id := range ids {
				numbers = append(numbers, s.numbers[id])
			}
			return numbers
		}
		const none = 1<<31 - 1
		for name, c := range map[string]struct {
			chosen collection.Selection
			want   []string
		}{
			"ids": {collection.Selection{IDs: []string{"d", "nobody", "a"}}, []string{"d", "a"}},
			"numbers": {
				collection.Selection{Numbers: append(numbersOf("e", "b"), none, 99<<32)}, []string{"e", "b"},
			},
			"a condition":     {collection.Selection{Where: conditiontest.Bind(s, "n >= 3")}, []string{"d"}},
			"no ids":          {collection.Selection{IDs: []string{}}, []string{}},
			"no numbers":      {collection.Selection{Numbers: []uint64{}}, []string{}},
			"a false one":     {collection.Selection{Where: conditiontest.Bind(s, "n > 3")}, []string{}},
			"several of them": {collection.Selection{Where: conditiontest.Bind(s, "n = 0 OR n = 2")}, nil},
		} {
			got := s.readIDs(v, c.chosen, collection.ReadOptions{})
			if c.want == nil { // in the order of the numbers
				require.ElementsMatch(s, []string{"a", "c", "e"}, got, name)
				require.True(s, slices.IsSortedFunc(got,
					func(a, b string) int { return int(int64(s.numbers[a]) - int64(s.numbers[b])) }), name)
				continue
			}
			require.Equal(s, c.want, got, name)
		}
		require.ElementsMatch(s, []string{"a", "b", "c", "d", "e"},
			s.readIDs(v, collection.Selection{}, collection.ReadOptions{}))
		require.Len(s, s.readIDs(v, collection.Selection{}, collection.ReadOptions{Limit: 2}), 2)
		require.Equal(s, []string{"c"},
			s.readIDs(v, collection.Selection{IDs: []string{"nobody", "c", "a"}}, collection.ReadOptions{Limit: 1}))
		for d, err := range v.Documents(s.Context(), collection.Selection{IDs: []string{"b"}},
			collection.ReadOptions{Metadata: true, Vectors: true}) {
			require.NoError(s, err)
			require.JSONEq(s, `{"n":1}`, string(d.Metadata))
			require.InDeltaSlice(s, []float32{0, 1, 0, 0}, d.Vectors, .05)
		}
		fails := func(want error, chosen collection.Selection) {
			s.Helper()
			var failed error
			for _, err := range v.Documents(s.Context(), chosen, collection.ReadOptions{}) {
				failed = errors.Join(failed, err)
			}
			require.ErrorIs(s, failed, want)
		}
		fails(collection.ErrSelection, collection.Selection{IDs: []string{"a"}, Where: conditiontest.Bind(s, "n = 0")})
		fails(condition.ErrUnknownField, collection.Selection{Where: conditiontest.Bind(s, "nosuch = 0")})
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		for _, err := range v.Documents(ctx, collection.Selection{}, collection.ReadOptions{}) {
			require.ErrorIs(s, err, context.Canceled)
		}
	})
}

// testWhole tests operations on all documents: verification, training, backup and
// restoration.
func (s *suite) testWhole() {
	verifier, ok := s.c.(collection.Verifier)
	require.True(s, ok, "a check")
	require.NoError(s, verifier.Verify(s.Context()))
	retrainer, ok := s.c.(collection.Retrainer)
	require.True(s, ok, "training anew")
	r, err := retrainer.Retrain(s.Context())
	require.NoError(s, err)
	require.Equal(s, 5, r.Docs)
	backuper, ok := s.c.(collection.Backuper)
	require.True(s, ok, "a backup")
	var file bytes.Buffer
	b, err := backuper.Backup(s.Context(), &file)
	require.NoError(s, err)
	require.Equal(s, 5, b.Docs)
	require.EqualValues(s, file.Len(), b.Size)
	restorer, ok := s.catalog.(collection.Restorer)
	require.True(s, ok, "a restored backup")
	require.ErrorIs(s, restorer.Restore(s.Context(), Name, bytes.NewReader(file.Bytes())), collection.ErrExists)
	const copied = Name + "-copy"
	require.Error(s, restorer.Restore(s.Context(), copied, bytes.NewReader(file.Bytes()[:file.Len()/2])))
	_, err = s.catalog.Get(copied)
	require.ErrorIs(s, err, collection.ErrUnknown, "nothing is left behind")
	require.NoError(s, restorer.Restore(s.Context(), copied, bytes.NewReader(file.Bytes())))
	require.ErrorIs(s, restorer.Restore(s.Context(), copied, bytes.NewReader(file.Bytes())), collection.ErrExists)
	c, err := s.catalog.Get(copied)
	require.NoError(s, err)
	contents := func(c collection.Collection) map[string]string {
		v, err := c.Snapshot(s.Context())
		require.NoError(s, err)
		documents := map[string]string{}
		for d, err := range v.Documents(s.Context(), collection.Selection{},
			collection.ReadOptions{Metadata: true, Vectors: true}) {
			require.NoError(s, err)
			documents[d.ID] = fmt.Sprintf("%s %v", d.Metadata, d.Vectors)
		}
		require.NoError(s, v.Close())
		return documents
	}
	require.Len(s, contents(s.c), 5)
	require.Equal(s, contents(s.c), contents(c))
	_, err = c.Update(s.Context(), []collection.DocumentInput{document("f", 1)}, collection.UpdateOptions{})
	require.NoError(s, err)
	require.Len(s, contents(c), 6)
	_, err = s.catalog.Remove(s.Context(), copied)
	require.NoError(s, err)
}

// testChange tests updates of metadata, and deletions.
func (s *suite) testChange() {
	for _, invalid := range []collection.Selection{{}, {IDs: []string{"a"}, Numbers: []uint64{s.numbers["a"]}},
		{IDs: []string{"a"}, Where: conditiontest.Bind(s, "n = 0")}} {
		_, err := s.c.Delete(s.Context(), invalid)
		require.ErrorIs(s, err, collection.ErrSelection)
		_, err = s.c.UpdateMetadata(s.Context(), invalid, map[string]json.RawMessage{"x": []byte("1")})
		require.ErrorIs(s, err, collection.ErrSelection)
	}
	_, err := s.c.Delete(s.Context(), collection.Selection{Where: conditiontest.Bind(s, "nosuch = 0")})
	require.ErrorIs(s, err, condition.ErrUnknownField)
	_, err = s.c.UpdateMetadata(s.Context(), collection.Selection{Where: conditiontest.Bind(s, "n = 0")},
		map[string]json.RawMessage{"_Subset_": []byte("1")})
	require.ErrorIs(s, err, collection.ErrMetadata)
	n, err := s.c.UpdateMetadata(s.Context(), collection.Selection{Where: conditiontest.Bind(s, "n = 0")},
		map[string]json.RawMessage{"x": []byte("7"), "n": []byte("null")})
	require.NoError(s, err)
	require.Equal(s, index.Affected{Documents: 2}, n)
	s.withSnapshot(func(v collection.Snapshot) {
		require.ElementsMatch(s, []string{"a", "e"}, s.readIDs(v,
			collection.Selection{Where: conditiontest.Bind(s, "x = 7 AND n IS NULL")}, collection.ReadOptions{}))
	})
	for _, c := range []struct {
		chosen collection.Selection
		want   int
	}{
		{collection.Selection{IDs: []string{"b", "nobody", "b", "d"}}, 2},
		{collection.Selection{Numbers: []uint64{s.numbers["c"], 99 << 32}}, 1},
		{collection.Selection{IDs: []string{}}, 0},
	} {
		n, err := s.c.UpdateMetadata(s.Context(), c.chosen,
			map[string]json.RawMessage{"y": []byte(`{"in":[true]}`), "x": []byte("null")})
		require.NoError(s, err)
		require.Equal(s, index.Affected{Documents: c.want}, n)
	}
	s.withSnapshot(func(v collection.Snapshot) {
		require.ElementsMatch(s, []string{"b", "c", "d"},
			s.readIDs(v, collection.Selection{Where: conditiontest.Bind(s, "y IS NOT NULL")}, collection.ReadOptions{}))
	})
	for _, c := range []struct {
		chosen collection.Selection
		want   int
	}{
		{collection.Selection{IDs: []string{"a", "nobody"}}, 1},
		{collection.Selection{Numbers: []uint64{s.numbers["b"], s.numbers["a"]}}, 1}, // a is gone
		{collection.Selection{Numbers: []uint64{}}, 0},
		{collection.Selection{Where: conditiontest.Bind(s, "n = 2")}, 1},
	} {
		n, err := s.c.Delete(s.Context(), c.chosen)
		require.NoError(s, err)
		require.Equal(s, index.Affected{Documents: c.want}, n)
	}
	s.withSnapshot(func(v collection.Snapshot) {
		require.ElementsMatch(s, []string{"d", "e"}, s.readIDs(v, collection.Selection{}, collection.ReadOptions{}))
	})
	st, err := s.c.Stats(s.Context())
	require.NoError(s, err)
	require.EqualValues(s, 2, st.Documents)
	r, err := s.c.Update(s.Context(), []collection.DocumentInput{document("d", 1)},
		collection.UpdateOptions{Replace: true})
	require.NoError(s, err)
	require.NotEqual(s, s.numbers["d"], r.Numbers[0], "a number is given out once")
}

// testPassages tests that passages are found, replaced and deleted as documents, even if they arrive for
// several files or shards.
func (s *suite) testPassages() {
	var docs []collection.DocumentInput
	for n := range 3 {
		d := document(fmt.Sprintf("long#%d", n), n)
		d.Metadata = fmt.Appendf(nil, `{"_passage":{"of":"long","n":%d,"start":%d,"end":%d}}`, n, n, n+1)
		docs = append(docs, d)
	}
	_, err := s.c.Update(s.Context(), docs, collection.UpdateOptions{Replace: true})
	require.NoError(s, err)
	s.withSnapshot(func(v collection.Snapshot) {
		q := search.Query{Vectors: docs[1].Vectors, Dim: dim}
		r, err := v.Search(s.Context(), []search.Query{q}, search.Options{K: 10, Group: search.GroupBest, Passages: 2})
		require.NoError(s, err)
		var ids []string
		for _, h := range r[0].Hits {
			ids = append(ids, h.ID)
			if h.ID == "long" {
				require.Len(s, h.Passages, 2)
				require.Equal(s, "long#1", h.Passages[0].ID)
				require.Equal(s, h.Score, h.Passages[0].Score)
			}
		}
		require.ElementsMatch(s, []string{"d", "e", "long"}, ids)
		liked, err := v.Search(s.Context(), []search.Query{q}, search.Options{K: 10, Matches: true,
			Feedback: &search.Feedback{Docs: 1, Like: []string{"long"}, Unlike: []string{"d"}}})
		require.NoError(s, err)
		require.Len(s, liked[0].Hits, 5)
		require.GreaterOrEqual(s, len(liked[0].Hits[0].Matches), len(docs[1].Vectors)/dim,
			"with those that feedback adds")
		_, err = v.Search(s.Context(), []search.Query{q},
			search.Options{Feedback: &search.Feedback{Like: []string{"nobody"}}})
		require.ErrorIs(s, err, search.ErrUnknownID)
	})
	var other []collection.DocumentInput // enough for all shards
	for n := range 8 {
		d := document(fmt.Sprintf("o%d#0", n), n)
		d.Metadata = fmt.Appendf(nil, `{"_passage":{"of":"o%d","n":0,"start":0,"end":1}}`, n)
		other = append(other, d)
	}
	_, err = s.c.Update(s.Context(), append(docs[:1:1], other...), collection.UpdateOptions{Replace: true})
	require.NoError(s, err)
	require.Equal(s, 1, s.countDocuments("long"), "what comes takes the place of all passages")
	_, err = s.c.Update(s.Context(), []collection.DocumentInput{document("long", 1)},
		collection.UpdateOptions{Replace: true})
	require.NoError(s, err)
	require.Equal(s, 1, s.countDocuments("long"))
	require.Equal(s, 1, s.countDocuments("o3"))
	n, err := s.c.Delete(s.Context(),
		collection.Selection{IDs: []string{"o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "long"}})
	require.NoError(s, err)
	require.Equal(s, index.Affected{Documents: 9, Passages: 8}, n)
	_, err = s.c.Update(s.Context(), docs, collection.UpdateOptions{Replace: true})
	require.NoError(s, err)
}

// testLimit tests the limit on documents.
func (s *suite) testLimit() {
	_, err := s.c.Delete(s.Context(), collection.Selection{IDs: []string{"long"}})
	require.NoError(s, err)
	zero, two := uint64(0), uint64(2)
	_, err = s.c.SetMaxDocuments(s.Context(), &zero)
	require.ErrorIs(s, err, collection.ErrConfig)
	if s.shards > 1 {
		s.limitShards()
		return
	}
	cfg, err := s.c.SetMaxDocuments(s.Context(), &two)
	require.NoError(s, err)
	require.Equal(s, &two, cfg.MaxDocuments)
	require.Equal(s, &two, s.c.Config().MaxDocuments)
	for _, id := range []string{"g", "h"} {
		r, err := s.c.Update(s.Context(), []collection.DocumentInput{document(id, 2)}, collection.UpdateOptions{})
		require.NoError(s, err)
		require.Positive(s, r.Evicted)
		st, err := s.c.Stats(s.Context())
		require.NoError(s, err)
		require.EqualValues(s, 2, st.Documents)
		s.numbers[id] = r.Numbers[0]
		s.withSnapshot(func(v collection.Snapshot) {
			require.Equal(s, []string{id},
				s.readIDs(v, collection.Selection{IDs: []string{id}}, collection.ReadOptions{}), "the newest one stays")
		})
	}
	cfg, err = s.c.SetMaxDocuments(s.Context(), nil)
	require.NoError(s, err)
	require.Nil(s, cfg.MaxDocuments)
}

// limitShards is testLimit for several shards that may have one document each.
func (s *suite) limitShards() {
	limit := uint64(s.shards)
	fewer := limit - 1
	_, err := s.c.SetMaxDocuments(s.Context(), &fewer)
	require.ErrorIs(s, err, collection.ErrConfig, "a shard without documents")
	cfg, err := s.c.SetMaxDocuments(s.Context(), &limit)
	require.NoError(s, err)
	require.Equal(s, &limit, cfg.MaxDocuments)
	require.Equal(s, &limit, s.c.Config().MaxDocuments)
	before, err := s.c.Stats(s.Context())
	require.NoError(s, err)
	evicted, added := 0, 8*s.shards
	for n := range added {
		id := fmt.Sprintf("m%d", n)
		r, err := s.c.Update(s.Context(), []collection.DocumentInput{document(id, n)}, collection.UpdateOptions{})
		require.NoError(s, err)
		evicted += r.Evicted
		s.numbers[id] = r.Numbers[0]
		s.withSnapshot(func(v collection.Snapshot) {
			require.Equal(s, []string{id},
				s.readIDs(v, collection.Selection{IDs: []string{id}}, collection.ReadOptions{}), "the newest one stays")
		})
	}
	st, err := s.c.Stats(s.Context())
	require.NoError(s, err)
	require.EqualValues(s, limit, st.Documents, "of all shards together")
	require.EqualValues(s, before.Documents+uint64(added)-limit, evicted)
	cfg, err = s.c.SetMaxDocuments(s.Context(), nil)
	require.NoError(s, err)
	require.Nil(s, cfg.MaxDocuments)
}
