package search

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/vectors"
)

// allocated is how many bytes fn allocates in sum, not the first time.
func allocated(fn func()) int64 {
	fn()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// passagesOf are passages of documents, with one token each.
func passagesOf(t testing.TB, m maker, prefix string, docs int, each func(doc int) int) (all []vectors.Document) {
	for d := range docs {
		for i := range each(d) {
			p := vectors.Passage{ParentID: fmt.Sprint(prefix, d), Number: i, Start: i, End: i + 1}
			payload, err := p.Payload(nil)
			require.NoError(t, err)
			all = append(all, vectors.Document{ID: p.ID(), Tokens: m.Tokens(1), Payload: payload})
		}
	}
	return all
}

// What a grouped search allocates is counted, and little: of many documents, of few passages each, of
// many, or of none, and where one document has nearly all passages.
func TestGroupBytes(t *testing.T) {
	if effort.RaceDetector {
		t.Skip("the race detector allocates, too")
	}
	n := effort.Cases(8_000, 50_000)
	for name, each := range map[string]func(i int) int{
		"one":  func(int) int { return 1 },
		"four": func(int) int { return 4 },
		"long": func(i int) int { return max((i+1)/(n/4)*n/2, 1) }, // the last has two thirds of all
	} {
		t.Run(name, func(t *testing.T) {
			m := newMaker(1, 8, 20)
			docs := passagesOf(t, m, "p", n/4, each)
			docs = append(docs, m.Docs("d", n/4, 1)...)
			ix := searchtest.Build(t, 8, docs, &index.BuildOptions{Centroids: 64})
			e := on(t, ix, 1)
			all := newCollection(searchtest.Snapshot(t, ix))
			q := m.query(4)
			for _, group := range Groupings() {
				for _, mode := range []Mode{Pruned, Exhaustive} {
					for _, k := range []int{10, 1000} {
						o := Options{K: k, Mode: mode, Group: group, Passages: 3}
						r, err := o.toRequest(all, true, false)
						require.NoError(t, err)
						counted := runBytes(all, 4, &r)
						took := allocated(func() { require.Len(t, search(t, e, q, o).Hits, k) })
						// Rounds, one after the other, each allocate; and hits are the caller's.
						most := map[Mode]int64{Pruned: 160, Exhaustive: 80}[mode] // bytes of a document
						what := fmt.Sprintf("%s, %v, %d hits: %d bytes a document", group, mode, k, took/int64(len(docs)))
						require.Less(t, took, 4*counted+int64(k)*4096+int64(len(docs))*64+1<<19, what)
						require.Less(t, counted, int64(len(docs))*128+int64(k)*24<<10+1<<20, what)
						require.Less(t, took, int64(len(docs))*most+int64(k)*16384+1<<20, what)
					}
				}
			}
		})
	}
}

// Passages of a document are together.
func TestGroupMembers(t *testing.T) {
	m := newMaker(2, 8, 4)
	docs := passagesOf(t, m, "p", 40, func(i int) int { return 1 + i%5 })
	snap := searchtest.Snapshot(t, searchtest.Build(t, 8, append(docs, m.Docs("d", 5, 2)...), nil))
	passages := snap.Passages()
	live, count := snap.LiveSet()
	for _, s := range []*selection{{set: live, count: count}, {list: appendBits(nil, live), count: count}} {
		got, err := allowedPassages(t.Context(), snap, s, passages)
		require.NoError(t, err)
		require.Len(t, got.groupStarts, 40)
		seen := map[string]bool{}
		for d := range got.groupStarts {
			id, _ := snap.PassageOf(got.document(d)[0])
			require.False(t, seen[id])
			seen[id] = true
			for i, o := range got.document(d) {
				of, _ := snap.PassageOf(o)
				require.Equal(t, id, of)
				require.True(t, i == 0 || got.document(d)[i-1] < o, "in order")
			}
		}
		require.Len(t, got.passages, len(docs))
	}
	few, err := allowedPassages(t.Context(), snap, &selection{list: []uint32{0, 3}, count: 2}, passages)
	require.NoError(t, err)
	require.Equal(t, []uint32{0, 3}, few.passages)
	rest := (&selection{set: live, count: count}).without(roaring.BitmapOf(0, 7, 1<<20))
	require.Equal(t, count-2, rest.count)
	require.False(t, rest.contains(7))
}

// RankGroups gives each document once, and reads the hits that are returned alone.
func TestGroupOnce(t *testing.T) {
	type ranked struct {
		id, of string
		part   int
	}
	all := []ranked{
		{"a#1", "a", 0}, {"a", "", 1}, {"a#0", "a", 0}, {"gone", "", 0}, {"b", "", 0},
		{"a#2", "a", 0}, {"c", "", 0},
	}
	asked := []int{}
	read := []string{}
	find := func(k, passages int) (ids []string) {
		asked, read = nil, nil
		hits, err := RankGroups(t.Context(), k, passages, len(all), func(depth int) ([]ranked, error) {
			asked = append(asked, depth)
			return all[:min(depth, len(all))], nil
		}, func(r *ranked) (DocumentKey, bool) {
			if r.of != "" {
				return DocumentKey{r.part, r.of}, true
			}
			return DocumentKey{r.part, r.id}, r.id != "gone"
		}, func(r *ranked) (Hit, error) {
			read = append(read, r.id)
			return Hit{ID: r.id, Shard: r.part}, nil
		})
		require.NoError(t, err)
		for _, h := range hits {
			ids = append(ids, fmt.Sprintf("%s%d%d", h.ID, h.Shard, len(h.Passages)))
		}
		return ids
	}
	require.Equal(t, []string{"a02", "a11", "b01", "c01"}, find(9, 2))
	require.Equal(t, []string{"a#1", "a#0", "a", "b", "c"}, read, "those of hits alone, and no more than are shown")
	require.Equal(t, []string{"a01"}, find(1, 1))
	require.Equal(t, []int{7}, asked)
	require.Equal(t, []string{"a02", "a11"}, find(2, 2))
	require.Equal(t, []int{7}, asked)
	require.Equal(t, []string{"a03", "a11", "b01"}, find(3, 100))
	boom := errors.New("boom")
	_, err := RankGroups(t.Context(), 1, 1, 1, func(int) ([]ranked, error) { return nil, boom }, nil, nil)
	require.ErrorIs(t, err, boom)
}

// Documents that words rank take memory that is counted, whatever their payloads, and however many
// passages one of them has before the others.
func TestBytesOfRankedWords(t *testing.T) {
	if effort.RaceDetector {
		t.Skip("the race detector allocates, too")
	}
	m := newMaker(4, 8, 4)
	n := effort.Cases(2000, 20_000)
	docs := passagesOf(t, m, "p", 40, func(i int) int { return max(n*(1-i), 1) })
	for i := range docs {
		open := docs[i].Payload[:len(docs[i].Payload)-1]
		docs[i].Payload = fmt.Appendf(open, `,"f":%q}`, strings.Repeat("x", 2000))
	}
	snap := searchtest.Snapshot(t, searchtest.Build(t, 8, docs, &index.BuildOptions{Centroids: 8}))
	ranking := make([]keywords.ScoredDocument, len(docs))
	for i := range ranking {
		ranking[i].Ordinal = uint32(i)
	}
	const k, passages = 10, 3
	rounds := 0
	took := allocated(func() {
		rounds = 0
		hits, err := RankWords(t.Context(), snap, k, passages, false, func(k int) ([]keywords.ScoredDocument, error) {
			rounds++
			return ranking[:min(k, len(ranking))], nil
		})
		require.NoError(t, err)
		require.Len(t, hits, k)
		require.Equal(t, "p0", hits[0].ID)
		require.Len(t, hits[0].Passages, passages)
		require.NotNil(t, hits[0].Passages[2].Passage)
		require.Nil(t, hits[0].Payload)
		require.Nil(t, hits[0].Passages[0].Payload)
	})
	require.Less(t, took, 2*RankGroupsBytes(k, passages, len(docs))+1<<18)
	require.LessOrEqual(t, rounds, 5)
	hits, err := RankWords(t.Context(), snap, 1, 1, true, func(int) ([]keywords.ScoredDocument, error) { return ranking, nil })
	require.NoError(t, err)
	require.Contains(t, string(hits[0].Passages[0].Payload), vectors.PassageField)
	require.NotContains(t, string(hits[0].Payload), vectors.PassageField)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = RankWords(ctx, snap, k, passages, false, func(int) ([]keywords.ScoredDocument, error) { return ranking, nil })
	require.ErrorIs(t, err, context.Canceled)
}
