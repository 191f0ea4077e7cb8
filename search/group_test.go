package search

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search/fuse"
	"github.com/plaid-ir/plaid/vectors"
)

const groupDim = 8

// pictured is a passage, or a document that is none, as it is in an index.
type pictured struct {
	id, of string
	round  int
	tokens []float32 // decoded
}

// picture is what brute force has of an index.
func picture(t require.TestingT, snap *index.Snapshot) (all []pictured) {
	for o := range snap.State().Docs {
		if !snap.Live(o) {
			continue
		}
		payload, err := snap.Payload(o)
		require.NoError(t, err)
		p := pictured{id: snap.ID(o), of: snap.ID(o)}
		own, err := vectors.PassageFromPayload(p.id, payload)
		require.NoError(t, err)
		if own != nil {
			p.of = own.ParentID
		}
		var fields struct{ Round int }
		require.NoError(t, json.Unmarshal(payload, &fields))
		p.round = fields.Round
		p.tokens, err = snap.Vectors(o)
		require.NoError(t, err)
		all = append(all, p)
	}
	return all
}

// truthOf are the scores of documents by brute force, and those of their passages.
func truthOf(q Query, all []pictured, o Options, allowed func(pictured) bool) (docs map[string]float64, passages map[string]map[string]float64) {
	docs, passages = map[string]float64{}, map[string]map[string]float64{}
	tokens := map[string][]float32{}
	for _, p := range all {
		if len(p.tokens) == 0 || !allowed(p) {
			continue
		}
		if passages[p.of] == nil {
			passages[p.of] = map[string]float64{}
		}
		passages[p.of][p.id] = kernels.MaxSimFloat(q.Vectors, q.Weights, p.tokens, groupDim)
		tokens[p.of] = append(tokens[p.of], p.tokens...)
	}
	for of, each := range passages {
		scores := slices.SortedFunc(maps.Values(each), func(a, b float64) int { return cmp.Compare(b, a) })
		docs[of] = scores[0]
		switch o.Group {
		case GroupSum:
			docs[of] = 0
			for _, s := range scores[:min(len(scores), max(o.Passages, 1))] {
				docs[of] += s
			}
		case GroupMaxSim:
			docs[of] = kernels.MaxSimFloat(q.Vectors, q.Weights, tokens[of], groupDim)
		}
	}
	return docs, passages
}

func checkGroups(t require.TestingT, res *Result, o Options, docs map[string]float64, passages map[string]map[string]float64) {
	const near = 1e-4
	want := slices.SortedFunc(maps.Values(docs), func(a, b float64) int { return cmp.Compare(b, a) })
	require.Len(t, res.Hits, min(o.K, len(want)))
	seen := map[string]bool{}
	for i, h := range res.Hits {
		require.False(t, seen[h.ID], h.ID)
		seen[h.ID] = true
		require.InDelta(t, docs[h.ID], h.Score, near, h.ID)
		if o.Mode == Exhaustive || o.Group == GroupBest {
			require.InDelta(t, want[i], h.Score, near, "place %d", i)
		}
		best := slices.SortedFunc(maps.Values(passages[h.ID]), func(a, b float64) int { return cmp.Compare(b, a) })
		require.Len(t, h.Passages, min(max(o.Passages, 1), len(best)))
		for j, p := range h.Passages {
			require.InDelta(t, passages[h.ID][p.ID], p.Score, near)
			require.InDelta(t, best[j], p.Score, near)
			if p.Passage != nil {
				require.Equal(t, h.ID, p.Passage.ParentID)
				require.Equal(t, p.ID, p.Passage.ID())
			} else {
				require.Equal(t, h.ID, p.ID)
			}
			if o.Matches {
				sum := 0.0
				for _, m := range p.Matches {
					sum += m.Score * m.Weight
				}
				require.InDelta(t, p.Score, sum, near)
			}
		}
	}
}

// Documents of many passages, changed at random, against brute force: every grouping, with
// conditions and lists of ids, one index or several.
func TestGroupModel(t *testing.T) {
	ram, runs := testenv.RAMDir(t), 0
	parents := []string{"a", "b", "c#7", "d", "e", "f", "g"}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		m := newMaker(rapid.Uint64().Draw(t, "seed"), groupDim, 4)
		some := func(round int, most int) (docs []vectors.Document) {
			taken := map[string]bool{}
			for range rapid.IntRange(1, 4).Draw(t, "documents") {
				of := rapid.SampledFrom(parents).Draw(t, "of")
				n := rapid.IntRange(0, most).Draw(t, "passages")
				if taken[of] {
					continue
				}
				taken[of] = true
				plain := fmt.Appendf(nil, `{"round":%d,"text":"x"}`, round)
				if n == 0 {
					docs = append(docs, vectors.Document{ID: of, Tokens: m.Tokens(rapid.IntRange(0, 4).Draw(t, "tokens")), Payload: plain})
				}
				for i := range n {
					p := vectors.Passage{ParentID: of, Number: i, Start: i, End: i + 1}
					payload, err := p.Payload(plain)
					require.NoError(t, err)
					docs = append(docs, vectors.Document{ID: p.ID(), Tokens: m.Tokens(rapid.IntRange(0, 4).Draw(t, "tokens")), Payload: payload})
				}
			}
			return docs
		}
		source := func(docs []vectors.Document) vectors.Source {
			src, err := vectors.FromDocuments(groupDim, docs)
			require.NoError(t, err)
			return src
		}
		path := filepath.Join(ram, fmt.Sprint(runs, ".plaid"))
		first := append(some(0, 12), vectors.Document{ID: "z", Tokens: m.Tokens(3), Payload: []byte(`{"round":0}`)})
		_, err := index.Build(t.Context(), path, source(first), &index.BuildOptions{Centroids: 8, Nbits: 4})
		require.NoError(t, err)
		ix, err := index.Open(t.Context(), path, &index.Options{Write: true})
		require.NoError(t, err)
		defer ix.Close()
		e, err := New(t.Context(), ix, nil)
		require.NoError(t, err)
		defer e.Close()
		for round := 1; round < 5; round++ {
			switch rapid.SampledFrom([]string{"replace", "replace", "delete", "passage", "compact"}).Draw(t, "op") {
			case "replace":
				_, err = ix.Add(t.Context(), source(some(round, 12)), &index.AddOptions{Replace: true})
			case "delete":
				_, _, err = ix.Delete(t.Context(), []string{rapid.SampledFrom(parents).Draw(t, "id")})
			case "passage":
				_, _, err = ix.Delete(t.Context(), []string{rapid.SampledFrom(parents).Draw(t, "id") + "#1"})
			case "compact":
				err = ix.Compact(t.Context(), nil)
			}
			require.NoError(t, err)
			snap, err := ix.Snapshot()
			require.NoError(t, err)
			all := picture(t, snap)
			require.NoError(t, snap.Close())
			for range 3 {
				q := Query{Vectors: m.Tokens(rapid.IntRange(1, 5).Draw(t, "query"))}
				codec.Normalize(q.Vectors, groupDim)
				o := Options{
					K: rapid.IntRange(1, 9).Draw(t, "k"), Group: rapid.SampledFrom(Groupings()).Draw(t, "group"),
					Passages: rapid.IntRange(0, 4).Draw(t, "shown"), Payload: rapid.Bool().Draw(t, "payload"), Matches: rapid.Bool().Draw(t, "matches"),
					// All are scored, whatever the plan: what pruning loses is another test's.
					Mode: rapid.SampledFrom([]Mode{Pruned, Exhaustive}).Draw(t, "mode"), Probes: AllProbes, Exact: 1000,
				}
				allowed := func(pictured) bool { return true }
				switch rapid.IntRange(0, 3).Draw(t, "filter") {
				case 1:
					only := parents[:rapid.IntRange(0, len(parents)).Draw(t, "only")]
					o.Filter = &Filter{IDs: append([]string{}, only...), AllowMissing: true}
					allowed = func(p pictured) bool { return slices.Contains(only, p.of) || slices.Contains(only, p.id) }
				case 2:
					expr, err := condition.Parse("round >= ?")
					require.NoError(t, err)
					c, err := expr.Bind(round - 1)
					require.NoError(t, err)
					o.Filter = &Filter{Where: c}
					allowed = func(p pictured) bool { return p.round >= round-1 }
				}
				res, err := e.Search(t.Context(), q, o)
				if errors.Is(err, condition.ErrUnknownField) && len(all) == 0 {
					continue
				}
				require.NoError(t, err)
				docs, passages := truthOf(q, all, o, allowed)
				checkGroups(t, res, o, docs, passages)
			}
		}
	})
}

// long is an index of documents, each of some passages that have to do with each other.
func long(t testing.TB, m maker, docs, passages int) []vectors.Document {
	var all []vectors.Document
	for d := range docs {
		n := 1 + m.Rand.IntN(2*passages)
		for i := range n {
			p := vectors.Passage{ParentID: fmt.Sprint("d", d), Number: i, End: 5}
			payload, err := p.Payload([]byte(fmt.Sprintf(`{"title":"t%d","text":"p%d"}`, d, i)))
			require.NoError(t, err)
			all = append(all, vectors.Document{ID: p.ID(), Tokens: m.Tokens(1 + m.Rand.IntN(12)), Payload: payload})
		}
	}
	return all
}

// Pruned searches find the documents that exhaustive ones do, of one index and of several.
func TestGroupPruned(t *testing.T) {
	m := newMaker(3, 16, 30)
	docs := long(t, m, effort.Cases(300, 600), 6)
	ix := searchtest.Build(t, 16, docs, nil)
	e := on(t, ix, 2)
	parts, err := index.Split(t.Context(), searchtest.Snapshot(t, ix), filepath.Join(t.TempDir(), "parts"), 3, index.ByHash, nil)
	require.NoError(t, err)
	set := openSet(t, []string{parts[0].Path, parts[1].Path, parts[2].Path})
	several := multi(t, set, 2)
	for _, group := range Groupings() {
		hit, all := 0, 0
		for range effort.Cases(5, 15) {
			q := m.query(8)
			o := Options{K: 10, Group: group, Passages: 3}
			want := search(t, e, q, with(o, func(o *Options) { o.Mode = Exhaustive }))
			got := search(t, e, q, o)
			require.Len(t, got.Hits, 10)
			hit, all = hit+overlap(want.Hits, got.Hits), all+10
			sure, err := several.Search(t.Context(), q, with(o, func(o *Options) { o.Mode = Exhaustive }))
			require.NoError(t, err)
			for i, h := range sure.Hits {
				require.Equal(t, want.Hits[i].ID, h.ID)
				require.Equal(t, want.Hits[i].Score, h.Score)
				require.Equal(t, len(want.Hits[i].Passages), len(h.Passages))
				for j, p := range h.Passages {
					require.Equal(t, want.Hits[i].Passages[j].ID, p.ID)
				}
			}
			part, err := several.Search(t.Context(), q, o)
			require.NoError(t, err)
			require.GreaterOrEqual(t, overlap(want.Hits, part.Hits), 7)
		}
		require.GreaterOrEqual(t, float64(hit)/float64(all), 0.95, "%s: %d of %d", group, hit, all)
	}
}

func TestGroupHits(t *testing.T) {
	m := newMaker(5, 16, 8)
	ix := searchtest.Build(t, 16, long(t, m, 20, 4), nil)
	e := on(t, ix, 1)
	q := m.query(4)
	res := search(t, e, q, Options{K: 3, Group: GroupBest, Passages: 2, Payload: true})
	for _, h := range res.Hits {
		require.JSONEq(t, fmt.Sprintf(`{"title":"t%s"}`, h.ID[1:]), string(h.Payload), "what the document has")
		require.Equal(t, h.Score, h.Passages[0].Score)
		for _, p := range h.Passages {
			require.Contains(t, string(p.Payload), `"text":"p`)
			require.Equal(t, h.ID, p.Passage.ParentID)
		}
	}
	res = search(t, e, q, Options{K: 3, Group: GroupBest})
	require.Nil(t, res.Hits[0].Payload)
	require.Len(t, res.Hits[0].Passages, 1)
	require.Nil(t, res.Hits[0].Passages[0].Payload)

	// A list of candidates may name documents.
	res = search(t, e, q, Options{Mode: Candidates, Candidates: []string{"d3", "d5#0"}, Group: GroupMaxSim, Passages: 100})
	require.Len(t, res.Hits, 2)
	for _, h := range res.Hits {
		if h.ID == "d5" {
			require.Len(t, h.Passages, 1)
		}
	}
	for _, bad := range []Options{{Group: "worst"}, {Passages: 1}, {Group: GroupBest, Passages: -1}} {
		_, err := e.Search(t.Context(), q, bad)
		require.ErrorIs(t, err, ErrOption)
	}
	_, err := e.Explain(t.Context(), q, "d3#0", Options{Group: GroupBest})
	require.ErrorIs(t, err, ErrOption)
	_, err = e.Search(t.Context(), q, Options{Mode: Candidates, Candidates: []string{"d3", "nobody"}})
	require.ErrorIs(t, err, ErrUnknownID)
	require.ErrorContains(t, err, `"nobody"`)
}

// The matches of a hit are those that an explanation tells.
func TestMatches(t *testing.T) {
	m := newMaker(6, 16, 8)
	ix := searchtest.Build(t, 16, long(t, m, 30, 4), nil)
	e := on(t, ix, 2)
	q := m.query(6)
	q.Mask = []bool{true, false, true, true, true, true}
	q.Weights = []float32{1, 1, 2, -1, 0, 1}
	res := search(t, e, q, Options{K: 20, Matches: true})
	for _, h := range res.Hits {
		x, err := e.Explain(t.Context(), q, h.ID, Options{K: 20})
		require.NoError(t, err)
		require.Equal(t, x.Tokens, h.Tokens)
		require.Len(t, h.Matches, len(x.Matches))
		for i, want := range x.Matches {
			require.Equal(t, want.QueryToken, h.Matches[i].QueryToken)
			require.InDelta(t, want.Score, h.Matches[i].Score, 1e-5)
		}
	}
	require.Nil(t, search(t, e, q, Options{K: 2}).Hits[0].Matches)

	// Of hits that something else has found, whole or in passages, it is told afterwards.
	for _, o := range []Options{{K: 7}, {K: 4, Group: GroupBest, Passages: 3}} {
		ranked := RankedHits(search(t, e, q, o).Hits)
		require.NoError(t, MatchRanked(ranked, func(o Options) ([]Hit, error) { return search(t, e, q, o).Hits, nil }))
		for i, h := range search(t, e, q, with(o, func(o *Options) { o.Matches = true })).Hits {
			require.Equal(t, h, ranked[i].Hit)
		}
	}
	boom := errors.New("boom")
	require.ErrorIs(t, MatchRanked(RankedHits(res.Hits), func(Options) ([]Hit, error) { return nil, boom }), boom)
	require.NoError(t, MatchRanked(nil, func(Options) ([]Hit, error) { return nil, boom }), "nothing is asked for")
}

// Two rankings become one by ids, with what vectors have found as they have found it.
func TestFuseRanked(t *testing.T) {
	byVectors := RankedHits([]Hit{{ID: "b", Ordinal: 7, Score: 3, Tokens: 1}, {ID: "a", Ordinal: 2, Score: 1}})
	others := []RankedHit{{Hit{ID: "c", Ordinal: 1}, 9}, {Hit{ID: "b", Ordinal: 3}, 5}, {Hit{ID: "d", Shard: 1}, 5}}
	got, err := FuseRanked(fuse.RelativeScore, .5, Page{K: 3}, Page{K: 9, Block: 9}, byVectors, others)
	require.NoError(t, err)
	want := []RankedHit{{others[0].Hit, .5}, {byVectors[0].Hit, .5}, {byVectors[1].Hit, 0}}
	require.Equal(t, want, got)
	twice := append(slices.Clone(byVectors), RankedHit{Hit{ID: "b", Ordinal: 9}, 1})
	got, err = FuseRanked(fuse.RelativeScore, .5, Page{K: 3}, Page{K: 9, Block: 9}, twice, others)
	require.NoError(t, err, "a document that is there as a whole and in passages")
	require.Equal(t, want, got)
	_, err = FuseRanked(fuse.RelativeScore, 2, Page{K: 3}, Page{K: 9, Block: 9}, byVectors, others)
	require.ErrorIs(t, err, fuse.ErrWeight)
}

// unscored are hits without scores, which devices round in their own way.
func unscored(hits []Hit) []Hit {
	hits = slices.Clone(hits)
	for i := range hits {
		hits[i].Score, hits[i].Passages = 0, unscored(hits[i].Passages)
	}
	return hits
}

// A device searches with matches, and by documents where none has passages, and says the same
// of what it finds as the processor; of several files on devices, too.
func TestMatchesOfDevices(t *testing.T) {
	m := newMaker(8, 16, 8)
	docs := m.Docs("d", 60, 6)
	ix := searchtest.Build(t, 16, docs, nil)
	set := sharded(t, ix, docs, 3, true)
	spread, err := NewMulti(t.Context(), set, &MultiOptions{Devices: []kernels.Device{&kerneltest.Device{}, &kerneltest.Device{}}})
	require.NoError(t, err)
	defer spread.Close()
	for _, pair := range [][2]Searcher{{on(t, ix, 2), onDeviceOf(t, ix, &kerneltest.Device{})}, {multi(t, set, 2), spread}} {
		for _, o := range []Options{
			{Matches: true, Payload: true}, {Matches: true, K: 100}, {Matches: true, Filter: &Filter{IDs: []string{"d3", "d7"}}},
			{Matches: true, Group: GroupMaxSim, Passages: 2, Payload: true}, {Group: GroupSum}, {Matches: true, Feedback: &Feedback{Docs: 2}},
		} {
			o.Mode = Exhaustive
			qs := []Query{m.query(4), m.query(3)}
			qs[1].Filter = &Filter{IDs: []string{"d1", "d3", "d5"}}
			want, err := pair[0].SearchBatch(t.Context(), qs, o)
			require.NoError(t, err)
			got, err := pair[1].SearchBatch(t.Context(), qs, o)
			require.NoError(t, err)
			for i := range want {
				require.NotNil(t, got[i].Stats.Device, "%+v", o)
				require.Equal(t, unscored(want[i].Hits), unscored(got[i].Hits), "%+v", o)
			}
		}
	}
}
