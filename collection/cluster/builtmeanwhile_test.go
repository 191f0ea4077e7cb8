package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// Changes that are made while a collection is built are made to the built documents of the same ids, and
// of no others, by writers that have not heard of it too; the shards can be read at once.
func TestChangesDuringBuild(t *testing.T) {
	for _, dim := range []int{16, 8} {
		t.Run(fmt.Sprint(dim), func(t *testing.T) { changesDuringBuild(t, dim) })
	}
}

func changesDuringBuild(t *testing.T, dim int) {
	nodes := startNodes(t, 2, 2, nil)
	wiki := declared(t, nodes[0])
	built := testDocs(0, 300, dim)
	add(t, wiki, testDocs(1000, 60, 16))
	add(t, wiki, testDocs(0, 20, 16)) // d0 to d19 are in both
	bulk := begunBuild(t, nodes[0], "wiki")

	for i := range 8 {
		add(t, wiki, testDocs(2000+i, 1, 16))
	}
	for i := range 10 {
		_, err := wiki.Delete(t.Context(), collection.Selection{IDs: []string{fmt.Sprint("d", 1000+i), fmt.Sprint("d", i)}})
		require.NoError(t, err)
	}
	set := map[string]json.RawMessage{"mine": []byte(`true`)}
	n, err := wiki.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"d15", "d1015"}}, set)
	require.NoError(t, err)
	require.Equal(t, 2, n.Documents)
	again := testDocs(5, 1, 16)
	add(t, wiki, again) // it was deleted

	_, err = finishBuild(t, bulk, built)
	require.NoError(t, err)

	want := map[string]bool{}
	for i := 10; i < 300; i++ {
		want[fmt.Sprint("d", i)] = i == 15
	}
	if dim == 16 { // others do not fit
		want["d5"] = false
		for i := range 8 {
			want[fmt.Sprint("d", 2000+i)] = false
		}
	}
	read := func() map[string]bool {
		got := map[string]bool{}
		v, err := wiki.Snapshot(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, v.Close()) }()
		for d, err := range v.Documents(t.Context(), collection.Selection{}, collection.ReadOptions{Metadata: true}) {
			require.NoError(t, err)
			fields := map[string]any{}
			require.NoError(t, json.Unmarshal(d.Metadata, &fields))
			got[d.ID] = fields["mine"] == true
		}
		return got
	}
	await(t, "what was built is read", func() bool { return read()["d299"] || len(read()) > 200 })
	require.Equal(t, want, read())
	add(t, wiki, testDocs(3000, 4, dim))
	require.Len(t, read(), len(want)+4)
}

// A document without an id takes the place of none that is built, also if its writer has not heard of the build.
func TestUnnamedDocumentDuringBuild(t *testing.T) {
	c := startNodes(t, 1, 1, func(c *Config) { c.Beat = time.Hour })[0]
	wiki := declared(t, c, testDocs(0, 7, 16)...)
	bulk := begunBuild(t, c, "wiki")
	unnamed := testDocs(0, 1, 16)
	unnamed[0].ID = ""
	add(t, wiki, unnamed)

	built := testDocs(0, 100, 16)
	for i := range built {
		built[i].ID = fmt.Sprint(i) // as `plaid cluster build` names documents without an id
	}
	m, err := finishBuild(t, bulk, built)
	require.NoError(t, err)
	require.NoError(t, c.adoptMap("wiki", m, nil))
	await(t, "the added document is there, and all that were built", func() bool {
		v, err := wiki.Snapshot(t.Context())
		if err != nil {
			return false
		}
		defer func() { require.NoError(t, v.Close()) }()
		n := 0
		for _, err := range v.Documents(t.Context(), collection.Selection{}, collection.ReadOptions{}) {
			if err == nil {
				n++
			}
		}
		return n == 101
	})
}

// Numbers of documents that were found before a build are not taken for those of others after it.
func TestReadDuringBuild(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	docs := testDocs(0, 100, 16)
	for i := range docs {
		docs[i].Metadata = fmt.Appendf(nil, `{"text": %q}`, strings.Repeat("x", 60<<10))
	}
	wiki := declared(t, c, docs...).(*shardedCollection)
	before, err := c.findMap(t.Context(), "wiki")
	require.NoError(t, err)
	_, err = wiki.hitsWithPayloads(t.Context(), before, true, []wireHit{{Hit: search.Hit{Ordinal: 7}}})
	require.NoError(t, err)
	n := 0
	o := collection.ReadOptions{Metadata: true}
	err = wiki.readDocuments(t.Context(), collection.Selection{}, o, func(d collection.StoredDocument) bool {
		require.Equal(t, fmt.Sprint("d", n), d.ID)
		if n++; n == 1 {
			_, err := Build(t.Context(), c.cfg.Store, "wiki", BuildOptions{}, sourceOf(t, testDocs(1000, 300, 16)))
			require.NoError(t, err)
			await(t, "what was built is searched", func() bool { return numbersOf(t, wiki).Documents == 300 })
		}
		return true
	})
	require.ErrorIs(t, err, collection.ErrUnreachable)
	require.Less(t, n, 100)
	_, err = wiki.hitsWithPayloads(t.Context(), before, true, []wireHit{{Hit: search.Hit{Ordinal: 7}}})
	require.ErrorIs(t, err, errRebuilt)
}

// A document that is deleted or changed while a collection is built is so with all of its passages, also if it has
// others in what is built; a passage that is deleted is deleted alone.
func TestPassagesDuringBuild(t *testing.T) {
	c := startNodes(t, 1, 1, nil)[0]
	passages := func(from int, of string, n int) []collection.DocumentInput {
		docs := testDocs(from, n, 16)
		for i := range docs {
			p := &vectors.Passage{ParentID: of, Number: i, Start: i, End: i + 1}
			payload, err := p.Payload(docs[i].Metadata)
			require.NoError(t, err)
			docs[i].ID, docs[i].Metadata = p.ID(), payload
		}
		return docs
	}
	wiki := declared(t, c)
	add(t, wiki, slices.Concat(passages(0, "gone", 2), passages(10, "set", 2), passages(20, "whole", 2),
		passages(30, "less", 2)))
	bulk := begunBuild(t, c, "wiki")

	_, err := wiki.Delete(t.Context(), collection.Selection{IDs: []string{"gone", "whole", "less#1"}})
	require.NoError(t, err)
	set := map[string]json.RawMessage{"mine": []byte(`true`)}
	_, err = wiki.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"set"}}, set)
	require.NoError(t, err)

	whole := testDocs(20, 1, 16)
	whole[0].ID = "whole"
	built := slices.Concat(testDocs(100, 100, 16), passages(0, "gone", 4), passages(10, "set", 4), whole,
		passages(30, "less", 4))
	_, err = finishBuild(t, bulk, built)
	require.NoError(t, err)
	await(t, "what was built is read", func() bool { return numbersOf(t, wiki).Documents > 50 })
	got := map[string]bool{}
	v, err := wiki.Snapshot(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	for d, err := range v.Documents(t.Context(), collection.Selection{}, collection.ReadOptions{Metadata: true}) {
		require.NoError(t, err)
		fields := map[string]any{}
		require.NoError(t, json.Unmarshal(d.Metadata, &fields))
		if fields["n"].(float64) < 100 {
			got[d.ID] = fields["mine"] == true
		}
	}
	require.Equal(t, map[string]bool{
		"set#0": true, "set#1": true, "set#2": true, "set#3": true, "less#0": false, "less#2": false, "less#3": false,
	}, got)
}
