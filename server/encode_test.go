package server_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

func TestEncodeForms(t *testing.T) {
	s := start(t, words{}, nil)
	var out object
	s.ok(t, 200, "POST", "/encode", object{"texts": list{"a b", "c"}, "input_type": "query", "pool_factor": 2}, &out)
	require.Equal(t, 2., out["num_texts"])
	require.Len(t, out["embeddings"].(list)[0], 2)
	require.Nil(t, out["embeddings_b64"])
	r := s.send(t, "POST", "/encode", object{"texts": list{"a b c d e f g"}, "input_type": "document", "pool_factor": 3}, "X-Embeddings-Format: base64")
	require.Equal(t, 200, r.status, r.body)
	r.json(t, &out)
	require.Equal(t, list{list{3., float64(wordDim)}}, out["shapes"])
	var pylate struct {
		Data []struct {
			Index     int
			Embedding [][]float32
		}
	}
	s.ok(t, 200, "POST", "/v1/embeddings", object{"input": "cats sleep", "model": "any"}, &pylate)
	require.Equal(t, matrix("cats sleep"), pylate.Data[0].Embedding)
	s.ok(t, 200, "POST", "/v1/embeddings", object{"input": list{"a", "b c"}, "is_query": false}, &pylate)
	require.Len(t, pylate.Data, 2)
	require.Equal(t, 1, pylate.Data[1].Index)

	var openai struct {
		Data []struct {
			Embedding string
			Shape     []int
		}
		Model string
		Usage struct {
			Total int `json:"total_tokens"`
		}
	}
	s.ok(t, 200, "POST", "/v1/embeddings", object{"input": list{"a", "b c"}, "encoding_format": "base64", "dimensions": wordDim, "user": "me"}, &openai)
	require.Equal(t, []int{2, wordDim}, openai.Data[1].Shape)
	bytes, err := base64.StdEncoding.DecodeString(openai.Data[1].Embedding)
	require.NoError(t, err)
	require.Len(t, bytes, 4*2*wordDim)
	require.Equal(t, 3, openai.Usage.Total)
	s.refused(t, 400, server.CodeBadRequest, "POST", "/v1/embeddings", object{"input": "a", "dimensions": wordDim + 1})
	s.refused(t, 400, server.CodeBadRequest, "POST", "/v1/embeddings", object{"input": "a", "encoding_format": "int8"})
	var models struct{ Data []struct{ ID string } }
	s.ok(t, 200, "GET", "/v1/models", nil, &models)
	require.Equal(t, openai.Model, models.Data[0].ID)

	without := start(t, nil, nil)
	without.ok(t, 200, "GET", "/v1/models", nil, &models)
	require.Empty(t, models.Data)
	for path, body := range map[string]object{
		"/encode":               {"texts": list{"a"}, "input_type": "query"},
		"/v1/embeddings":        {"input": "a"},
		"/rerank_with_encoding": {"query": "a", "documents": list{"b"}},
		"/v1/rerank":            {"query": "a", "documents": list{"b"}},
	} {
		without.refused(t, 400, server.CodeModelNotLoaded, "POST", path, body)
	}
}

func TestRerank(t *testing.T) {
	s := start(t, words{}, nil)
	var out struct {
		Results []struct {
			Index int
			Score float32
		}
		Documents int `json:"num_documents"`
	}
	s.ok(t, 200, "POST", "/rerank", object{"query": list{list{2, 0}, list{0, 1}}, "documents": list{
		object{"embeddings": list{list{1, 0}}}, object{"embeddings": list{list{3, 4}, list{1, 1}}}, object{"embeddings": list{list{1, 0}}},
	}}, &out)
	require.Equal(t, 3, out.Documents)
	require.Equal(t, []int{1, 0, 2}, []int{out.Results[0].Index, out.Results[1].Index, out.Results[2].Index}) // ties in order
	require.Equal(t, []float32{10, 2, 2}, []float32{out.Results[0].Score, out.Results[1].Score, out.Results[2].Score})
	s.ok(t, 200, "POST", "/rerank_with_encoding", object{"query": "dogs", "documents": list{"cats", "dogs bark"}}, &out)
	require.Equal(t, 1, out.Results[0].Index)
}
