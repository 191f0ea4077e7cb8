package server_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/server"
)

type rerankAnswer struct {
	ID, Model string
	Results   []struct {
		Index     int
		Relevance float64 `json:"relevance_score"`
		Document  *struct{ Text string }
	}
	Usage struct {
		Tokens int `json:"total_tokens"`
	}
}

func (a *rerankAnswer) order() (places []int) {
	for _, r := range a.Results {
		places = append(places, r.Index)
	}
	return places
}

// Texts, and documents of an index, get the same scores, as clients of other services read
// them.
func TestRerankAsOthersHaveIt(t *testing.T) {
	s := start(t, words{}, nil)
	texts := list{"dogs bark", "cats sleep", "cats", "dogs bark"}
	for _, path := range []string{"/v1/rerank", "/v2/rerank"} {
		var out rerankAnswer
		s.ok(t, 200, "POST", path, object{"model": "any", "query": "cats sleep", "documents": texts, "max_chunks_per_doc": 3}, &out)
		require.Equal(t, []int{1, 2, 0, 3}, out.order()) // ties in order
		require.InDelta(t, 1, out.Results[0].Relevance, 1e-6)
		require.Equal(t, "any", out.Model)
		require.NotEmpty(t, out.ID)
		require.Nil(t, out.Results[0].Document)
		s.ok(t, 200, "POST", path, object{"query": "cats sleep", "documents": list{object{"text": "dogs", "title": "x"}, "cats"}, "top_n": 1, "return_documents": true}, &out)
		require.Equal(t, []int{1}, out.order())
		require.Equal(t, "cats", out.Results[0].Document.Text)
	}
	s.ok(t, 200, "POST", "/indices", object{"name": "pets"}, nil)
	s.ok(t, 202, "POST", "/indices/pets/update_with_encoding", object{
		"documents": texts[:3], "metadata": list{object{"_id": "a"}, object{"_id": "b"}, object{"_id": "c"}},
	}, nil)
	var sent, stored rerankAnswer
	s.ok(t, 200, "POST", "/v1/rerank", object{"query": "cats sleep", "documents": texts}, &sent)
	s.ok(t, 200, "POST", "/v1/rerank", object{"query": "cats sleep", "index": "pets", "ids": list{"a", "b", "c", "a"}}, &stored)
	require.Equal(t, sent.order(), stored.order())
	for i := range sent.Results {
		require.InDelta(t, sent.Results[i].Relevance, stored.Results[i].Relevance, .02) // 8 bits a component
	}

	for _, x := range []struct {
		status int
		code   server.Code
		body   object
		want   string
	}{
		{400, server.CodeBadRequest, object{"query": "a"}, "documents is empty"},
		{400, server.CodeBadRequest, object{"query": "", "documents": list{"a"}}, "query is empty"},
		{400, server.CodeBadRequest, object{"query": "a", "documents": list{"a", ""}}, "documents[1] is empty"},
		{400, server.CodeBadRequest, object{"query": "a", "documents": list{"a"}, "top_n": 0}, "top_n is 0"},
		{400, server.CodeBadRequest, object{"query": "a", "documents": list{"a"}, "index": "pets"}, "want one of them"},
		{400, server.CodeBadRequest, object{"query": "a", "index": "pets"}, "go together"},
		{400, server.CodeBadRequest, object{"query": "a", "ids": list{"a"}}, "go together"},
		{404, server.CodeIndexNotFound, object{"query": "a", "index": "none", "ids": list{"a"}}, ""},
		{404, server.CodeDocumentNotFound, object{"query": "a", "index": "pets", "ids": list{"a", "z"}}, `"z"`},
	} {
		p := s.refused(t, x.status, x.code, "POST", "/v1/rerank", x.body)
		require.Contains(t, p.Message, x.want)
	}
}

// A document of passages has the score of the best of them, and takes nobody's place.
func TestRerankPassages(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "pets"}, nil)
	passage := func(n int) object {
		return object{"_id": "book#" + strconv.Itoa(n), "_passage": object{"of": "book", "n": n, "start": 10 * n, "end": 10*n + 10}}
	}
	s.ok(t, 202, "POST", "/indices/pets/update_with_encoding", object{
		"documents": list{"dogs bark", "cats sleep", "cats", "cats sleep"}, "metadata": list{object{"_id": "a"}, passage(0), passage(1), passage(2)},
	}, nil)
	scores := func(ids ...any) map[any]float64 {
		var out rerankAnswer
		s.ok(t, 200, "POST", "/v1/rerank", object{"query": "cats sleep", "index": "pets", "ids": list(ids)}, &out)
		require.Len(t, out.Results, len(ids))
		by, last := map[any]float64{}, 1.01
		for _, r := range out.Results {
			require.LessOrEqual(t, r.Relevance, last, "best first")
			by[ids[r.Index]], last = r.Relevance, r.Relevance
		}
		return by
	}
	alone := scores("a", "book#0", "book#1", "book#2")
	require.Less(t, alone["book#1"], alone["book#0"])
	for _, ids := range [][]any{{"a", "book"}, {"book"}, {"book#1", "a"}, {"book", "book#1"}, {"book#1", "book", "a", "book"}} {
		for id, score := range scores(ids...) {
			if id == "book" {
				id = "book#0"
			}
			require.InDelta(t, alone[id], score, 1e-6, "%v of %v", id, ids)
		}
	}
	p := s.refused(t, 404, server.CodeDocumentNotFound, "POST", "/v1/rerank", object{"query": "cats", "index": "pets", "ids": list{"a", "book", "none"}})
	require.Contains(t, p.Message, `"none"`)
}

// A token that may not read an index reranks none of its documents.
func TestRerankKeepsToPermissions(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader("some read:other some-some-some-some\nall admin all-all-all-all-all\n"), "tokens")
	require.NoError(t, err)
	s := start(t, words{}, &server.Options{Tokens: tokens})
	as := func(secret, path string, body object) int {
		return s.send(t, "POST", path, body, "Authorization: Bearer "+secret).status
	}
	const all, some = "all-all-all-all-all", "some-some-some-some"
	require.Equal(t, 200, as(all, "/indices", object{"name": "pets"}))
	require.Equal(t, 202, as(all, "/indices/pets/update_with_encoding", object{"documents": list{"cats"}, "metadata": list{object{"_id": "a"}}}))
	stored := object{"query": "cats", "index": "pets", "ids": list{"a"}}
	require.Equal(t, 200, as(all, "/v1/rerank", stored))
	require.Equal(t, 403, as(some, "/v1/rerank", stored))
	require.Equal(t, 200, as(some, "/v1/rerank", object{"query": "cats", "documents": list{"cats"}}))
}

// countingScorer is a device that scores.
type countingScorer struct {
	maxsim.Backend
	calls int
	fault error
}

func (b *countingScorer) Score(ctx context.Context, c *maxsim.Call) error {
	b.calls++
	if b.fault != nil {
		return b.fault
	}
	return b.Backend.Score(ctx, c)
}

// A service with a device scores plain vectors there, and a device that is lost is not replaced
// in silence.
func TestRerankOnDevice(t *testing.T) {
	cpu, err := maxsim.Select("")
	require.NoError(t, err)
	scorer := &countingScorer{Backend: cpu}
	s := start(t, words{}, &server.Options{Scorer: scorer})
	for i, x := range []struct {
		path string
		body object
	}{
		{"/rerank", object{"query": matrix("cats sleep"), "documents": list{query("cats"), query("dogs")}}},
		{"/rerank_with_encoding", object{"query": "cats sleep", "documents": list{"cats", "dogs"}}},
		{"/v1/rerank", object{"query": "cats sleep", "documents": list{"cats", "dogs"}}},
	} {
		s.ok(t, 200, "POST", x.path, x.body, nil)
		require.Equal(t, i+1, scorer.calls, x.path)
	}
	scorer.fault = kernels.ErrDeviceClosed
	require.Equal(t, 500, s.send(t, "POST", "/rerank", object{"query": matrix("cats"), "documents": list{query("cats")}}).status)
}
