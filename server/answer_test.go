package server_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

// storeLong stores documents with metadata of n bytes each.
func storeLong(t *testing.T, s *service, docs, n int) {
	t.Helper()
	s.ok(t, 200, "POST", "/indices", object{"name": "a"}, nil)
	var documents, metadata list
	for i := range docs {
		documents = append(documents, object{"embeddings": list{list{1, 0}, list{0, float64(i + 1)}}})
		metadata = append(metadata, object{"_id": fmt.Sprint("d", i), "text": strings.Repeat("x", n)})
	}
	s.ok(t, 202, "POST", "/indices/a/update?wait=true", object{"documents": documents, "metadata": metadata}, nil)
}

// What a request can make the service hold is bounded, whatever it asks for, and given
// back when it has ended.
func TestAnswersAreBounded(t *testing.T) {
	s := start(t, nil, &server.Options{Limits: server.Limits{Answer: 10_000}})
	storeLong(t, s, 4, 1000)
	ids := func(n int) object {
		var ids list
		for i := range n {
			ids = append(ids, i%4)
		}
		return object{"document_ids": ids}
	}
	for range 3 {
		s.ok(t, 200, "POST", "/indices/a/metadata/get", ids(8), nil)
		p := s.refused(t, 413, server.CodeTooLarge, "POST", "/indices/a/metadata/get", ids(12))
		require.Contains(t, p.Message, "answer")
	}
	query := object{"embeddings": list{list{1, 0}}}
	search := func(queries int, metadata bool) object {
		var all list
		for range queries {
			all = append(all, query)
		}
		return object{"queries": all, "params": object{"top_k": 4}, "metadata": metadata}
	}
	s.ok(t, 200, "POST", "/indices/a/search", search(2, true), nil)
	s.refused(t, 413, server.CodeTooLarge, "POST", "/indices/a/search", search(3, true))
	s.ok(t, 200, "POST", "/indices/a/search", search(30, false), nil)
	s.refused(t, 413, server.CodeTooLarge, "POST", "/indices/a/search", search(50, false))
	s.ok(t, 200, "GET", "/indices/a/documents?document_id=0&vectors=json", nil, nil)
	s.refused(t, 413, server.CodeTooLarge, "GET", "/indices/a/documents?vectors=base64"+strings.Repeat("&document_id=0", 10), nil)

	all := start(t, nil, &server.Options{Limits: server.Limits{Answers: 6000, Answer: 1 << 20}})
	storeLong(t, all, 4, 1000)
	for range 3 {
		all.ok(t, 200, "POST", "/indices/a/metadata/get", ids(2), nil)
		p := all.refused(t, 413, server.CodeTooLarge, "POST", "/indices/a/metadata/get", ids(4)) // no wait would help
		require.Contains(t, p.Message, "for answers (max-memory)")
	}
}

// A change that was made is answered so, whatever memory others have for answers.
func TestChangesAreAnswered(t *testing.T) {
	s := start(t, words{}, &server.Options{Limits: server.Limits{Wait: time.Millisecond}})
	defer server.HoldAnswers(s.Server)()
	s.ok(t, 200, "POST", "/indices", object{"name": "pets"}, nil)
	s.ok(t, 202, "POST", "/indices/pets/update", object{"documents": list{query("cats")}, "metadata": list{object{"_id": "a"}}}, nil)
	r := s.send(t, "POST", "/indices/pets/update", object{"documents": list{query("dogs")}}, "Prefer: return=representation")
	require.Equal(t, 200, r.status, r.body)
	s.ok(t, 200, "POST", "/indices/pets/metadata/update", object{"condition": "_id = 'a'", "updates": object{"x": 1}}, nil)
	s.ok(t, 200, "PUT", "/indices/pets/config", object{"max_documents": 5}, nil)
	s.ok(t, 202, "DELETE", "/indices/pets/documents", object{"ids": list{"a"}}, nil)
	s.refused(t, 503, server.CodeBusy, "GET", "/indices/pets", nil)
	s.ok(t, 200, "DELETE", "/indices/pets", nil, nil)
}

// Who guesses at tokens is slowed down, too.
func TestRateLimitOfStrangers(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader("a read "+readSecret), "test")
	require.NoError(t, err)
	s := start(t, nil, &server.Options{Tokens: tokens, Limits: server.Limits{Rate: 1e-3, Burst: 2}})
	for range 2 {
		s.refused(t, 401, server.CodeUnauthorized, "GET", "/indices", nil, "Authorization: Bearer "+writeSecret)
	}
	s.refused(t, 429, server.CodeRateLimited, "GET", "/indices", nil, "Authorization: Bearer "+writeSecret)
	require.Equal(t, 200, s.send(t, "GET", "/indices", nil, "Authorization: Bearer "+readSecret).status)
}

// What has no tokens left to train on is no fault of the service.
func TestRetrainWithoutTokens(t *testing.T) {
	s := start(t, nil, nil)
	storeLong(t, s, 2, 10)
	s.ok(t, 202, "DELETE", "/indices/a/documents?wait=true", object{"ids": list{"d0", "d1"}}, nil)
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/a/retrain", nil)
}

// Scores over HTTP are those of a search of the same file, to the bit, in both forms of
// vectors and in every mode.
func TestScoresAreThoseOfTheEngine(t *testing.T) {
	ctx := context.Background()
	m := searchtest.New(7, 32, 8)
	src, err := vectors.FromDocuments(32, m.Docs("d", 400, 12))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err = index.Build(ctx, path, src, &index.BuildOptions{Nbits: 2, Centroids: 64})
	require.NoError(t, err)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	s := start(t, nil, nil)
	r := s.send(t, "PUT", "/indices/pets/backup", file, octets)
	require.Equal(t, 200, r.status, r.body)
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	defer ix.Close()
	e, err := search.New(ctx, ix, nil)
	require.NoError(t, err)
	defer e.Close()
	for range 5 {
		q := search.Query{Vectors: m.Tokens(6), Dim: 32}
		rows := make([][]float32, 6)
		var raw []byte
		for i := range rows {
			rows[i] = q.Vectors[32*i : 32*i+32]
		}
		for _, x := range q.Vectors {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		for _, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
			want, err := e.Search(ctx, q, search.Options{K: 20, Mode: mode})
			require.NoError(t, err)
			for _, form := range []object{{"embeddings": rows}, {"embeddings_b64": base64.StdEncoding.EncodeToString(raw), "shape": list{6, 32}}} {
				f := s.search(t, "", object{"queries": list{form}, "params": object{"top_k": 20, "mode": mode.String()}})
				require.Len(t, f.Results[0].Scores, 20)
				for i, h := range want.Hits {
					require.Equal(t, h.Ordinal, f.Results[0].Documents[i])
					require.Equal(t, math.Float32bits(h.Score), math.Float32bits(f.Results[0].Scores[i]))
				}
			}
		}
	}
}

// An answer says the same as encoding/json's, which reads all metadata again.
func TestAnswersAreJSON(t *testing.T) {
	raw := func(texts ...string) (all []json.RawMessage) {
		for _, s := range texts {
			all = append(all, json.RawMessage(s))
		}
		return all
	}
	for _, metadata := range [][][]json.RawMessage{
		nil,
		{nil},
		{{}},
		{raw(`{"_subset_":1,"_id":"a"}`)},
		{raw(`{"a":"<b> & \" \\ é"}`, ` {"b" : [1, {}]} `, `"text"`), nil, {}, raw(`null`)},
	} {
		text, reference, err := server.SearchJSON(metadata...)
		require.NoError(t, err)
		require.JSONEq(t, string(reference), string(text))
	}
}
