package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Documents that are said to be good draw those that are like them, and those that are
// said to be bad push theirs away.
func TestFeedback(t *testing.T) {
	require.Equal(t, []int{1 << 16, 1 << 15, 1}, []int{FeedbackTokensPerDocument(0), FeedbackTokensPerDocument(2), FeedbackTokensPerDocument(1 << 20)}, "of many passages a token each")
	m := newMaker(11, 16, 12)
	docs := m.Docs("d", 300, 12)
	ix := searchtest.Build(t, 16, docs, nil)
	e := on(t, ix, 2)
	q := m.query(6)
	place := func(id string, o Options) int {
		o.K = 300
		for i, h := range search(t, e, q, o).Hits {
			if h.ID == id {
				return i
			}
		}
		return 300
	}
	plain := search(t, e, q, Options{K: 200})
	low := plain.Hits[150].ID
	require.Less(t, place(low, Options{Feedback: &Feedback{Like: []string{low}, Weight: 2}}), 20)
	high := plain.Hits[0].ID
	require.Greater(t, place(high, Options{Feedback: &Feedback{Unlike: []string{high}, Weight: 5}}), 20)

	// With its own first document a query stays near what it was, and weights and masks hold.
	q.Mask, q.Weights = []bool{true, true, false, true, true, true}, []float32{1, 1, 100, 1, 1, 1}
	before := q
	res := search(t, e, q, Options{K: 10, Feedback: &Feedback{Docs: 3}, Matches: true})
	require.Equal(t, before, q, "the query is the caller's")
	require.Len(t, res.Hits, 10)
	require.Equal(t, 1, res.Stats.Queries)
	for _, match := range res.Hits[0].Matches {
		require.NotEqual(t, 2, match.QueryToken)
	}
	require.Greater(t, len(res.Hits[0].Matches), 5, "tokens were added")
	batch, err := e.SearchBatch(t.Context(), []Query{q, m.query(2)}, Options{K: 10, Feedback: &Feedback{Docs: 3}})
	require.NoError(t, err)
	require.Equal(t, ids(res.Hits), ids(batch[0].Hits))

	// Of several files what is rare is counted over all.
	several := multi(t, sharded(t, ix, docs, 3, true), 2)
	got, err := several.Search(t.Context(), q, Options{K: 10, Mode: Exhaustive, Feedback: &Feedback{Docs: 3}})
	require.NoError(t, err)
	require.Equal(t, named(search(t, e, q, Options{K: 10, Mode: Exhaustive, Feedback: &Feedback{Docs: 3}}).Hits), named(got.Hits))

	for _, bad := range []*Feedback{{}, {Docs: -1}, {Docs: 101}, {Docs: 1, Terms: 1000}, {Docs: 1, Weight: -1}} {
		_, err := e.Search(t.Context(), q, Options{Feedback: bad})
		require.ErrorIs(t, err, ErrOption)
	}
	_, err = e.Search(t.Context(), q, Options{Feedback: &Feedback{Like: []string{"nobody"}}})
	require.ErrorIs(t, err, ErrUnknownID)
	_, err = e.Explain(t.Context(), q, "d1", Options{Feedback: &Feedback{Docs: 1}})
	require.ErrorIs(t, err, ErrOption)
}

// Feedback of an index whose one centroid is that of every token: terms are counted by the vectors
// as brute force does, and documents move as they do with more centroids, also in several files.
func TestFeedbackByVectors(t *testing.T) {
	m := newMaker(12, 16, 200)
	docs := m.Docs("d", 200, 12)
	passage := vectors.Passage{ParentID: "page", Number: 1, End: 1}
	payload, err := passage.Payload(nil)
	require.NoError(t, err)
	docs = append(docs, vectors.Document{ID: passage.ID(), Tokens: docs[0].Tokens, Payload: payload})
	ix := searchtest.Build(t, 16, docs, &index.BuildOptions{Centroids: 1, Nbits: 8})
	snap := searchtest.Snapshot(t, ix)
	all := newCollection(snap)
	liked := []Location{{0, 200}, {0, 0}}
	for i := range uint32(9) {
		liked = append(liked, Location{0, 6 + i})
	}
	e, ok := all.feedbackEvidence(liked, []Location{{0, 23}, {0, 24}}).(*tokenEvidence)
	require.True(t, ok)
	good, of, err := e.TermCounts(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 11, of)
	bad, _, err := e.TermCounts(t.Context(), true)
	require.NoError(t, err)
	for _, n := range good {
		require.LessOrEqual(t, n, 11)
	}
	require.GreaterOrEqual(t, good[0], 2, "of d0 and of the passage, which has its tokens")
	codes := slices.Sorted(maps.Keys(good))
	codes = append(codes, slices.Sorted(maps.Keys(bad))...)
	require.Greater(t, len(codes), termsAtOnce)
	have, live, err := e.DocumentFrequencies(t.Context(), codes)
	require.NoError(t, err)
	require.EqualValues(t, 201, live)
	rows := make([][]float32, len(docs))
	for i := range docs {
		ch, doc, err := documentChunk(snap, uint32(i))
		require.NoError(t, err)
		rows[i] = make([]float32, len(docs[i].Tokens))
		snap.Quantizer().DecodeTokens(rows[i], ch, int(ch.Offsets[doc]), int(ch.Offsets[doc+1]))
	}
	for i, code := range codes {
		least, most := uint64(0), uint64(0) // of what a small error of the cosine leaves open
		for _, row := range rows {
			cosine := kernels.MaxSimFloat(e.terms[code*16:(code+1)*16], nil, row, 16)
			if cosine >= nearTerm+.01 {
				least++
			}
			if cosine >= nearTerm-.01 {
				most++
			}
		}
		require.True(t, least <= have[i] && have[i] <= most && least > 0, "%d: %d to %d, %d", code, least, most, have[i])
	}

	engine, q := on(t, ix, 2), m.query(6)
	several := multi(t, sharded(t, ix, docs, 3, true), 2)
	plain := search(t, engine, q, Options{K: 201})
	low, high := plain.Hits[150].ID, plain.Hits[0].ID
	place := func(hits []Hit, id string) int {
		return slices.IndexFunc(hits, func(h Hit) bool { return h.ID == id })
	}
	for _, f := range []*Feedback{{Like: []string{low}, Weight: 2}, {Unlike: []string{high}, Weight: 5}, {Docs: 3}, {Docs: 2, Like: []string{low, "page"}, Unlike: []string{high}}} {
		o := Options{K: 201, Feedback: f}
		hits := search(t, engine, q, o).Hits
		require.NotEqual(t, named(plain.Hits), named(hits))
		if len(f.Like) == 1 {
			require.Less(t, place(hits, low), 20)
		}
		if len(f.Unlike) == 1 && f.Docs == 0 {
			require.Greater(t, place(hits, high), 20)
		}
		got, err := several.Search(t.Context(), q, o)
		require.NoError(t, err)
		require.ElementsMatch(t, named(hits), named(got.Hits), "the same but for the order of ties")
	}
	require.IsType(t, &centroidEvidence{}, newCollection(searchtest.Snapshot(t, searchtest.Build(t, 16, docs, nil))).feedbackEvidence(nil, nil))
}

// What feedback adds, by its definition: of the documents that are liked, and of the best ones
// that are not unliked the best passages, with documents of passages counted once each.
func addedByFeedback(t require.TestingT, q Query, f *Feedback, snaps []*index.Snapshot) Query {
	type text struct {
		pictured
		codes []uint32
		score float64
	}
	named := func(p pictured, ids []string) bool { return slices.Contains(ids, p.id) || slices.Contains(ids, p.of) }
	var good, bad, rest []text
	have, live := map[uint32]int{}, 0
	for _, snap := range snaps {
		for _, p := range picture(t, snap) {
			live++
			if len(p.tokens) == 0 {
				continue
			}
			x := text{pictured: p, score: kernels.MaxSimFloat(q.Vectors, q.Weights, p.tokens, groupDim)}
			ordinal, _, err := snap.Ordinal(p.id)
			require.NoError(t, err)
			chunk, doc, _ := snap.Locate(ordinal)
			ch, err := snap.Chunk(chunk, storage.All)
			require.NoError(t, err)
			seen := map[uint32]bool{}
			for token := ch.Offsets[doc]; token < ch.Offsets[doc+1]; token++ {
				x.codes = append(x.codes, ch.Code(int(token)))
				seen[ch.Code(int(token))] = true
			}
			for code := range seen {
				have[code]++
			}
			rest = append(rest, x)
		}
	}
	slices.SortStableFunc(rest, func(a, b text) int { return cmp.Compare(b.score, a.score) })
	found := map[string]bool{}
	for _, x := range rest {
		best := !found[x.of] // which is bad as a whole if its best passage is
		found[x.of] = true
		switch {
		case named(x.pictured, f.Unlike):
			bad = append(bad, x)
		case named(x.pictured, f.Like):
			good = append(good, x)
		}
		if best && f.Docs > 0 && !named(x.pictured, f.Unlike) {
			if f.Docs--; !named(x.pictured, f.Like) {
				good = append(good, x)
			}
		}
	}
	counts := func(side []text) (map[uint32]float64, map[uint32][]float64) {
		of, docs, sums := map[string]bool{}, map[uint32]map[string]bool{}, map[uint32][]float64{}
		for _, x := range side {
			of[x.of] = true
			for i, code := range x.codes {
				if docs[code] == nil {
					docs[code], sums[code] = map[string]bool{}, make([]float64, groupDim)
				}
				docs[code][x.of] = true
				for j := range groupDim {
					sums[code][j] += float64(x.tokens[i*groupDim+j])
				}
			}
		}
		share := map[uint32]float64{}
		for code := range docs {
			share[code] = float64(len(docs[code])) / float64(len(of))
		}
		return share, sums
	}
	out := Query{Vectors: slices.Clone(q.Vectors), Weights: slices.Repeat([]float32{1}, len(q.Vectors)/groupDim)}
	ofGood, _ := counts(good)
	for i, side := range [][]text{good, bad} {
		share, sums := counts(side)
		if i == 1 {
			maps.DeleteFunc(share, func(code uint32, _ float64) bool { _, also := ofGood[code]; return also })
		}
		weight := func(code uint32) float64 {
			return share[code] * (math.Log(float64(live+1)/float64(have[code]+1)) / max(math.Log(float64(live+1)), 1))
		}
		codes := slices.Sorted(maps.Keys(share))
		slices.SortStableFunc(codes, func(a, b uint32) int { return cmp.Compare(weight(b), weight(a)) })
		for _, code := range codes[:min(len(codes), f.Terms)] {
			row := make([]float32, groupDim)
			for j, x := range sums[code] {
				row[j] = float32(x)
			}
			if weight(code) > 0 {
				codec.Normalize(row, groupDim)
				out.Vectors = append(out.Vectors, row...)
				out.Weights = append(out.Weights, float32(f.Weight*[]float64{1, -.5}[i]*weight(code)))
			}
		}
	}
	return out
}

// Feedback over documents of passages against its definition, in one index and in several, with
// what is found and what is named in all combinations.
func TestFeedbackModel(t *testing.T) {
	ram, runs := testenv.RAMDir(t), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		m := newMaker(rapid.Uint64().Draw(t, "seed"), groupDim, 5)
		var docs []vectors.Document
		names := []string{}
		for i := range rapid.IntRange(3, 9).Draw(t, "documents") {
			of := fmt.Sprint("d", i)
			names = append(names, of)
			n := rapid.IntRange(0, 4).Draw(t, "passages")
			if n == 0 {
				docs = append(docs, vectors.Document{ID: of, Tokens: m.Tokens(3), Payload: []byte(`{"round":0}`)})
			}
			for j := range n {
				p := vectors.Passage{ParentID: of, Number: j, End: 1}
				payload, err := p.Payload([]byte(`{"round":0}`))
				require.NoError(t, err)
				docs = append(docs, vectors.Document{ID: p.ID(), Tokens: m.Tokens(rapid.IntRange(0, 4).Draw(t, "tokens")), Payload: payload})
				names = append(names, p.ID())
			}
		}
		src, err := vectors.FromDocuments(groupDim, docs)
		require.NoError(t, err)
		path := filepath.Join(ram, fmt.Sprint(runs, ".plaid"))
		_, err = index.Build(t.Context(), path, src, &index.BuildOptions{Centroids: 12, Nbits: 8})
		require.NoError(t, err)
		ix, err := index.Open(t.Context(), path, nil)
		require.NoError(t, err)
		defer ix.Close()
		snap, err := ix.Snapshot()
		require.NoError(t, err)
		defer snap.Close()
		snaps := []*index.Snapshot{snap}
		var e Searcher
		if rapid.Bool().Draw(t, "several") {
			_, err := index.Split(t.Context(), snap, path+".parts", 2, index.ByHash, nil)
			require.NoError(t, err)
			set, err := index.OpenShards(t.Context(), []string{filepath.Join(path+".parts", index.ShardFileName(0, 2)), filepath.Join(path+".parts", index.ShardFileName(1, 2))}, nil)
			require.NoError(t, err)
			defer set.Close()
			all, err := set.Snapshot()
			require.NoError(t, err)
			defer all.Close()
			snaps = all.Snapshots()
			e, err = NewMultiAt(t.Context(), all, nil)
			require.NoError(t, err)
		} else {
			var o EngineOptions
			if rapid.Bool().Draw(t, "device") {
				o.Device = &kerneltest.Device{}
			}
			e, err = NewAt(t.Context(), snap, &o)
			require.NoError(t, err)
		}
		defer e.Close()
		q := Query{Vectors: m.Tokens(rapid.IntRange(1, 4).Draw(t, "query"))}
		codec.Normalize(q.Vectors, groupDim)
		f := &Feedback{
			Docs: rapid.IntRange(0, 4).Draw(t, "docs"), Terms: rapid.IntRange(1, 5).Draw(t, "terms"), Weight: rapid.SampledFrom([]float64{.5, 3}).Draw(t, "weight"),
			Like:   rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 2, rapid.ID).Draw(t, "like"),
			Unlike: rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID).Draw(t, "unlike"),
		}
		o := Options{K: 1000, Mode: Exhaustive, Group: rapid.SampledFrom([]Grouping{"", GroupBest, GroupMaxSim}).Draw(t, "group"), Feedback: f}
		res, err := e.Search(t.Context(), q, o)
		both := slices.ContainsFunc(f.Like, func(id string) bool { return slices.Contains(f.Unlike, id) })
		if both || f.Docs+len(f.Like)+len(f.Unlike) == 0 || errors.Is(err, ErrOption) {
			require.ErrorIs(t, err, ErrOption)
			if !both && f.Docs+len(f.Like)+len(f.Unlike) > 0 { // nothing is left of what is liked
				require.NotEmpty(t, f.Unlike)
			}
			return
		}
		require.NoError(t, err)
		model := *f
		want, err := e.Search(t.Context(), addedByFeedback(t, q, &model, snaps), Options{K: 1000, Mode: Exhaustive, Group: o.Group})
		require.NoError(t, err)
		scores := func(hits []Hit) map[string]float64 {
			by := map[string]float64{}
			for _, h := range hits {
				by[h.ID] = float64(h.Score)
			}
			return by
		}
		require.InDeltaMapValues(t, scores(want.Hits), scores(res.Hits), 1e-4)
	})
}

// What feedback reads of the index it reads in turn, and its bytes are counted.
func TestFeedbackInTurn(t *testing.T) {
	m := newMaker(12, 16, 12)
	ix := searchtest.Build(t, 16, m.Docs("d", 2000, 12), &index.BuildOptions{Centroids: 256})
	s := NewScheduler(1, 0)
	e, err := New(t.Context(), ix, &EngineOptions{Threads: 1, Scheduler: s})
	require.NoError(t, err)
	defer e.Close()
	all := newCollection(searchtest.Snapshot(t, ix))
	f := &Feedback{Like: []string{"d1", "d2"}, Unlike: []string{"d3"}}
	other := callSlots{scheduler: s, lifetime: e.lifetime}
	_, err = other.acquire(t.Context(), 0)
	require.NoError(t, err)
	released := false
	defer func() {
		if !released {
			other.release(0)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := e.Search(ctx, m.query(3), Options{Feedback: &Feedback{Like: []string{"nobody"}}})
		failed <- err
	}()
	waits := func() (bytes int64) {
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.waitingCalls) == 0 {
				return false
			}
			bytes = s.waitingCalls[0].waiting[0].bytes
			return true
		}, time.Minute, time.Millisecond, "names are looked up in turn")
		return bytes
	}
	require.Equal(t, f.memoryBytes(all, 0), waits()+int64(len(f.Unlike))*96)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)

	// Between its turns for names and for evidence, another query has its own.
	type answer struct {
		res *Result
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		res, err := e.Search(t.Context(), m.query(3), Options{Feedback: f})
		answered <- answer{res, err}
	}()
	names := waits()
	next := make(chan error, 1)
	mine := callSlots{scheduler: s, lifetime: e.lifetime}
	go func() {
		_, err := mine.acquire(t.Context(), 1)
		next <- err
	}()
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.waitingCalls) == 2 }, time.Minute, time.Millisecond)
	other.release(0)
	released = true
	require.NoError(t, <-next)
	require.Greater(t, waits(), names, "of what is named")
	mine.release(1)
	got := <-answered
	require.NoError(t, got.err)
	require.Len(t, got.res.Hits, 10)
	require.Positive(t, got.res.Stats.Times.Wait)
	requireIdle(t, s)

	q := m.query(3)
	took := allocated(func() {
		liked, err := locateIDs(t.Context(), all, "like", f.Like)
		require.NoError(t, err)
		_, err = f.Expand(t.Context(), &q, 16, newCentroidEvidence(all, liked, nil))
		require.NoError(t, err)
	})
	require.Less(t, took, f.memoryBytes(all, 3)+1<<14)
}

// A query that is as long as one may be stays one with feedback: what it has no room for is left
// out, the lightest first, and said.
func TestFeedbackOfLongQuery(t *testing.T) {
	m := newMaker(13, 16, 12)
	ix := searchtest.Build(t, 16, m.Docs("d", 200, 12), &index.BuildOptions{Centroids: 64})
	e := on(t, ix, 1)
	defer func(n int) { maxScoreBytes = n }(maxScoreBytes)
	maxScoreBytes = 4 * 64 * 20 // 20 tokens
	o := Options{K: 5, Mode: Exhaustive, Feedback: &Feedback{Like: []string{"d1"}, Unlike: []string{"d2"}, Terms: 4}}
	for tokens, want := range map[int]int{3: 0, 15: 3, 20: 8} {
		q := m.query(tokens)
		q.Mask = slices.Repeat([]bool{true}, tokens)
		res := search(t, e, q, o)
		require.Equal(t, want, res.Stats.FeedbackCut, "of a query of %d tokens", tokens)
		require.Equal(t, min(tokens+8, 20), res.Stats.QueryTokens)
		if tokens == 20 {
			require.Equal(t, search(t, e, q, with(o, func(o *Options) { o.Feedback = nil })).Hits, res.Hits)
		}
	}
	_, err := e.Search(t.Context(), m.query(21), o)
	require.ErrorIs(t, err, ErrQuery)
	require.ErrorContains(t, err, "21 tokens")

	q := Query{Vectors: []float32{1, 2, 3, 4, 5}, Weights: []float32{1, .5, -.25, .125, -.75}, Mask: slices.Repeat([]bool{true}, 5)}
	require.Equal(t, 2, dropLightest(&q, 1, 1, 3))
	require.Equal(t, Query{Vectors: []float32{1, 2, 5}, Weights: []float32{1, .5, -.75}, Mask: slices.Repeat([]bool{true}, 3)}, q)
}
