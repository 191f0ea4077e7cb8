package metadata_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// indexOf has documents d0, d1 and so on of these payloads.
func indexOf(t testing.TB, payloads ...string) *index.Index {
	docs := make([]vectors.Document, len(payloads))
	for i, p := range payloads {
		docs[i] = document(fmt.Sprint("d", i), p)
	}
	return searchtest.Build(t, 4, docs, nil)
}

// facetText is a facet in short: its counts, its values in order, and how many are left out.
func facetText(t testing.TB, f *index.Facet, err error) string {
	t.Helper()
	require.NoError(t, err)
	text := fmt.Sprintf("%d docs, %d missing, %d null:", f.Docs, f.Missing, f.Null)
	for _, v := range f.Values {
		b, err := json.Marshal(v.Value)
		require.NoError(t, err)
		text += fmt.Sprintf(" %s×%d", b, v.Docs)
	}
	return fmt.Sprintf("%s +%d", text, f.Others)
}

// What JSON tells apart is told apart, whatever runs take for one, and equal numbers are
// one value.
func TestFacetValues(t *testing.T) {
	ctx := context.Background()
	long := strings.Repeat("long ", 20)
	ix := indexOf(t,
		`{"v": 1}`, `{"v": 1.0}`, `{"V": true}`, `{"v": "1"}`, `{"v": false}`, `{"v": [true, 1, 1.0, "1"]}`, `{"v": "[1]"}`, `{"v": [[1], [1 ]]}`,
		`{"v": 0}`, `{"v": -0.0}`, `{"v": null}`, `{"v": [null, 0]}`, `{"v": []}`, `{"v": {"of": 3}}`, `{"v": "`+long+`a"}`, `{"v": "`+long+`b"}`,
		`{"w": 1}`, `[1]`, `{"v": 9007199254740993}`, `{"v": 9007199254740992.0}`, `{"v": 1e300}`, `{"v": "{}"}`, `{"v": "`+long+`a"}`, ``,
	)
	snap := searchtest.Snapshot(t, ix)
	f, err := snap.Facet(ctx, "v", nil, &index.FacetOptions{Values: 100})
	require.Equal(t, `24 docs, 3 missing, 2 null: 0×3 1×3 true×2 "1"×2 "`+long+`a"×2 false×1 9007199254740992×1 9007199254740993×1 1e+300×1 "[1]"×1 [1]×1 "`+long+
		`b"×1 {"of":3}×1 "{}"×1 +0`, facetText(t, f, err))
	require.EqualValues(t, "v", f.Field)
	f, err = snap.Facet(ctx, "v", nil, &index.FacetOptions{Values: 3})
	require.Equal(t, `24 docs, 3 missing, 2 null: 0×3 1×3 true×2 +11`, facetText(t, f, err))
	f, err = snap.Facet(ctx, "v", roaring.BitmapOf(2, 5, 10, 16, 5000), nil)
	require.Equal(t, `4 docs, 1 missing, 1 null: true×2 1×1 "1"×1 +0`, facetText(t, f, err))
	f, err = snap.Facet(ctx, "v", roaring.New(), nil)
	require.Equal(t, `0 docs, 0 missing, 0 null: +0`, facetText(t, f, err))
	f, err = snap.Facet(ctx, condition.MakeField("v", "of"), nil, nil)
	require.Equal(t, `24 docs, 23 missing, 0 null: 3×1 +0`, facetText(t, f, err))
	b, err := json.Marshal(f)
	require.NoError(t, err)
	require.JSONEq(t, `{"field": "v.of", "docs": 24, "missing": 23, "null": 0, "values": [{"value": 3, "docs": 1}], "others": 0}`, string(b))

	_, err = snap.Facet(ctx, "u", nil, nil)
	require.ErrorIs(t, err, condition.ErrUnknownField)
	require.ErrorContains(t, err, "there are, nearest first: v, w, v.of")
	f, err = snap.Facet(ctx, "u", nil, &index.FacetOptions{Lenient: true})
	require.Equal(t, `24 docs, 24 missing, 0 null: +0`, facetText(t, f, err))
	for _, field := range []condition.Field{condition.FieldID, condition.FieldOrdinal} {
		_, err = snap.Facet(ctx, field, nil, nil)
		require.ErrorIs(t, err, index.ErrOption)
	}
	for _, o := range []index.FacetOptions{{Values: -1}, {Memory: -1}} {
		_, err = snap.Facet(ctx, "v", nil, &o)
		require.ErrorIs(t, err, index.ErrOption)
	}
}

// Fields that runs leave out, documents that are in none, and several indexes.
func TestFacetsOfSeveralIndexes(t *testing.T) {
	ctx := context.Background()
	wideOne := searchtest.Build(t, 4, []vectors.Document{
		document("wide", wide(1000, `"a": 1, "z": "x"`)), document("old", `{"z": "x", "deep": {"b": {"c": {"d": {"e": "x"}}}}}`), document("gone", `{"z": "y"}`),
	}, nil)
	_, _, err := wideOne.Delete(ctx, []string{"gone"})
	require.NoError(t, err)
	other := indexOf(t, `{"z": 1}`, `{"z": 2}`, `{}`, `{"y": 1}`)
	snaps := []*index.Snapshot{searchtest.Snapshot(t, wideOne), searchtest.Snapshot(t, other)}
	f, err := index.FacetAll(ctx, snaps, "z", nil, nil)
	require.Equal(t, `6 docs, 2 missing, 0 null: "x"×2 1×1 2×1 +0`, facetText(t, f, err))
	f, err = index.FacetAll(ctx, snaps, "z", []*roaring.Bitmap{roaring.BitmapOf(1), nil}, nil)
	require.Equal(t, `5 docs, 2 missing, 0 null: 1×1 2×1 "x"×1 +0`, facetText(t, f, err))
	f, err = snaps[0].Facet(ctx, "deep.b.c.d.e", nil, nil)
	require.Equal(t, `2 docs, 1 missing, 0 null: "x"×1 +0`, facetText(t, f, err))
}

// Facets of very many values are refused, by what they take, and those of few documents
// are not.
func TestFacetsAreBounded(t *testing.T) {
	ctx := context.Background()
	var payloads []string
	for i := range 3000 {
		payloads = append(payloads, fmt.Sprintf(`{"n": %d, "tags": [%d, "t%d"], "text": "%s%d", "few": %d}`, i+2, i, i%7, strings.Repeat("x", 50), i, 2+i%3))
	}
	snap := searchtest.Snapshot(t, indexOf(t, payloads...))
	o := &index.FacetOptions{Memory: 100_000}
	for _, field := range []condition.Field{"n", "tags", "text"} {
		_, err := snap.Facet(ctx, field, nil, o)
		require.ErrorIs(t, err, index.ErrTooManyValues)
		require.ErrorContains(t, err, string(field))
		f, err := snap.Facet(ctx, field, roaring.BitmapOf(1, 8), o)
		require.NoError(t, err)
		require.EqualValues(t, 2, f.Docs)
		f, err = snap.Facet(ctx, field, nil, &index.FacetOptions{Values: math.MaxInt})
		require.NoError(t, err)
		require.Zero(t, f.Others)
		require.GreaterOrEqual(t, len(f.Values), 3000)
	}
	f, err := snap.Facet(ctx, "few", nil, o)
	require.Equal(t, `3000 docs, 0 missing, 0 null: 2×1000 3×1000 4×1000 +0`, facetText(t, f, err))
	array := indexOf(t, `{"tags": ["`+strings.Repeat(`x", "`, 100_000)+`y"]}`, `{"tags": [`+strings.Repeat(`[1], `, 100_000)+`2]}`)
	f, err = searchtest.Snapshot(t, array).Facet(ctx, "tags", nil, &index.FacetOptions{Memory: 1000})
	require.Equal(t, `2 docs, 0 missing, 0 null: 2×1 [1]×1 "x"×1 "y"×1 +0`, facetText(t, f, err))
}

// Facets end with their context: in the blocks of runs, in payloads, in a long array, and
// among very many values.
func TestFacetsEndWithTheirContext(t *testing.T) {
	effort.SkipBrief(t, "one goroutine")
	var payloads []string
	for i := range 9_000 {
		payloads = append(payloads, fmt.Sprintf(`{"n": %d, "yes": %v}`, i, i%2 == 0))
	}
	var numbers strings.Builder
	for i := range effort.Cases(30_000, 100_000) {
		fmt.Fprintf(&numbers, "%d,", i)
	}
	payloads = append(payloads, `{"array": [`+numbers.String()+`"end"]}`)
	snap := searchtest.Snapshot(t, indexOf(t, payloads...))
	for _, field := range []condition.Field{"n", "yes", "array"} {
		ctx := countdown.New(math.MaxInt)
		all := &index.FacetOptions{Values: math.MaxInt}
		f, err := snap.Facet(ctx, field, nil, all)
		require.NoError(t, err)
		require.EqualValues(t, len(payloads), f.Docs)
		looks := math.MaxInt - ctx.Remaining()
		require.Greater(t, looks, len(payloads)/4096, field)
		for left := 0; left < 3*looks/4; left += 1 + looks/effort.Cases(4, 20) { // how often it looks while it sorts differs
			ctx := countdown.New(left)
			_, err := snap.Facet(ctx, field, nil, all)
			require.ErrorIs(t, err, context.Canceled, field)
			require.Greater(t, ctx.Remaining(), -100)
		}
	}
}
