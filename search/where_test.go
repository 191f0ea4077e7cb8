package search

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

var bind = conditiontest.Bind

// from are the ordinals from the first to before the last.
func from(first, end uint64) *roaring.Bitmap {
	b := roaring.New()
	b.AddRange(first, end)
	return b
}

// allowing are the ids of documents that pass.
func allowing(docs []vectors.Document, pass func(i int) bool) map[string]bool {
	allowed := map[string]bool{}
	for i, d := range docs {
		if pass(i) {
			allowed[d.ID] = true
		}
	}
	return allowed
}

// Conditions let through what they are true of, in every mode and beside a list of ids.
func TestSearchWhere(t *testing.T) {
	ctx := context.Background()
	m := newMaker(31, 16, 6)
	docs := m.Docs("d", 300, 4)
	ix := searchtest.Build(t, 16, docs, nil)
	_, _, err := ix.Delete(ctx, []string{"d250"})
	require.NoError(t, err)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 2)
	few := &Filter{IDs: []string{"d1", "d2", "d250", "nobody", "d260"}, AllowMissing: true, Where: bind(t, "n > 1")}
	for name, c := range map[string]struct {
		filter *Filter
		pass   func(i int) bool
	}{
		"few":       {Where(bind(t, "n BETWEEN ? AND ?", 40, 49)), func(i int) bool { return i >= 40 && i < 50 }},
		"many":      {Where(bind(t, "NOT n = 7")), func(i int) bool { return i != 7 && i != 250 }},
		"all":       {Where(bind(t, "1=1")), func(i int) bool { return i != 250 }},
		"none":      {Where(bind(t, "n = 'x'")), func(int) bool { return false }},
		"ids":       {Where(bind(t, "_id IN ('d3', 'd4', 'nobody')")), func(i int) bool { return i == 3 || i == 4 }},
		"unlisted":  {&Filter{Where: bind(t, "_subset_ >= 290")}, func(i int) bool { return i >= 290 }},
		"both":      {few, func(i int) bool { return i == 2 || i == 260 }},
		"ordinals":  {&Filter{Docs: roaring.BitmapOf(1, 250, 299, 5000)}, func(i int) bool { return i == 1 || i == 299 }},
		"most":      {(&Filter{Docs: from(60, 100_000)}).Prepared(), func(i int) bool { return i >= 60 && i != 250 }},
		"three":     {&Filter{Docs: from(2, 10), IDs: []string{"d1", "d2", "d3"}, Where: bind(t, "n > 2")}, func(i int) bool { return i == 3 }},
		"both, too": {few.Prepared(), func(i int) bool { return i == 2 || i == 260 }},
	} {
		allowed := allowing(docs, c.pass)
		for range 2 {
			for _, options := range []Options{wide, {K: 20, Mode: Exhaustive}, {K: 20, Mode: Candidates, AllowMissing: true}} {
				want := allowed
				if options.Mode == Candidates {
					options.Candidates = []string{"d2", "d3", "d44", "d260", "d299"}
					want = allowing(docs, func(i int) bool {
						return c.pass(i) && (i == 2 || i == 3 || i == 44 || i == 260 || i == 299)
					})
				}
				options.Filter = c.filter
				q := m.query(4)
				o.check(t, q, search(t, e, q, options).Hits, 20, want)
				options.Filter = nil
				q.Filter = c.filter
				o.check(t, q, search(t, e, q, options).Hits, 20, want)
			}
		}
		t.Log("checked:", name)
	}
	for _, q := range []Query{{}, {Filter: Where(bind(t, "yeer IS NULL"))}} {
		q.Vectors = m.query(2).Vectors
		options := Options{Filter: Where(bind(t, "1=1"))}
		if q.Filter == nil {
			options.Filter = Where(bind(t, "yeer IS NULL"))
		}
		_, err = e.Search(ctx, q, options)
		require.ErrorIs(t, err, condition.ErrUnknownField)
		require.ErrorContains(t, err, "filter")
	}
}

// Each query of a batch may have a filter of its own.
func TestFilterOfEachQuery(t *testing.T) {
	ctx := context.Background()
	m := newMaker(32, 16, 6)
	docs := m.Docs("d", 200, 4)
	ix := searchtest.Build(t, 16, docs, nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 2)
	qs := make([]Query, 12)
	for i := range qs {
		qs[i] = m.query(3)
		if i%3 != 0 {
			qs[i].Filter = Where(bind(t, "n >= ?", 10*i))
		}
		if i == 11 {
			qs[i].Filter = Only("d3", "d8")
		}
	}
	pass := func(i, doc int) bool {
		switch {
		case i == 11:
			return doc == 3 || doc == 8
		case i%3 != 0:
			return doc >= 10*i
		}
		return true
	}
	for name, common := range map[string]func(doc int) bool{
		"":        func(int) bool { return true },
		"n < 150": func(doc int) bool { return doc < 150 },
		"n = 9":   func(doc int) bool { return doc == 9 },
	} {
		options := wide
		if name != "" {
			options.Filter = Where(bind(t, name))
		}
		results, err := e.SearchBatch(ctx, qs, options)
		require.NoError(t, err)
		for i, r := range results {
			o.check(t, qs[i], r.Hits, 20, allowing(docs, func(doc int) bool { return pass(i, doc) && common(doc) }))
		}
	}
	qs[7].Filter = Only("nobody")
	_, err := e.SearchBatch(ctx, qs, Options{})
	var failed *QueryError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 7, failed.Index)
	require.ErrorIs(t, err, ErrUnknownID)
}

// A filter that was prepared follows the index, and snapshots that are older.
func TestPreparedFilterFollowsTheIndex(t *testing.T) {
	ctx := context.Background()
	m := newMaker(33, 16, 4)
	docs := m.Docs("d", 60, 4)
	ix := searchtest.Build(t, 16, docs, nil)
	e := on(t, ix, 2)
	old := searchtest.Snapshot(t, ix)
	before := at(t, old, 1)
	f := Where(bind(t, "n < 4"))
	q := m.query(3)
	found := func(e *Engine) []string {
		var got []string
		for _, h := range search(t, e, q, Options{Filter: f, K: 60}).Hits {
			got = append(got, h.ID)
		}
		return got
	}
	require.ElementsMatch(t, []string{"d0", "d1", "d2", "d3"}, found(e))
	_, _, err := ix.Delete(ctx, []string{"d2"})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"d0", "d1", "d3"}, found(e))
	_, err = ix.UpdatePayload(ctx, bind(t, "_id IN ('d0', 'd9')"), condition.Fields{"n": json.RawMessage("-9"), "_x": json.RawMessage("1")})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"d0", "d1", "d3", "d9"}, found(e))
	_, err = ix.UpdatePayload(ctx, bind(t, "_id = 'd3'"), condition.Fields{"n": json.RawMessage("null")})
	require.NoError(t, err)
	_, err = ix.Add(ctx, searchtest.Source(t, 16, []vectors.Document{{ID: "new", Tokens: docs[1].Tokens, Payload: []byte(`{"n":1}`)}}), nil)
	require.NoError(t, err)
	for range 3 {
		require.ElementsMatch(t, []string{"d0", "d1", "d9", "new"}, found(e))
		require.ElementsMatch(t, []string{"d0", "d1", "d2", "d3"}, found(before), "an older snapshot")
	}
	require.NoError(t, ix.Compact(ctx, nil))
	require.ElementsMatch(t, []string{"d0", "d1", "d9", "new"}, found(e))
}

// On a device, each query is asked with what it may return, and not at all if that is
// nothing.
func TestFiltersOnDevice(t *testing.T) {
	m := newMaker(34, 16, 4)
	docs := m.Docs("d", 40, 5)
	ix := searchtest.Build(t, 16, docs, nil)
	live, _ := searchtest.Snapshot(t, ix).LiveSet()
	d := &scripted{answer: kernels.DeviceAnswer{Docs: []uint32{7}, Scores: []float32{2}}}
	e := onDeviceOf(t, ix, d)
	qs := []Query{m.query(2), m.query(2), m.query(2), m.query(2)}
	qs[0].Filter = Only()
	qs[1].Filter = Where(bind(t, "n < 20"))
	qs[2].Filter = Where(bind(t, "n = 7"))
	results, err := e.SearchBatch(context.Background(), qs, Options{})
	require.NoError(t, err)
	require.Len(t, d.asked, 1)
	asked := d.asked[0]
	require.Len(t, asked, 3)
	require.Equal(t, []uint64{live[0] & (1<<20 - 1)}, asked[0].Allowed)
	require.Equal(t, []uint32{7}, asked[1].Docs)
	require.Equal(t, 1, asked[1].K)
	require.Nil(t, asked[2].Allowed)
	require.Nil(t, asked[2].Docs)
	require.NotNil(t, results[0].Hits)
	require.Empty(t, results[0].Hits)
	for _, r := range results[1:] {
		require.Equal(t, []string{"d7"}, ids(r.Hits))
	}
	_, err = e.SearchBatch(context.Background(), []Query{qs[0]}, Options{})
	require.NoError(t, err)
	require.Len(t, d.asked, 1, "nothing to ask for")
}

func TestFilterJSON(t *testing.T) {
	for text, f := range map[string]*Filter{
		`{"ids":["a"]}`: Only("a"),
		`{"ids":[]}`:    {IDs: []string{}},
		`{"ids":null}`:  {},
		`{"where":"n = ? AND s IN (?, ?) OR r \u003e ?","parameters":[3,"x",null,3.0]}`: {Where: bind(t, "n = ? AND s IN (?, ?) OR r > ?", 3, "x", nil, 3.0)},
		`{"ids":["a"],"allow_missing":true,"where":"n = 3"}`:                            {IDs: []string{"a"}, AllowMissing: true, Where: bind(t, "n = 3")},
		`{"where":"n = ? OR n = ?","parameters":[-1e999,1e+300]}`:                       {Where: bind(t, "n = ? OR n = ?", json.Number("-1e999"), 1e300)},
	} {
		got, err := json.Marshal(f)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		requireRead(t, got, *f)
		q, err := json.Marshal(Query{Vectors: []float32{1}, Filter: f})
		require.NoError(t, err)
		requireRead(t, q, Query{Vectors: []float32{1}, Filter: f})
	}
	for _, text := range []string{`{"where":"n ="}`, `{"where":"n = ?"}`, `{"where":"n = ?","parameters":[1,2]}`, `{"parameters":[1]}`, `{"wher":"n = 1"}`, `{"where":3}`, `[]`} {
		var f Filter
		require.ErrorIs(t, json.Unmarshal([]byte(text), &f), ErrOption, text)
	}
	require.Error(t, json.Unmarshal([]byte(fmt.Sprintf(`{"where":"n REGEXP ?","parameters":[%q]}`, "(")), new(Filter)))
}
