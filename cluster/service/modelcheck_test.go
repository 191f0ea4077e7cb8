package service_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

func (m *model) contents() map[string]object {
	m.Helper()
	var got struct{ Metadata []object }
	m.f.do(200, "GET", modelAt+"/metadata", nil, &got)
	all := map[string]object{}
	for _, o := range got.Metadata {
		all[o["_id"].(string)] = o
	}
	return all
}

// check asks everything.
func (m *model) check() {
	m.Helper()
	want := map[string]object{}
	for id, d := range m.docs {
		want[id] = maps.Clone(d.metadata)
		want[id]["_id"], want[id]["_subset_"] = id, float64(d.number)
	}
	require.Equal(m, want, m.contents())
	if len(m.docs) == 0 {
		return
	}
	var st statistics
	m.f.do(200, "GET", modelAt+"/stats", nil, &st)
	require.EqualValues(m, len(m.wholes()), st.Documents)
	require.EqualValues(m, passagesOf(slices.Collect(maps.Keys(m.docs))), st.Passages)
	require.Empty(m, st.Growth.Failed)
	m.search()
	m.facets()
	m.keywords()
}

// restriction is what a search is restricted to, and the documents that are left.
func (m *model) restriction() (body object, among []string) {
	body = object{}
	v := m.r.IntN(7)
	listed := m.some(1 + m.r.IntN(6))
	for i, id := range listed {
		if m.r.IntN(2) == 0 {
			listed[i], _ = vectors.SplitPassageID(id)
		}
	}
	byID, byNumber, byField := m.r.IntN(3) == 0, m.r.IntN(3) == 0, m.r.IntN(2) == 0
	if byField && len(m.where(func(d *stored) bool { _, there := d.metadata["n"]; return there })) == 0 {
		byField = false // the field is not known
	}
	if byID {
		body["ids"] = append(anyIDs(listed), "nobody")
	}
	if byNumber {
		numbers := list{1 << 40}
		for _, id := range m.some(3) {
			listed2 := m.docs[id].number
			numbers = append(numbers, listed2)
		}
		body["subset"] = numbers
	}
	if byField {
		body["filter_condition"], body["filter_parameters"] = "n >= ?", list{v}
	}
	in := func(l any, x any) bool { all, _ := l.(list); return slices.Contains(all, x) }
	return body, m.where(func(d *stored) bool {
		n, there := d.metadata["n"]
		id := m.idOf(d)
		whole, _ := vectors.SplitPassageID(id)
		return (!byID || in(body["ids"], id) || in(body["ids"], whole)) && (!byNumber || in(body["subset"], d.number)) && (!byField || there && n.(float64) >= float64(v))
	})
}

func (m *model) idOf(d *stored) string {
	for id, o := range m.docs {
		if o == d {
			return id
		}
	}
	return ""
}

func maxSim(q []float32, doc [][]float32) float64 {
	best := -2.
	for _, row := range doc {
		sum := 0.
		for i, x := range row {
			sum += float64(x) * float64(q[i])
		}
		best = max(best, sum)
	}
	return best
}

func (m *model) search() {
	m.Helper()
	body, among := m.restriction()
	q := m.maker.Tokens(1)
	body["queries"], body["metadata"] = list{object{"embeddings": [][]float32{q}}}, false
	body["params"] = object{"top_k": len(m.docs) + 3, "mode": "exhaustive"}
	var s searched
	m.f.do(200, "POST", modelAt+"/search", body, &s)
	require.ElementsMatch(m, among, s.Results[0].IDs)
	var sum, most float64
	for i, id := range s.Results[0].IDs {
		require.Equal(m, m.docs[id].number, s.Results[0].Documents[i])
		off := math.Abs(maxSim(q, m.docs[id].vectors) - s.Results[0].Scores[i])
		sum, most = sum+off, max(most, off)
	}
	// A codec that few documents have trained clips what is unlike them.
	require.Less(m, most, .7)
	require.LessOrEqual(m, sum, .25*float64(len(among)+5))
	require.True(m, slices.IsSortedFunc(s.Results[0].Scores, func(a, b float64) int { return cmp.Compare(b, a) }))
	// The collection may grow meanwhile, and another codec gives other scores: what lies between
	// two equal answers is compared with them.
	m.between(body, s, func(ungrouped searched) bool {
		best := map[string]float64{}
		for i, id := range ungrouped.Results[0].IDs {
			whole, _ := vectors.SplitPassageID(id)
			best[whole] = max(best[whole], ungrouped.Results[0].Scores[i]+3) // above 0
		}
		body["group"] = "best"
		var grouped searched
		m.f.do(200, "POST", modelAt+"/search", body, &grouped)
		delete(body, "group")
		require.Len(m, grouped.Results[0].IDs, len(best))
		for i, id := range grouped.Results[0].IDs {
			if math.Abs(best[id]-3-grouped.Results[0].Scores[i]) > 1e-5 {
				return false
			}
		}
		return true
	})
	if len(among) == 0 {
		return
	}
	liked, _ := vectors.SplitPassageID(among[0])
	body["feedback"] = object{"documents": 1, "like": list{liked}}
	var fed searched
	m.f.do(200, "POST", modelAt+"/search", body, &fed)
	require.ElementsMatch(m, among, fed.Results[0].IDs)
}

// between asks agrees about an answer until it does, or until the answer is the same after it.
func (m *model) between(body object, answer searched, agrees func(searched) bool) {
	m.Helper()
	for !agrees(answer) {
		var after searched
		m.f.do(200, "POST", modelAt+"/search", body, &after)
		require.NotEqual(m, answer.Results[0].Scores, after.Results[0].Scores, "two equal answers, and another between them")
		m.Log("the collection has grown between two answers")
		answer = after
	}
}

func (m *model) facets() {
	m.Helper()
	body, among := m.restriction()
	body["fields"], body["values"] = list{"lang"}, 5
	want := map[string]int{}
	for _, id := range among {
		if lang, there := m.docs[id].metadata["lang"]; there {
			want[lang.(string)]++
		}
	}
	if len(m.where(func(d *stored) bool { return d.metadata["lang"] != nil })) == 0 {
		return // the field is not known
	}
	var got struct {
		Facets []struct {
			Docs, Missing int
			Values        []struct {
				Value string
				Docs  int
			}
		}
	}
	m.f.do(200, "POST", modelAt+"/facets", body, &got)
	counts, sum := map[string]int{}, 0
	for _, v := range got.Facets[0].Values {
		counts[v.Value] = v.Docs
		sum += v.Docs
	}
	require.Equal(m, want, counts)
	require.Equal(m, len(among), got.Facets[0].Docs)
	require.Equal(m, len(among)-sum, got.Facets[0].Missing)
}

func (m *model) keywords() {
	m.Helper()
	body, among := m.restriction()
	word := m.word()
	body["text_query"], body["metadata"], body["params"] = list{word}, false, object{"top_k": len(m.docs) + 3}
	var s searched
	m.f.do(200, "POST", modelAt+"/search", body, &s)
	var want []string
	for _, id := range among {
		text, err := json.Marshal(m.docs[id].metadata["word"])
		require.NoError(m, err)
		if slices.Contains(wordsOf(string(text)), word) {
			want = append(want, id)
		}
	}
	require.ElementsMatch(m, want, s.Results[0].IDs)
}

func wordsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '"' || r == ' ' })
}
