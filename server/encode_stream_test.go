package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

// counted is an encoder that counts the texts that it was asked for, and may fail.
type counted struct {
	words
	texts  *atomic.Int64
	failAt int64
}

func (c counted) Queries(ctx context.Context, texts []string) ([]encode.Embedding, error) {
	c.texts.Add(int64(len(texts)))
	return c.words.Queries(ctx, texts)
}

func (c counted) DocumentsReport(ctx context.Context, texts iter.Seq2[encode.Text, error], r *encode.Report) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for d, err := range c.words.DocumentsReport(ctx, texts, r) {
			if n := c.texts.Add(1); n == c.failAt {
				err = context.DeadlineExceeded
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// watched is an answer that looks when its first byte comes.
type watched struct {
	*httptest.ResponseRecorder
	first func()
}

func (w *watched) Write(p []byte) (int, error) {
	if w.first != nil && len(p) > 0 {
		w.first()
		w.first = nil
	}
	return w.ResponseRecorder.Write(p)
}

// Vectors of many texts are sent while the rest is encoded: the answer, which is a
// thousand times the request, is never in memory as a whole. Short answers are whole ones,
// and say how long they are.
func TestVectorsAreStreamed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64)) // as many texts at once take all the memory that there is
	var texts atomic.Int64
	s := start(t, counted{words{}, &texts, 0}, &server.Options{Limits: server.Limits{Answers: 3 << 20, Concurrent: 1}})
	long := strings.Repeat("cats and dogs ", 100)
	many := func(n int) (all list) {
		for range n {
			all = append(all, long)
		}
		return all
	}
	n := effort.Cases(140, 300)
	for _, c := range []struct {
		path    string
		body    object
		headers string
	}{
		{"/encode", object{"texts": many(n), "input_type": "document"}, ""},
		{"/encode", object{"texts": many(n), "input_type": "query"}, "base64"},
		{"/v1/embeddings", object{"input": many(n), "is_query": false}, ""},
	} {
		texts.Store(0)
		body, err := json.Marshal(c.body)
		require.NoError(t, err)
		r := httptest.NewRequest("POST", "http://localhost"+c.path, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Embeddings-Format", c.headers)
		first := int64(0)
		w := &watched{httptest.NewRecorder(), func() { first = texts.Load() }}
		s.ServeHTTP(w, r)
		require.Equal(t, 200, w.Code, w.Body)
		require.Greater(t, w.Body.Len(), 3<<20)
		require.EqualValues(t, n, texts.Load())
		require.Less(t, first, int64(n/2), c.path)
		var out struct {
			Embeddings [][][]float32
			B64        []string `json:"embeddings_b64"`
			Shapes     [][2]int
			Texts      int `json:"num_texts"`
			Data       []struct {
				Index     int
				Embedding [][]float32
			}
			Model string
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
		require.Equal(t, n, len(out.Embeddings)+len(out.B64)+len(out.Data))
		switch {
		case c.path == "/v1/embeddings":
			require.Equal(t, n-1, out.Data[n-1].Index)
			require.Equal(t, matrix(long), out.Data[n-1].Embedding)
			require.Equal(t, "words", out.Model)
		case c.headers != "":
			require.Len(t, out.Shapes, n)
			require.Equal(t, [2]int{300, wordDim}, out.Shapes[n-1])
			require.Equal(t, n, out.Texts)
		default:
			require.Equal(t, matrix(long), out.Embeddings[n-1])
			require.Equal(t, n, out.Texts)
		}
	}
	short := s.send(t, "POST", "/encode", object{"texts": list{"a"}, "input_type": "query"})
	require.Equal(t, 200, short.status)
	require.NotEmpty(t, short.header.Get("Content-Length"))
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/encode", object{"texts": list{"a", " "}, "input_type": "query"})
	require.Equal(t, 1, *p.Details.Query)

	// A fault in the middle breaks the connection: half an answer is never a whole one.
	failing := start(t, counted{words{}, new(atomic.Int64), int64(n - 1)}, nil)
	body, err := json.Marshal(object{"texts": many(n), "input_type": "document"})
	require.NoError(t, err)
	r := httptest.NewRequest("POST", "http://localhost/encode", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() { failing.ServeHTTP(httptest.NewRecorder(), r) })
}

// Texts are bounded, and what the vectors of a request take is.
func TestLongTexts(t *testing.T) {
	s := start(t, words{}, &server.Options{Limits: server.Limits{Text: 1000, Decoded: 1 << 20}})
	for path, body := range map[string]object{
		"/encode":                         {"texts": list{"a", strings.Repeat("a ", 600)}, "input_type": "document"},
		"/rerank_with_encoding":           {"query": "a", "documents": list{"a", strings.Repeat("a ", 600)}},
		"/indices/x/search_with_encoding": {"queries": list{"a", strings.Repeat("a ", 600)}},
	} {
		s.send(t, "POST", "/indices", object{"name": "x"})
		s.send(t, "POST", "/indices/x/update_with_encoding", object{"documents": list{"a"}})
		p := s.refused(t, 413, server.CodeTooLarge, "POST", path, body)
		require.Contains(t, p.Message, "[1] has 1200 bytes; the limit is 1000 (max-body)")
	}
	var texts list
	for range 100 {
		texts = append(texts, strings.Repeat("a ", 400))
	}
	p := s.refused(t, 413, server.CodeTooLarge, "POST", "/indices/x/update_with_encoding", object{"documents": texts})
	require.Contains(t, p.Message, "max-memory")
	s.refused(t, 413, server.CodeTooLarge, "POST", "/rerank_with_encoding", object{"query": "a", "documents": texts})
}

// The vectors of one long text are counted, too, before they are written.
func TestVectorsOfLongTextsAreCounted(t *testing.T) {
	s := start(t, words{}, &server.Options{Limits: server.Limits{Answers: 8 << 20}})
	for path, body := range map[string]string{
		"/encode":        `{"input_type": "document", "texts": ["` + strings.Repeat("cats ", 50_000) + `"]}`,
		"/v1/embeddings": `{"is_query": false, "input": "` + strings.Repeat("cats ", 50_000) + `"}`,
	} {
		p := s.refused(t, 413, server.CodeTooLarge, "POST", path, body)
		require.Contains(t, p.Message, "for answers (max-memory)")
	}
	bodies, answers := server.Held(s.Server)
	require.Zero(t, bodies)
	require.Zero(t, answers)
}

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
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/rerank", `{"query": [[3e38, 3e38]], "documents": [{"embeddings": [[0, 0]]}, {"embeddings": [[3e38, 3e38]]}]}`)
	require.Equal(t, 1, *p.Details.Document, "a score beyond float32 is no fault of the service")
}
