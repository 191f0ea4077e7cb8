package metadata

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// What is in arrays is found without a look at payloads, however many values and documents there
// are, and blocks in which a document has several of them are among them.
func TestManyMembers(t *testing.T) {
	n := effort.Cases(3000, 6000)
	p := conditiontest.Evaluator{T: t}
	var b Builder
	for i := range n {
		payload := fmt.Appendf(nil, `{"tags": ["t%d", "u%d", %d, %d.5, null], "pair": [%d, %d], "few": [true, %d],
			"authors": [{"name": "a%d", "born": %d}, {"name": ["b%d", null]}], "one": "t%d"}`,
			i%7, i%500, i, i%11, i%3, (i+1)%3, i%2, i%40, 1900+i%100, i%9, i%7)
		if i%10 == 0 {
			payload = []byte(`{"tags": [], "pair": null, "authors": [{"born": 1}], "few": [0, false]}`)
		}
		require.NoError(t, b.Add(context.Background(), uint32(i), payload))
		p.Docs = append(p.Docs, conditiontest.Doc{ID: fmt.Sprint(i), Ordinal: uint32(i), Payload: payload})
	}
	run := written(t, &b).open(t)
	several := 0
	for _, f := range run.names {
		h, err := run.readField(f)
		require.NoError(t, err)
		for i := range h.blocks {
			bl, err := run.readBlock(h, i)
			require.NoError(t, err)
			if uint64(len(bl.numbers)/2) > bl.docs.GetCardinality() {
				several++
			}
		}
	}
	require.Greater(t, several, 1, "blocks in which documents have several entries")
	for _, text := range []string{
		"tags = 't3'", "tags IN ('t3', 'u77', 5)", "tags <> 't3'", "tags NOT IN ('t3', 't4', 'u1')", "tags = 4.5", "tags > 5990", "tags < 3", "tags BETWEEN 't2' AND 't4'",
		"NOT tags BETWEEN 't2' AND 'u9'", "tags NOT BETWEEN 1 AND 10000", "tags LIKE 'u49%'", "NOT tags LIKE 't%'", "tags REGEXP '^u1.*7$'", "tags IS NULL", "tags IS NOT NULL",
		"tags = '[]'", "tags > ''", "pair = 1", "pair <> 1", "pair = 1 AND pair = 2", "pair < 1 OR pair > 1", "pair IS NULL", "pair = '[1,2]'", "few = 1", "few = 0", "few <> 1",
		"authors.name = 'a3'", "authors.name = 'b4' AND tags = 't1'", "authors.name <> 'b4'", "authors.name IS NULL", "authors.born >= 1990", "authors.born = 1", "one = 't3'",
		"tags IN ('t1', NULL)", "NOT tags IN ('t1', NULL)", "tags NOT BETWEEN NULL AND 'u'", "NOT tags < NULL",
	} {
		c := bind(t, text)
		got, err := condition.Select(context.Background(), c, runSets{run})
		require.NoError(t, err)
		want := roaring.New()
		for i := range p.Select(c) {
			want.Add(uint32(i))
		}
		require.True(t, want.Equals(got.sure), "%s: %d, want %d", text, got.sure.GetCardinality(), want.GetCardinality())
		require.True(t, strings.Contains(text, "LIKE") || strings.Contains(text, "REGEXP") || got.sure.Equals(got.maybe), text) // of long arrays the text was cut
	}
}

// Of a document of very many elements the run says that it is to be looked up; of the others it
// still tells.
func TestMembersAreBounded(t *testing.T) {
	defer func(was int) { maxMembers = was }(maxMembers)
	maxMembers = effort.Cases(1<<14, maxMembers)
	array := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"element %d", `, i)
		}
		return b.String()
	}
	payloads := map[uint32]string{
		1: `{"tags": [` + array(maxMembers-1) + `"x"], "with": "y"}`,
		2: `{"tags": [` + array(maxMembers) + `"x"], "with": ["y"], "zeta": "z", "fourth": null}`,
		3: `{"tags": ["x"], "fourth": [null]}`,
		4: `{"tags": [1, 1.0, true]}`,
		5: `{"deep": {"a": [` + strings.Repeat(`{"b": {}},`, maxMembers) + `{"b": 1}]}}`,
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run := built(t, payloads).open(t)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20))
	for text, want := range map[string][2][]uint32{
		"tags = 'x'":         {{1, 3}, {1, 2, 3, 4}},
		"tags = 'element 7'": {{1}, {1, 2, 4}},
		"tags <> 'x'":        {nil, {2, 4}},
		"tags IS NULL":       {{5}, {2, 4, 5}},
		"with = 'y'":         {{1}, {1, 2}},
		"zeta = 'z'":         {{2}, {2}},
		"fourth IS NULL":     {{1, 2, 4, 5}, {1, 2, 4, 5}},
		"deep.a.b = 1":       {nil, {5}},
	} {
		got, err := condition.Select(context.Background(), bind(t, text), runSets{run})
		require.NoError(t, err)
		require.Equal(t, want, [2][]uint32{nilled(got.sure), nilled(got.maybe)}, text)
	}
	docs, open, err := run.docsWithField("tags")
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2, 3, 4}, docs.ToArray())
	require.Equal(t, []uint32{2, 4}, open.ToArray())
}

// BenchmarkTags compares conditions on arrays with those on scalars of as many documents each.
func BenchmarkTags(b *testing.B) {
	n := uint32(effort.Cases(200_000, 1<<20))
	var made Builder
	for i := range n {
		made.AddFields(i, fieldsOf(b, fmt.Sprintf(`{"lang": "l%d", "percent": %d, "url": "https://example.org/%07d",
			"tags": ["l%d", "m%d", "n%d"], "numbers": [%d, %d], "urls": ["https://example.org/%07d"]}`,
			i%40, i%100, i, i%40, i%41, i%43, i%100, i%77+200, i)))
	}
	run := written(b, &made).open(b)
	for _, text := range []string{
		"lang = 'l7'", "tags = 'l7'", "lang IN ('l1', 'l2', 'l3')", "tags IN ('l1', 'l2', 'l3')", "lang <> 'l7'", "tags <> 'l7'", "percent < 10", "numbers < 10",
		"url = 'https://example.org/0000777'", "urls = 'https://example.org/0000777'", "lang LIKE 'l1%'", "tags LIKE 'l1%'",
	} {
		c := bind(b, text)
		b.Run(text, func(b *testing.B) {
			found, err := condition.Select(context.Background(), c, runSets{run})
			require.NoError(b, err)
			for b.Loop() {
				if _, err := condition.Select(context.Background(), c, runSets{run}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(found.sure.GetCardinality()), "documents")
			b.ReportMetric(float64(found.maybe.GetCardinality()), "possible")
		})
	}
}

func fieldsOf(t require.TestingT, payload string) Fields {
	fields, err := ReadFields(context.Background(), []byte(payload))
	require.NoError(t, err)
	return fields
}

// BenchmarkReadFields reads a payload of scalars, and one of arrays.
func BenchmarkReadFields(b *testing.B) {
	for name, payload := range map[string]string{
		"scalars": `{"percent":17,"price":3.25,"url":"https://example.org/articles/of/the/year/0000777","title":"Number 777 of many","lang":"en","author":{"name":"Ann","born":1970}}`,
		"arrays":  `{"tags":["red","green","blue"],"authors":[{"name":"Ann","born":1970},{"name":"Bo","born":1980}],"numbers":[1,2,3,4,5,6,7,8,9,10]}`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				fieldsOf(b, payload)
			}
		})
	}
}
