package server_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

var birds = object{"text_query": list{"birds"}}

// petsAt is a service with pets in a folder, and where the keywords of these are.
func petsAt(t *testing.T, dir string) (s *service, file string) {
	s = startAt(t, openStoreAt(t, dir, nil), words{}, nil)
	s.addPets(t)
	return s, filepath.Join(dir, "pets", "index.plaid.keywords")
}

// findsBirds is what a search by words must find, and that the rest of the service is there.
func (s *service) findsBirds(t *testing.T) {
	t.Helper()
	require.Equal(t, []uint32{2}, s.search(t, "", birds).Results[0].Documents)
}

// Whatever stands in the way of the keywords is an error of the searches by words, and of
// nothing else, until it is out of the way.
func TestKeywordsThatCannotBeOpened(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		s, file := petsAt(t, t.TempDir())
		require.NoError(t, os.Mkdir(file, 0o777))
		for range 2 {
			p := s.refused(t, 500, server.CodeInternal, "POST", "/indices/pets/search", birds)
			require.NotContains(t, p.Message, "pets")
			require.NotEmpty(t, s.search(t, "", object{"queries": list{query("cats")}}).Results)
		}
		require.NoError(t, os.Remove(file))
		s.findsBirds(t)
	})
	t.Run("locked", func(t *testing.T) {
		s, file := petsAt(t, t.TempDir())
		require.NoError(t, os.WriteFile(file, nil, 0o666))
		other, err := keywords.Open(context.Background(), file, &keywords.Options{Write: true})
		require.NoError(t, err)
		for range 2 {
			require.Positive(t, s.refused(t, 503, server.CodeBusy, "POST", "/indices/pets/search", birds).RetryAfter)
		}
		require.NoError(t, other.Close())
		s.findsBirds(t)
	})
}

// A list that is found damaged by a search is made anew by it, and that beside changes.
func TestKeywordsAreMended(t *testing.T) {
	s, file := petsAt(t, t.TempDir())
	s.findsBirds(t)
	for range 2 {
		damage(t, file, "birds")
		s.findsBirds(t)
	}
	mended, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(mended), "birds")
	s.ok(t, 202, "POST", "/indices/pets/update", object{"documents": list{query("fish")}, "metadata": list{object{"_id": "f", "text": "quiet birds"}}}, nil)
	require.ElementsMatch(t, []uint32{2, 3}, s.search(t, "", birds).Results[0].Documents)
}

// damage changes a text in a file wherever it is, under who has it open.
func damage(t *testing.T, file, text string) {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	found := 0
	for at := 0; ; at++ {
		n := bytes.Index(b[at:], []byte(text))
		if n < 0 {
			break
		}
		at += n
		found++
		_, err = f.WriteAt([]byte{text[0] ^ 1}, int64(at))
		require.NoError(t, err)
	}
	require.NotZero(t, found)
}

// Texts that words rank are found without the metadata of their passages.
func TestMemoryOfGroupsByText(t *testing.T) {
	if effort.RaceDetector {
		t.Skip("the race detector allocates, too")
	}
	st := openStore(t, nil)
	s := startAt(t, st, words{}, nil)
	c, err := st.Create(t.Context(), "pets", collection.Config{})
	require.NoError(t, err)
	docs := make([]collection.DocumentInput, 2000)
	for i := range docs {
		p := vectors.Passage{ParentID: "long", Number: i, Start: i, End: i + 1}
		payload, err := p.Payload(fmt.Appendf(nil, `{"text":"birds","f":%q}`, strings.Repeat("x", 5000)))
		require.NoError(t, err)
		docs[i] = collection.DocumentInput{ID: p.ID(), Vectors: flat("birds"), Dim: wordDim, Metadata: payload}
	}
	_, err = c.Update(t.Context(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	for _, body := range []object{{"text_query": list{"birds"}}, {"text_query": list{"birds"}, "queries": list{query("birds")}}} {
		body["group"], body["passages"], body["params"] = "best", 2, object{"top_k": 10}
		var before, after runtime.MemStats
		for range 2 { // the first makes the keywords
			runtime.ReadMemStats(&before)
			f := s.search(t, "", body)
			require.Len(t, f.Results[0].Documents, 1)
			require.Equal(t, "long", f.Results[0].Metadata[0]["_id"])
			runtime.ReadMemStats(&after)
		}
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), "all payloads are 10 MiB, each time that they are read")
	}
}

func TestKeywords(t *testing.T) {
	s := startPets(t)
	f := s.search(t, "", object{"text_query": list{"birds!", "what about (dogs", "nothing of it"}})
	require.Equal(t, 3, f.Queries)
	require.Equal(t, []uint32{2}, f.Results[0].Documents)
	require.Equal(t, []uint32{1}, f.Results[1].Documents)
	require.Empty(t, f.Results[2].Documents)
	require.Positive(t, f.Results[0].Scores[0])
	require.Equal(t, "c", f.Results[0].Metadata[0]["_id"])
	f = s.search(t, "", object{"text_query": list{"\"sleep all\" +ca*"}, "text_mode": "expression"})
	require.Equal(t, []uint32{0}, f.Results[0].Documents)
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"text_query": list{"cats", "\"cats"}, "text_mode": "expression"})
	require.Equal(t, 1, *p.Details.Query)
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"text_query": list{"x"}, "text_mode": "sql"})
	p = s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", object{
		"text_query": list{"cats", `"` + strings.Repeat("cats ", 10_000) + `"`}, "text_mode": "expression"})
	require.Contains(t, p.Message, "4096 words")
	require.Equal(t, 1, *p.Details.Query)
	f = s.search(t, "/filtered", object{"text_query": list{"cats dogs birds"}, "filter_condition": "year > ?", "filter_parameters": list{2019}})
	require.ElementsMatch(t, []uint32{1, 2}, f.Results[0].Documents)

	both := object{"queries": list{query("cats sleep"), query("cats sleep")}, "text_query": list{"birds", "cats"}}
	for _, fusion := range []string{"relative_score", "rrf"} {
		both["fusion"] = fusion
		both["alpha"] = 1
		require.Equal(t, uint32(0), s.search(t, "", both).Results[0].Documents[0], fusion)
		both["alpha"] = 0
		f := s.search(t, "", both)
		require.Equal(t, uint32(2), f.Results[0].Documents[0], fusion)
		require.Equal(t, uint32(0), f.Results[1].Documents[0], fusion)
	}
	delete(both, "fusion")
	both["alpha"] = .75
	f = s.search(t, "", both)
	require.Equal(t, []uint32{0, 2}, f.Results[0].Documents[:2])
	require.InDelta(t, .75, f.Results[0].Scores[0], 1e-6) // best of the vectors, without the word
	f = s.search(t, "_with_encoding", object{"queries": list{"cats sleep"}, "text_query": list{"cats"}, "params": object{"top_k": 1}})
	require.Equal(t, []uint32{0}, f.Results[0].Documents)
	require.InDelta(t, 1, f.Results[0].Scores[0], 1e-6)
	// A new document is found at once, a deleted one no more.
	s.ok(t, 202, "POST", "/indices/pets/update", object{"documents": list{query("fish")}, "metadata": list{object{"_id": "f", "text": "quiet fishes"}}}, nil)
	require.Equal(t, []uint32{3}, s.search(t, "", object{"text_query": list{"fishes"}}).Results[0].Documents)
	s.ok(t, 202, "DELETE", "/indices/pets/documents", object{"ids": list{"f"}}, nil)
	require.Empty(t, s.search(t, "", object{"text_query": list{"fishes"}}).Results[0].Documents)

	without := startAt(t, openStore(t, &store.Options{}), nil, nil)
	without.addPets(t)
	without.refused(t, 400, server.CodeNotSupported, "POST", "/indices/pets/search", object{"text_query": list{"cats"}})
}

// Values of fields are counted over what a search with the same restriction could return.
func TestFacets(t *testing.T) {
	s := startPets(t)
	s.ok(t, 202, "POST", "/indices/pets/update", object{"documents": list{query("eels"), query("newts")}, "metadata": list{
		object{"_id": "d", "year": 2020, "tags": list{"wet", true}}, object{"_id": "e", "year": nil, "at": object{"home": 1}}}}, nil)
	type value struct {
		Value any
		Docs  int
	}
	type facet struct {
		Field               string
		Docs, Missing, Null int
		Values              []value
		Others              int
	}
	for name, c := range map[string]struct {
		body object
		want []facet
	}{
		"all":   {object{"fields": list{"year"}}, []facet{{"year", 5, 0, 1, []value{{2020., 2}, {2019., 1}, {2021., 1}}, 0}}},
		"fewer": {object{"fields": list{"year"}, "values": 1}, []facet{{"year", 5, 0, 1, []value{{2020., 2}}, 2}}},
		"several": {object{"fields": list{"tags", "at.home"}, "ids": list{"d", "e", "nobody"}}, []facet{
			{"tags", 2, 1, 0, []value{{true, 1}, {"wet", 1}}, 0}, {"at.home", 2, 1, 0, []value{{1., 1}}, 0}}},
		"condition": {object{"fields": list{"title"}, "filter_condition": "year > ?", "filter_parameters": list{2019}}, []facet{{"title", 3, 1, 0, []value{{"birds", 1}, {"dogs", 1}}, 0}}},
		"both":      {object{"fields": list{"title"}, "filter_condition": "year > 2019", "subset": list{0, 1}}, []facet{{"title", 1, 0, 0, []value{{"dogs", 1}}, 0}}},
		"none":      {object{"fields": list{"title"}, "subset": list{}}, []facet{{"title", 0, 0, 0, []value{}, 0}}},
	} {
		var got struct{ Facets []facet }
		s.ok(t, 200, "POST", "/indices/pets/facets", c.body, &got)
		require.Equal(t, c.want, got.Facets, name)
	}
	for says, body := range map[string]object{
		"fields is empty": {}, "nearest first: year": {"fields": list{"yaer"}}, "_id": {"fields": list{"_id"}}, "fields[1]": {"fields": list{"year", "a b"}},
		"values is 0": {"fields": list{"year"}, "values": 0}, "filter_parameters": {"fields": list{"year"}, "filter_parameters": list{1}},
		"the limit is 100": {"fields": make(list, 101)},
	} {
		if fields := body["fields"]; says == "the limit is 100" {
			for i := range fields.(list) {
				fields.(list)[i] = "year"
			}
		}
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/facets", body)
		require.Contains(t, p.Message, says)
	}
}

// What is returned of many fields takes no more memory together than the values of one may.
func TestFacetsOfManyFieldsAreBounded(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "long"}, nil)
	size := effort.Cases(1e5, 1e6)
	var docs, metadata list
	for i := range 12 {
		docs = append(docs, query("cats"))
		metadata = append(metadata, object{"text": fmt.Sprint(i, strings.Repeat("x", size))})
	}
	s.ok(t, 202, "POST", "/indices/long/update", object{"documents": docs, "metadata": metadata}, nil)
	fields := slices.Repeat(list{"text"}, effort.Cases(40, 4))
	s.ok(t, 200, "POST", "/indices/long/facets", object{"fields": fields[:2], "values": 12}, nil)
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/long/facets", object{"fields": fields, "values": 12})
	require.Contains(t, p.Message, "too many distinct values")
	s.ok(t, 200, "POST", "/indices/long/facets", object{"fields": fields[:4], "values": 1}, nil)

	small := startAt(t, s.store, words{}, &server.Options{Limits: server.Limits{Answers: 8 * int64(size)}})
	small.ok(t, 200, "POST", "/indices/long/facets", object{"fields": list{"text"}, "values": 1, "subset": list{1}}, nil)
	small.refused(t, 400, server.CodeBadRequest, "POST", "/indices/long/facets", object{"fields": list{"text"}, "values": 1})
}
