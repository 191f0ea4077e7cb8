package server_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/server"
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

// A document is found by its _id, as by what else is in its metadata, by keywords that an
// older version has made, too.
func TestKeywordsFindIDs(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	st := openStoreAt(t, dir, nil)
	startAt(t, st, words{}, nil).addPets(t)
	require.NoError(t, st.Close(ctx))
	pets := filepath.Join(dir, "pets", "index.plaid")
	ix, err := index.Open(ctx, pets, nil)
	require.NoError(t, err)
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	old, err := keywords.Open(ctx, keywords.Path(pets), &keywords.Options{Settings: &keywords.Settings{}, Write: true})
	require.NoError(t, err)
	require.NoError(t, old.Sync(ctx, snap))
	require.NoError(t, errors.Join(old.Close(), snap.Close(), ix.Close()))

	s := startAt(t, openStoreAt(t, dir, nil), words{}, nil)
	s.findsBirds(t)
	s.ok(t, 202, "POST", "/indices/pets/update", object{"documents": list{query("fish")}, "metadata": list{object{"_id": "ACME-17"}}}, nil)
	require.Equal(t, []uint32{3}, s.search(t, "", object{"text_query": list{"acme"}}).Results[0].Documents)
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

// A bit that is flipped in a header of a page, or anywhere in it, is mended when the
// service begins anew.
func TestKeywordsWithDamagedPages(t *testing.T) {
	dir := t.TempDir()
	s, file := petsAt(t, dir)
	s.findsBirds(t)
	require.NoError(t, s.store.Close(context.Background()))
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	page := os.Getpagesize()
	for at := 0; at < len(good); at += page {
		for _, bit := range []int{0, 8 * 8, 8*8 + 1, 10 * 8, 12*8 + 4, 16*8 + 3, 24*8 + 1} { // id, kind, count, overflow, what follows
			bad := slices.Clone(good)
			bad[at+bit/8] ^= 1 << (bit % 8)
			require.NoError(t, os.WriteFile(file, bad, 0o666))
			st := openStoreAt(t, dir, nil)
			startAt(t, st, words{}, nil).findsBirds(t)
			require.NoError(t, st.Close(context.Background()))
		}
	}
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

// A phrase of very many words is refused before anything is searched.
func TestLongPhrases(t *testing.T) {
	s := start(t, words{}, nil)
	s.addPets(t)
	phrase := func(words int) object {
		return object{"text_query": list{"cats", `"` + strings.Repeat("cats ", words) + `"`}, "text_mode": "expression"}
	}
	require.Empty(t, s.search(t, "", phrase(keywords.DefaultMaxWords)).Results[1].Documents)
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", phrase(10_000))
	require.Contains(t, p.Message, "4096 words")
	require.Equal(t, 1, *p.Details.Query)
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

func TestKeywords(t *testing.T) {
	s := start(t, words{}, nil)
	s.addPets(t)
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
