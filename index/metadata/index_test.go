package metadata_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

var bind = conditiontest.Bind

// document has one token, so that searches may return it.
func document(id, payload string) vectors.Document {
	return vectors.Document{ID: id, Tokens: []float32{1, 0, 0, 0}, Payload: []byte(payload)}
}

// wide is an object of so many fields, and of others.
func wide(fields int, more string) string {
	object := map[string]int{}
	for i := range fields {
		object[fmt.Sprintf("f%04d", i)] = i
	}
	b, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return string(b[:len(b)-1]) + "," + more + "}"
}

// found are the ids of the documents that a condition is true of, by Select and, of those
// that have tokens, by a filter.
func found(t testing.TB, ix *index.Index, text string) []string {
	t.Helper()
	snap := searchtest.Snapshot(t, ix)
	selected, err := snap.Select(context.Background(), bind(t, text))
	require.NoError(t, err)
	filtered, err := search.Where(bind(t, text)).Ordinals(context.Background(), snap)
	require.NoError(t, err)
	live, _ := snap.LiveSet()
	require.Equal(t, roaring.And(selected, roaring.FromDense(live, true)).ToArray(), filtered.ToArray(), text)
	ids := []string{}
	for _, ordinal := range selected.ToArray() {
		ids = append(ids, snap.ID(ordinal))
	}
	slices.Sort(ids)
	return ids
}

// A run from which fields were left out goes into a newer one that has them: what it
// does not say of its documents is not said by the newer one either.
func TestFieldsBeyondTheLimitSurviveMerges(t *testing.T) {
	ctx := context.Background()
	ix := searchtest.Build(t, 4, []vectors.Document{
		document("wide", wide(1000, `"a": 1`)), // z and owner are beyond the limit
		document("old", `{"z": 1, "owner": "ann"}`),
	}, nil)
	_, err := ix.Add(ctx, searchtest.Source(t, 4, []vectors.Document{
		document("new", `{"z": 2, "owner": "bob"}`), document("newer", `{"owner": null}`),
	}), nil)
	require.NoError(t, err)
	for range 2 {
		require.Equal(t, []string{"old"}, found(t, ix, "z = 1"))
		require.Equal(t, []string{"newer", "wide"}, found(t, ix, "z IS NULL"))
		require.Equal(t, []string{"new", "old"}, found(t, ix, "owner IS NOT NULL"))
		require.NoError(t, ix.Verify(ctx))
		n, err := ix.UpdatePayload(ctx, bind(t, "owner = 'ann'"), condition.Fields{"seen": json.RawMessage("true")})
		require.NoError(t, err)
		require.Equal(t, index.Affected{Documents: 1}, n)
		require.Equal(t, []string{"old"}, found(t, ix, "seen = TRUE"))
	}
	n, err := ix.DeleteWhere(ctx, bind(t, "owner IS NULL"))
	require.NoError(t, err)
	require.Equal(t, index.Affected{Documents: 2}, n)
	require.Equal(t, []string{"new", "old"}, found(t, ix, "1=1"))
	require.NoError(t, ix.Verify(ctx))
}

// Conditions that would take hours end soon after their context, whether they are
// answered by runs, ids or payloads.
func TestConditionsEndWithTheirContext(t *testing.T) {
	effort.SkipBrief(t, "one goroutine")
	letters := strings.Repeat("a", effort.Cases(1<<16, 1<<18))
	var docs []vectors.Document
	for i := range 50 {
		d := document(strings.Repeat("a", 500)+fmt.Sprint(i), fmt.Sprintf(`{"text": "%s", "short": "%s"}`, letters, letters[:30+i%10]))
		docs = append(docs, d)
	}
	ix := searchtest.Build(t, 4, docs, nil)
	snap := searchtest.Snapshot(t, ix)
	slow := strings.Repeat("(a?){50}", 100) + "b"
	for _, c := range []*condition.Condition{
		bind(t, "text LIKE ?", "%"+strings.Repeat("a_", 24000)+"b"),
		bind(t, "text REGEXP ?", slow),
		bind(t, "NOT text = 'x'"+strings.Repeat(" AND NOT text LIKE '%a%b%c%d%e%zzz'", condition.MaxTests-1)),
		bind(t, "short = 'x'"+strings.Repeat(" OR short LIKE '%a%a%a%a%zzz'", condition.MaxTests-1)),
		bind(t, "short REGEXP ?"+strings.Repeat(" OR short REGEXP 'b'", 9000), slow),
		bind(t, "_id REGEXP ?"+strings.Repeat(" OR _id LIKE '%a%a%a%a%zzz'", condition.MaxTests-1), slow),
		bind(t, "_subset_ LIKE '1%'"+strings.Repeat(" OR _subset_ LIKE '%a%a%a%a%zzz'", condition.MaxTests-1)),
	} {
		ctx := countdown.New(100)
		_, err := snap.Select(ctx, c)
		require.ErrorIs(t, err, context.Canceled)
		require.Greater(t, ctx.Remaining(), -100, "it is asked by each goroutine that works")
	}
}

// One payload of many megabytes is not read to its end, when conditions read it, when
// facets do, when fields are looked for, and when runs are made.
func TestOneLongPayloadEndsWithItsContext(t *testing.T) {
	effort.SkipBrief(t, "one goroutine")
	size := effort.Cases(2<<20, 8<<20)
	long := `{"a": {"b": {"c": {"d": {"e.f.g.h": {"i": [` + strings.Repeat(`"x", `, size/5) + `"y"]}}}}}}`
	ix := indexOf(t, long)
	snap := searchtest.Snapshot(t, ix)
	for name, read := range map[string]func(ctx context.Context) error{
		"condition": func(ctx context.Context) error {
			_, err := snap.Select(ctx, bind(t, "a.b.c.d.e.f.g.h.i IS NOT NULL"))
			return err
		},
		"unknown field": func(ctx context.Context) error {
			_, err := snap.Select(ctx, bind(t, "a.b.c.d.e.f.g.h.j = 1"))
			if errors.Is(err, condition.ErrUnknownField) {
				err = nil
			}
			return err
		},
		"facet": func(ctx context.Context) error {
			_, err := snap.Facet(ctx, "a.b.c.d.e.f.g.h.i", nil, nil)
			return err
		},
		"update": func(ctx context.Context) error {
			_, _, err := ix.SetPayload(ctx, map[string][]byte{"d0": []byte(long)})
			return err
		},
	} {
		ctx := countdown.New(math.MaxInt)
		require.NoError(t, read(ctx), name)
		looks := math.MaxInt - ctx.Remaining()
		require.Greater(t, looks, size>>17, name)
		require.ErrorIs(t, read(countdown.New(looks/2)), context.Canceled, name)
	}
}

// Thousands of equalities of one field are one look at its values.
func TestManyEqualitiesAreCheap(t *testing.T) {
	var docs []vectors.Document
	var titles []any
	for i := range 3000 {
		title := fmt.Sprintf("a title of which the first thirty-two bytes are those of others, %d", i)
		docs = append(docs, vectors.Document{ID: fmt.Sprint(i), Payload: fmt.Appendf(nil, `{"title": "%s"}`, title)})
		if i%2 == 0 {
			titles = append(titles, title)
		}
	}
	docs[0].Tokens = []float32{1, 0, 0, 0}
	snap := searchtest.Snapshot(t, searchtest.Build(t, 4, docs, nil))
	for _, text := range []string{"title = ?" + strings.Repeat(" OR title = ?", len(titles)-1), "NOT (title <> ?" + strings.Repeat(" AND title <> ?", len(titles)-1) + ")"} {
		c := bind(t, text, titles...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		selected, err := snap.Select(context.Background(), c)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.EqualValues(t, len(titles), selected.GetCardinality())
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(30<<20))
	}
}
