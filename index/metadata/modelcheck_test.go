package metadata_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// check holds what is answered now against the payloads.
func (m *model) check() {
	snap, err := m.ix.Snapshot()
	require.NoError(m.t, err)
	defer snap.Close()
	require.Equal(m.t, len(m.docs), snap.Len())
	var chosen *roaring.Bitmap
	for range 2 {
		if docs := m.checkCondition(snap); docs != nil {
			chosen = docs
		}
	}
	m.checkFacet(snap, nil)
	if chosen != nil {
		m.checkFacet(snap, chosen)
	}
	if m.rng.IntN(4) == 0 {
		require.NoError(m.t, m.words.Sync(context.Background(), snap))
		m.checkKeywords(snap, nil)
		if chosen != nil {
			m.checkKeywords(snap, chosen)
		}
	}
}

// sound verifies the index, and the payloads themselves.
func (m *model) sound() {
	require.NoError(m.t, m.ix.Verify(context.Background()))
	for id, p := range m.docs {
		d, err := m.ix.Get(id)
		require.NoError(m.t, err)
		require.Equal(m.t, string(p), string(d.Payload), id)
	}
}

// matching are the ids that a condition is true of, by the payloads; ok is false if it
// names a field that no document has.
func (m *model) matching(c *condition.Condition) (ids []string, ok bool) {
	snap, err := m.ix.Snapshot()
	require.NoError(m.t, err)
	defer snap.Close()
	p, known := conditiontest.Evaluator{T: m.t}, map[condition.Field]bool{}
	for _, id := range slices.Sorted(maps.Keys(m.docs)) {
		ordinal, there, err := snap.Ordinal(id)
		require.NoError(m.t, err)
		require.True(m.t, there, id)
		p.Docs = append(p.Docs, conditiontest.Doc{ID: id, Ordinal: ordinal, Payload: m.docs[id]})
		for _, f := range c.Fields() {
			known[f] = known[f] || len(conditiontest.ValuesIn(m.docs[id], f)) > 0
		}
	}
	matches := p.Select(c)
	for i, d := range p.Docs {
		if matches[i] {
			ids = append(ids, d.ID)
		}
	}
	none := len(m.docs) == 0 // an index without documents knows all fields
	return ids, c.Check(func(f condition.Field) bool { return none || known[f] }) == nil
}

// checkCondition holds what a condition selects against the payloads, and returns it; nil:
// it names a field that there is not.
func (m *model) checkCondition(snap *index.Snapshot) *roaring.Bitmap {
	c := m.condition()
	want, ok := m.matching(c)
	docs, err := snap.Select(context.Background(), c)
	filtered, ferr := search.Where(c).Ordinals(context.Background(), snap)
	if !ok {
		require.ErrorIs(m.t, err, condition.ErrUnknownField, "%s", c)
		require.ErrorIs(m.t, ferr, condition.ErrUnknownField, "%s", c)
		return nil
	}
	require.NoError(m.t, err, "%s", c)
	require.NoError(m.t, ferr, "%s", c)
	var got []string
	for it := docs.Iterator(); it.HasNext(); {
		got = append(got, snap.ID(it.Next()))
	}
	slices.Sort(got)
	require.Equal(m.t, want, got, "%s %v", c, c.Params())
	live, _ := snap.LiveSet()
	require.True(m.t, roaring.And(docs, roaring.FromDense(live, true)).Equals(filtered), "%s", c)
	return docs
}

// among are the ids of a set; nil: all.
func (m *model) among(snap *index.Snapshot, docs *roaring.Bitmap) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(m.docs)) {
		ordinal, _, err := snap.Ordinal(id)
		require.NoError(m.t, err)
		if docs == nil || docs.Contains(ordinal) {
			ids = append(ids, id)
		}
	}
	return ids
}

// decoded is a payload by encoding/json; nil: it is no JSON.
func decoded(payload []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if !json.Valid(payload) || d.Decode(&v) != nil {
		return nil
	}
	return v
}

// valueName is the same for values that are one.
func valueName(t require.TestingT, v any) string {
	if n, ok := v.(json.Number); ok {
		r, ok := new(big.Rat).SetString(n.String())
		require.True(t, ok)
		return r.RatString()
	}
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// checkFacet holds the counts of the values of a field against the payloads.
func (m *model) checkFacet(snap *index.Snapshot, docs *roaring.Bitmap) {
	name := m.field()
	field, err := condition.ParseField(name)
	require.NoError(m.t, err)
	known := false
	for _, p := range m.docs {
		known = known || len(conditiontest.ValuesIn(p, field)) > 0
	}
	var missing, null uint64
	ids, counts := m.among(snap, docs), map[string]uint64{}
	for _, id := range ids {
		elements, there := conditiontest.Literals(m.docs[id], field)
		if !there {
			missing++
			continue
		}
		names := map[string]bool{}
		for _, e := range elements {
			names[valueName(m.t, decoded(e))] = true
		}
		if names["null"] {
			null++
			delete(names, "null")
		}
		for n := range names {
			counts[n]++
		}
	}

	defer metadata.PayloadsPerBlock(uint64(16 * m.rng.IntN(2)))()
	o := &index.FacetOptions{Values: math.MaxInt, Lenient: m.rng.IntN(2) == 0}
	f, err := snap.Facet(context.Background(), field, docs, o)
	if !known && !o.Lenient {
		require.ErrorIs(m.t, err, condition.ErrUnknownField)
		return
	}
	require.NoError(m.t, err)
	got := map[string]uint64{}
	for i, v := range f.Values {
		got[valueName(m.t, decoded([]byte(v.Value.String())))] = v.Docs
		if i > 0 {
			last := f.Values[i-1]
			require.True(m.t, last.Docs > v.Docs || last.Docs == v.Docs && last.Value.Compare(v.Value) < 0, "%s after %s", v.Value, last.Value)
		}
	}
	require.Equal(m.t, counts, got, name)
	require.Equal(m.t, []uint64{uint64(len(ids)), missing, null, 0}, []uint64{f.Docs, f.Missing, f.Null, f.Others}, name)

	o.Values = 1 + m.rng.IntN(3)
	few, err := snap.Facet(context.Background(), field, docs, o)
	require.NoError(m.t, err)
	n := min(o.Values, len(f.Values))
	require.Equal(m.t, f.Values[:n], few.Values)
	require.EqualValues(m.t, len(f.Values)-n, few.Others)
}

// wordsOf are the words of a payload: those of all strings, numbers and booleans of JSON, or
// of other text.
func wordsOf(payload []byte) (words []string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case nil:
		default:
			words = append(words, strings.FieldsFunc(strings.ReplaceAll(strings.ToLower(fmt.Sprint(v)), "é", "e"), func(r rune) bool {
				return (r < '0' || r > '9') && (r < 'a' || r > 'z')
			})...)
		}
	}
	if json.Valid(payload) {
		walk(decoded(payload))
	} else {
		walk(string(payload))
	}
	return words
}

// checkKeywords holds what words find against the definition of their scores.
func (m *model) checkKeywords(snap *index.Snapshot, docs *roaring.Bitmap) {
	var query []string
	for range 1 + m.rng.IntN(3) {
		query = append(query, m.pick("ab", "abc", "abcd", "abce", "e", "0", "1", "2", "5", "true", "false", "no", "object", "9007199254740993", "nowhere"))
	}
	texts, total, with, df := map[string][]string{}, 0, 0, map[string]int{}
	for id, p := range m.docs {
		texts[id] = wordsOf(p)
		total += len(texts[id])
		if len(texts[id]) > 0 {
			with++
		}
		for _, w := range slices.Compact(slices.Sorted(slices.Values(query))) {
			if slices.Contains(texts[id], w) {
				df[w]++
			}
		}
	}
	want := map[string]float64{}
	for _, id := range m.among(snap, docs) {
		for _, w := range query {
			tf := 0.0
			for _, have := range texts[id] {
				if have == w {
					tf++
				}
			}
			if tf > 0 {
				n, f, length := float64(with), float64(df[w]), float64(len(texts[id]))/(float64(total)/float64(with))
				want[id] += math.Log(1+(n-f+.5)/(f+.5)) * tf / (tf + 1.2*(1-.75+.75*length))
			}
		}
	}
	k := 1 + m.rng.IntN(2*len(m.docs)+1)
	hits, err := m.words.Search(context.Background(), keywords.Query{Text: strings.Join(query, " "), K: k, Filter: docs})
	require.NoError(m.t, err)
	require.Len(m.t, hits, min(k, len(want)), "%q", query)
	least := math.Inf(1)
	for i, h := range hits {
		id := snap.ID(h.Ordinal)
		require.Contains(m.t, want, id)
		require.InEpsilon(m.t, want[id], h.Score, 1e-6, "%q finds %s", query, id)
		if i > 0 {
			last := hits[i-1]
			require.True(m.t, last.Score > h.Score || last.Score == h.Score && last.Ordinal < h.Ordinal)
		}
		least = min(least, want[id])
		delete(want, id)
	}
	for id, score := range want { // those that were left out are no better
		require.LessOrEqual(m.t, score, least*(1+1e-6), "%q does not find %s", query, id)
	}
}
