package search

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Several indexes find what one index with their documents finds, to the bit.
func TestMultiIsOneIndex(t *testing.T) {
	ctx := context.Background()
	m := newMaker(41, 32, 60)
	docs := m.Docs("d", 1500, 8)
	one := searchtest.Build(t, 32, docs, &index.BuildOptions{SampleDocs: 500})
	e := on(t, one, 2)
	var qs []Query
	for i := range effort.Cases(6, 12) {
		q := m.query(1 + i)
		if i%3 == 1 {
			q.Weights = make([]float32, 1+i)
			for j := range q.Weights {
				q.Weights[j] = float32(j) - 1
			}
		}
		if i%4 == 2 {
			q.Filter = Where(bind(t, "n >= ?", 400))
		}
		qs = append(qs, q)
	}
	modes := []Options{
		{K: 2000, Mode: Exhaustive}, {K: 10, Mode: Exhaustive, Payload: true},
		{K: 10}, {K: 100, Payload: true}, {K: 20, Probes: 2}, {K: 20, Probes: 3, Approx: 60, Exact: 30}, {K: 30, Probes: 1, Exact: 30, Filter: Only("d1", "d700", "d701", "d1400")},
		{K: 5, Mode: Candidates, Candidates: []string{"d2", "d1499", "d800", "nobody"}, AllowMissing: true},
	}
	for _, n := range []int{1, 2, 3, 7, 16} {
		for _, byHash := range []bool{false, true} {
			if !effort.Long() && (n == 1 || n == 7 || byHash != (n == 3)) || effort.Brief() && n == 2 {
				continue
			}
			s := multi(t, sharded(t, one, docs, n, byHash), 2)
			for _, o := range modes {
				want, err := e.SearchBatch(ctx, qs, o)
				require.NoError(t, err)
				got, err := s.SearchBatch(ctx, qs, o)
				require.NoError(t, err)
				for i := range qs {
					what := fmt.Sprintf("%d parts, by hash %v, %+v, query %d", n, byHash, o, i)
					a, b := named(want[i].Hits), named(got[i].Hits)
					inOrder(t, got[i].Hits)
					if byHash && (o.K == 2000 || o.Mode == Candidates) { // the order of equal scores differs
						slices.Sort(a)
						slices.Sort(b)
					}
					switch {
					case !byHash || o.K == 2000 || o.Mode == Candidates:
						require.Equal(t, a, b, what)
					case o.Approx > 0: // the order of documents decides which of equal ones are in a tight budget
						continue
					default:
						require.Equal(t, scoresOf(want[i].Hits), scoresOf(got[i].Hits), what)
					}
					x, y := &want[i].Stats, &got[i].Stats
					require.Equal(t, x.Plans, y.Plans, what)
					require.Equal(t, []int64{x.Allowed, x.FilterMissing, x.Probed, x.Candidates, x.Widened, x.ApproxDocs, x.ApproxTokens},
						[]int64{y.Allowed, y.FilterMissing, y.Probed, y.Candidates, y.Widened, y.ApproxDocs, y.ApproxTokens}, what)
					require.Equal(t, want[i].K, got[i].K)
					require.Equal(t, Coverage{Docs: 1500, TotalDocs: 1500, Shards: n}, got[i].Coverage)
					require.True(t, got[i].Coverage.Complete())
					sumParts(t, n, &got[i])
				}
			}
		}
	}
}

// More documents than 32 bits can number are searched group by group.
func TestMultiGroups(t *testing.T) {
	m := newMaker(42, 16, 30)
	docs := m.Docs("d", 400, 6)
	one := searchtest.Build(t, 16, docs, nil)
	set := sharded(t, one, docs, 5, false)
	e, s := on(t, one, 2), multi(t, set, 2)
	defer func(n uint64) { maxGroupNumbers = n }(maxGroupNumbers)
	for _, parts := range []uint64{1, 2, 3} {
		maxGroupNumbers = parts * docBlock
		groups := 0
		snap, err := set.Snapshot()
		require.NoError(t, err)
		c := newCollection(snap.Snapshots()...)
		for at := 0; at < len(c.shards); at += len(c.groupFrom(at)) {
			groups++
		}
		require.NoError(t, snap.Close())
		require.EqualValues(t, (5+parts-1)/parts, groups)
		for range effort.Cases(4, 10) {
			q := m.query(5)
			for _, o := range []Options{{K: 1000, Mode: Exhaustive}, {K: 7, Mode: Exhaustive, Payload: true}, with(wide, func(o *Options) { o.Filter = Where(bind(t, "n > 100")) })} {
				want, err := e.Search(t.Context(), q, o)
				require.NoError(t, err)
				got, err := s.Search(t.Context(), q, o)
				require.NoError(t, err)
				require.Equal(t, named(want.Hits), named(got.Hits))
				require.Equal(t, want.Stats.Allowed, got.Stats.Allowed)
				sumParts(t, 5, got)
				for _, id := range []string{"d0", "d5", "d99", "d101", "d399", want.Hits[0].ID, want.Hits[6].ID} {
					a, err := e.Explain(t.Context(), q, id, o)
					require.NoError(t, err)
					b, err := s.Explain(t.Context(), q, id, o)
					require.NoError(t, err)
					require.Equal(t, a.Rank, b.Rank)
					require.Equal(t, a.Stage, b.Stage)
				}
			}
			// Each group has a budget of its own, so that nothing is lost.
			best, err := e.Search(t.Context(), q, Options{K: 10, Mode: Exhaustive})
			require.NoError(t, err)
			a, err := e.Search(t.Context(), q, Options{K: 10, Probes: 1})
			require.NoError(t, err)
			b, err := s.Search(t.Context(), q, Options{K: 10, Probes: 1})
			require.NoError(t, err)
			require.GreaterOrEqual(t, overlap(best.Hits, b.Hits), overlap(best.Hits, a.Hits))
		}
	}
}

// What is told of a document is what one index tells.
func TestMultiExplain(t *testing.T) {
	ctx := context.Background()
	m := newMaker(43, 16, 30)
	docs := m.Docs("d", 400, 6)
	one := searchtest.Build(t, 16, docs, nil)
	e, s := on(t, one, 2), multi(t, sharded(t, one, docs, 3, false), 2)
	stages := map[Stage]int{}
	for range effort.Cases(2, 4) {
		q := m.query(4)
		for _, o := range []Options{{K: 5}, {K: 5, Probes: 1, Approx: 20, Exact: 8}, {K: 5, Filter: Where(bind(t, "n < 300"))}} {
			for i := 0; i < len(docs); i += 3 {
				a, err := e.Explain(ctx, q, docs[i].ID, o)
				require.NoError(t, err)
				b, err := s.Explain(ctx, q, docs[i].ID, o)
				require.NoError(t, err)
				stages[a.Stage]++
				require.Equal(t, i*3/len(docs), b.Shard)
				b.Shard, b.Ordinal = 0, a.Ordinal
				require.Equal(t, a, b)
				stage, err := s.Trace(ctx, q, docs[i].ID, o)
				require.NoError(t, err)
				require.Equal(t, a.Stage, stage)
			}
		}
	}
	require.GreaterOrEqual(t, len(stages), 5, "%v", stages)
	_, err := s.Explain(ctx, m.query(2), "nobody", Options{})
	require.ErrorIs(t, err, ErrUnknownID)
}

// Ids and fields have to be somewhere, not everywhere.
func TestMultiFilters(t *testing.T) {
	ctx := context.Background()
	m := newMaker(44, 16, 10)
	docs := m.Docs("d", 90, 4)
	for i := range docs {
		docs[i].Payload = fmt.Appendf(nil, `{"n":%d,"field%d":true}`, i, i/30)
	}
	one := searchtest.Build(t, 16, docs, nil)
	s := multi(t, sharded(t, one, docs, 3, false), 2)
	q := m.query(3)
	for _, c := range []struct {
		f    *Filter
		want map[string]bool
		miss int64
	}{
		{Only("d1", "d31", "d89"), map[string]bool{"d1": true, "d31": true, "d89": true}, 0},
		{&Filter{IDs: []string{"d1", "nobody", "d88"}, AllowMissing: true}, map[string]bool{"d1": true, "d88": true}, 1},
		{Where(bind(t, "field1 = 1")), allowing(docs, func(i int) bool { return i/30 == 1 }), 0},
		{Where(bind(t, "field0 = 1 OR field2 = 1")), allowing(docs, func(i int) bool { return i/30 != 1 }), 0},
		{&Filter{IDs: []string{"d1", "d31", "d61"}, Where: bind(t, "n > 30")}, map[string]bool{"d31": true, "d61": true}, 0},
		{&Filter{}, map[string]bool{}, 0},
	} {
		for range 2 {
			for _, f := range []*Filter{c.f, c.f.Prepared()} {
				r, err := s.Search(ctx, q, Options{K: 200, Mode: Exhaustive, Filter: f})
				require.NoError(t, err)
				want := slices.DeleteFunc(slices.Collect(maps.Keys(c.want)), func(id string) bool { return !nonEmpty(docs, id) })
				require.ElementsMatch(t, want, ids(r.Hits))
				require.Equal(t, c.miss, r.Stats.FilterMissing)
			}
		}
	}
	for _, f := range []*Filter{Only("d1", "nobody"), {IDs: []string{"d1", "d2", "nobody"}, Where: bind(t, "n > 1")}} {
		_, err := s.Search(ctx, q, Options{Filter: f})
		require.ErrorIs(t, err, ErrUnknownID)
		require.ErrorContains(t, err, "nobody")
	}
	_, err := s.Search(ctx, q, Options{Filter: Where(bind(t, "field3 = 1"))})
	require.ErrorIs(t, err, condition.ErrUnknownField)
	_, err = s.Search(ctx, q, Options{Filter: &Filter{Docs: from(1, 2)}})
	require.ErrorIs(t, err, ErrOption)
	r, err := s.Search(ctx, q, Options{K: 3, Mode: Exhaustive})
	require.NoError(t, err)
	floor, ok := r.Floor()
	require.True(t, ok)
	require.Equal(t, r.Hits[2].Score, floor)
	r, err = s.Search(ctx, q, Options{K: 300, Mode: Exhaustive})
	require.NoError(t, err)
	_, ok = r.Floor()
	require.False(t, ok)
}

// Whatever is done to a set, searches find what an index finds to which it is done.
func TestMultiModel(t *testing.T) {
	ctx := context.Background()
	m := newMaker(45, 8, 10)
	base := m.Docs("d", 60, 3)
	one := searchtest.Build(t, 8, base, nil)
	set := sharded(t, one, base, 3, true)
	e, s := on(t, one, 1), multi(t, set, 1)
	made := 0
	where := func(text string, params ...any) *condition.Condition { return bind(t, text, params...) }
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			some := rapid.SliceOfNDistinct(rapid.IntRange(0, 80), 1, 6, rapid.ID).Draw(t, "documents")
			switch rapid.SampledFrom([]string{"add", "replace", "delete", "where", "update", "payload"}).Draw(t, "change") {
			case "add", "replace":
				made++
				var docs []vectors.Document
				for _, i := range some {
					docs = append(docs, vectors.Document{ID: fmt.Sprintf("d%d", i), Tokens: m.Tokens(1 + m.Rand.IntN(4)), Payload: fmt.Appendf(nil, `{"n":%d}`, made)})
				}
				src, err := vectors.FromDocuments(8, docs)
				require.NoError(t, err)
				o := &index.AddOptions{Replace: rapid.Bool().Draw(t, "replace"), Threads: 1}
				a, aerr := one.Add(ctx, src, o)
				b, berr := set.Add(ctx, src, o)
				require.Equal(t, aerr == nil, berr == nil)
				if aerr != nil {
					require.ErrorIs(t, berr, index.ErrDuplicateID)
					continue
				}
				require.Equal(t, []any{a.Docs, a.Empty, a.Replaced, a.Tokens, a.Clamped}, []any{b.Docs, b.Empty, b.Replaced, b.Tokens, b.Clamped})
				require.InDelta(t, a.RMSE, b.RMSE, 1e-9)
			case "delete":
				var names []string
				for _, i := range some {
					names = append(names, fmt.Sprintf("d%d", i))
				}
				n, missing, err := one.Delete(ctx, names)
				require.NoError(t, err)
				k, lost, err := set.Delete(ctx, names)
				require.NoError(t, err)
				require.Equal(t, n, k)
				require.Equal(t, missing, lost)
			case "where":
				c := where("_id = ?", fmt.Sprintf("d%d", some[0]))
				n, err := one.DeleteWhere(ctx, c)
				require.NoError(t, err)
				k, err := set.DeleteWhere(ctx, c)
				require.NoError(t, err)
				require.Equal(t, n, k)
			case "update":
				made++
				c := where("n > ?", made-rapid.IntRange(1, 20).Draw(t, "last"))
				fields := condition.Fields{"m": json.RawMessage(strconv.Itoa(made))}
				n, aerr := one.UpdatePayload(ctx, c, fields)
				k, berr := set.UpdatePayload(ctx, c, fields)
				require.Equal(t, []any{n, aerr == nil}, []any{k, berr == nil}, "%v %v", aerr, berr)
			case "payload":
				made++
				payloads := map[string][]byte{}
				for _, i := range some {
					payloads[fmt.Sprintf("d%d", i)] = fmt.Appendf(nil, `{"n":%d}`, made)
				}
				n, missing, err := one.SetPayload(ctx, payloads)
				require.NoError(t, err)
				k, lost, err := set.SetPayload(ctx, payloads)
				require.NoError(t, err)
				require.Equal(t, []any{n, missing}, []any{k, lost})
			}
		}
		q := m.query(3)
		want, err := e.Search(ctx, q, Options{K: 100, Mode: Exhaustive, Payload: true})
		require.NoError(t, err)
		got, err := s.Search(ctx, q, Options{K: 100, Mode: Exhaustive, Payload: true})
		require.NoError(t, err)
		a, b := named(want.Hits), named(got.Hits)
		slices.Sort(a)
		slices.Sort(b)
		require.Equal(t, a, b)
		d, err := s.Describe(ctx)
		require.NoError(t, err)
		x, err := e.Describe(ctx)
		require.NoError(t, err)
		require.Equal(t, []any{x.Docs, x.Tokens}, []any{d.Docs, d.Tokens})
		require.Len(t, d.Shards, 3)
	})
	snap, err := set.Snapshot()
	require.NoError(t, err)
	for i, p := range snap.Snapshots() {
		require.NoError(t, p.Verify(ctx))
		for o := range p.State().Docs {
			if p.Live(o) {
				require.Equal(t, i, index.HashShard(p.ID(o), 3), "new documents go where hashes say")
			}
		}
	}
	require.NoError(t, snap.Close())
}

// Searches beside a writer see all of a change over several files or nothing of it.
func TestMultiSeesWholeChanges(t *testing.T) {
	ctx := context.Background()
	m := newMaker(46, 8, 5)
	docs := m.Docs("d", 40, 3)
	one := searchtest.Build(t, 8, docs, nil)
	set := sharded(t, one, docs, 4, true)
	s, q := multi(t, set, 1), m.query(2)
	const size = 12
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				r, err := s.Search(ctx, q, Options{K: 1000, Mode: Exhaustive})
				if err != nil {
					t.Error(err)
					return
				}
				count := map[byte]int{}
				for _, h := range r.Hits {
					if h.ID[0] != 'd' {
						count[h.ID[0]]++
					}
				}
				for batch, n := range count {
					if n != size {
						t.Errorf("%d of %d documents of batch %c", n, size, batch)
						return
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for round := range effort.Cases(8, 15) {
		var more []vectors.Document
		var names []string
		for i := range size {
			names = append(names, fmt.Sprintf("%c%d", 'e'+round, i))
			more = append(more, vectors.Document{ID: names[i], Tokens: m.Tokens(2)})
		}
		_, err := set.Add(ctx, searchtest.Source(t, 8, more), nil)
		require.NoError(t, err)
		if round%2 == 0 {
			n, _, err := set.Delete(ctx, names)
			require.NoError(t, err)
			require.Equal(t, index.Affected{Documents: size}, n)
		}
	}
	close(done)
	wg.Wait()
}

// Indexes of other codecs are refused, with both files and digests.
func TestMultiCodecs(t *testing.T) {
	m := newMaker(48, 8, 5)
	docs := m.Docs("d", 50, 3)
	a := searchtest.Build(t, 8, docs, nil)
	for name, o := range map[string]*index.BuildOptions{
		"seed": {Seed: 9}, "bits": {Nbits: 4}, "scales": {NoDimScales: true}, "not normalized": {Unnormalized: true, Codec: searchtest.Snapshot(t, a).Quantizer()},
	} {
		b := searchtest.Build(t, 8, docs, o)
		_, err := index.NewShards(a, b)
		require.ErrorIs(t, err, index.ErrCodec, name)
		var e *index.CodecError
		require.ErrorAs(t, err, &e)
		require.Equal(t, [2]string{a.Path(), b.Path()}, e.Paths)
		require.NotEqual(t, e.Digests[0], e.Digests[1], name)
		for i := range 2 {
			require.ErrorContains(t, err, e.Paths[i])
			require.ErrorContains(t, err, e.Digests[i][:12])
		}
		_, err = index.OpenShards(t.Context(), []string{a.Path(), b.Path()}, nil)
		require.ErrorIs(t, err, storage.ErrLocked)
	}
	x := searchtest.Build(t, 8, docs, &index.BuildOptions{Codec: searchtest.Snapshot(t, a).Quantizer(), Model: &storage.Model{Name: "x", Fingerprint: "1"}})
	y := searchtest.Build(t, 8, docs, &index.BuildOptions{Codec: searchtest.Snapshot(t, a).Quantizer(), Model: &storage.Model{Name: "y", Fingerprint: "2"}})
	_, err := index.NewShards(x, y)
	require.ErrorIs(t, err, storage.ErrModel)
	_, err = index.NewShards(a, x)
	require.NoError(t, err)
	_, err = index.NewShards()
	require.ErrorIs(t, err, index.ErrOption)
	_, err = index.OpenShards(t.Context(), []string{t.TempDir() + "/none"}, nil)
	require.Error(t, err)
}
