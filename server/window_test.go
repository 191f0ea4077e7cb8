package server_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

// A service parts texts itself: what it stores is what a client that parts them sends, and it is
// found, shown and replaced as that is.
func TestWindow(t *testing.T) {
	s := startParts(t, &server.Options{Limits: server.Limits{Text: 2000}})
	send := func(body object) (ids []string) {
		t.Helper()
		var out struct {
			IDs                 []string
			Numbers             []uint64 `json:"document_ids"`
			Documents, Passages int
			Message             string
		}
		r := s.send(t, "POST", "/indices/parts/update_with_encoding", body, "Prefer: return=representation")
		require.Equal(t, 200, r.status, "%s", r.body)
		r.json(t, &out)
		require.Len(t, body["documents"], out.Documents)
		require.GreaterOrEqual(t, len(out.Numbers), out.Passages)
		require.Contains(t, out.Message, fmt.Sprintf("in %d passage", out.Passages))
		return out.IDs
	}
	stored := func(id string) (all []object) {
		t.Helper()
		var out struct{ Documents []struct{ Metadata object } }
		s.ok(t, 200, "GET", "/indices/parts/documents?id="+url.QueryEscape(id), nil, &out)
		for _, d := range out.Documents {
			delete(d.Metadata, "_subset_")
			all = append(all, d.Metadata)
		}
		return all
	}
	long := "cats sleep all day . dogs bark at night . fish swim ."
	require.Equal(t, []string{"a", "b"}, send(object{
		"documents": list{long, "birds sing"}, "window": 5, "overlap": 1,
		"metadata": list{object{"_id": "a", "title": "Animals", "text": long, "year": 2024}, object{"_id": "b", "year": 2023}},
	}))
	require.Equal(t, []object{
		{"_id": "a#0", "title": "Animals", "year": 2024.0, "text": "cats sleep all day .", "_passage": object{"of": "a", "n": 0.0, "start": 0.0, "end": 20.0}},
		{"_id": "a#1", "title": "Animals", "year": 2024.0, "text": ". dogs bark at night", "_passage": object{"of": "a", "n": 1.0, "start": 19.0, "end": 39.0}},
		{"_id": "a#2", "title": "Animals", "year": 2024.0, "text": "night . fish swim .", "_passage": object{"of": "a", "n": 2.0, "start": 34.0, "end": 53.0}},
	}, stored("a"))
	require.Equal(t, []object{{"_id": "b", "year": 2023.0, "text": "birds sing"}}, stored("b"))
	var e evidence
	s.ok(t, 200, "POST", "/indices/parts/search_with_encoding", object{"queries": list{"dogs bark"}, "group": "best", "passages": 1, "highlight": true, "params": object{"top_k": 1}}, &e)
	require.Equal(t, "a#1", e.Results[0].Passages[0][0].ID)
	require.Empty(t, e.Results[0].Notes, "the text beside a passage is the one that was encoded")
	require.Len(t, e.Results[0].Passages[0][0].Spans, 2)

	// Headings go into the title, and a text that comes again replaces all of its passages.
	require.Equal(t, []string{"a"}, send(object{
		"documents": list{"# Cats\nsleep\n# Dogs\nbark\n"}, "window": 9, "window_by": "headings", "text_field": "body", "metadata": list{object{"_id": "a", "title": "T"}},
	}))
	require.Equal(t, []object{
		{"_id": "a#0", "title": "T", "body": "# Cats\nsleep", "_passage": object{"of": "a", "n": 0.0, "start": 0.0, "end": 12.0}},
		{"_id": "a#1", "title": "T", "body": "# Dogs\nbark", "_passage": object{"of": "a", "n": 1.0, "start": 13.0, "end": 24.0}},
	}, stored("a"))
	require.Equal(t, []string{"a#4", "c#1"}, send(object{
		"documents": list{"one two three four", "x"}, "window": 2,
		"metadata": list{object{"_id": "a#4", "_passage": object{"of": "a", "n": 4, "start": 0, "end": 18}}, object{"_id": "c#1"}},
	}), "a passage stays one, and a short text is none, whatever it is called")
	for _, c := range []struct {
		body object
		code server.Code
		at   int
	}{
		{object{"documents": list{"x"}, "window": -1}, server.CodeBadRequest, -1},
		{object{"documents": list{"x"}, "overlap": 1}, server.CodeBadRequest, -1},
		{object{"documents": list{"x"}, "window_by": "words"}, server.CodeBadRequest, -1},
		{object{"documents": list{"x"}, "window": 2, "overlap": 2}, server.CodeBadRequest, -1},
		{object{"documents": list{"x"}, "window": 2, "window_by": "lines"}, server.CodeBadRequest, -1},
		{object{"documents": list{"x"}, "window": 2, "window_by": "tokens"}, server.CodeBadRequest, -1},
		{object{"documents": list{"x", "a b c"}, "window": 2}, server.CodeBadRequest, 1},
		{object{"documents": list{"a b c", ""}, "window": 2, "metadata": list{object{"_id": "x"}, object{"_id": "y"}}}, server.CodeBadRequest, 1},
		{object{"documents": list{"x", "y"}, "window": 2, "metadata": list{object{}}}, server.CodeBadRequest, -1},
		{object{"documents": list{"a b c", "d e f"}, "window": 2, "metadata": list{object{"_id": "x"}, object{"_id": "x"}}}, server.CodeBadRequest, 1},
		{object{"documents": list{"a b c", strings.Repeat("a ", 1500)}, "window": 2, "metadata": list{object{"_id": "x"}, object{"_id": "y"}}}, server.CodeTooLarge, 1},
	} {
		r := s.send(t, "POST", "/indices/parts/update_with_encoding", c.body)
		var p server.Problem
		r.json(t, &p)
		require.Equal(t, c.code, p.Code, "%v: %s", c.body, r.body)
		if c.at >= 0 {
			require.NotNil(t, p.Details, "%v", c.body)
			require.Equal(t, c.at, *p.Details.Document, "%v", c.body)
		}
	}
}

// Parting takes no more memory than a body may: a short text with long metadata makes many
// passages of these.
func TestWindowIsCounted(t *testing.T) {
	s := startParts(t, &server.Options{Limits: server.Limits{Decoded: 1 << 20}})
	body := object{"documents": list{strings.Repeat("a ", 2000)}, "window": 1, "metadata": list{object{"_id": "x", "note": strings.Repeat("n", 10_000)}}}
	require.Equal(t, 413, s.send(t, "POST", "/indices/parts/update_with_encoding", body).status)
	body["window"] = 2000
	require.Equal(t, 202, s.send(t, "POST", "/indices/parts/update_with_encoding", body).status)
}

// cutting reads 300 words of a text, as its Config says.
type cutting struct{ words }

func (c cutting) DocumentsReport(ctx context.Context, texts iter.Seq2[encode.Text, error], r *encode.Report) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for d, err := range c.words.DocumentsReport(ctx, texts, r) {
			if most := c.Config().Document.Length * wordDim; len(d.Tokens) > most {
				r.Truncated++
				r.Dropped += int64(len(d.Tokens)-most) / wordDim
				d.Tokens = d.Tokens[:most]
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// Queries reads 32 words of a query.
func (c cutting) Queries(ctx context.Context, texts []string) ([]encode.Embedding, error) {
	all, err := c.words.Queries(ctx, texts)
	for i := range all {
		x := &all[i]
		if most := c.Config().Query.Length * wordDim; len(x.Vectors) > most {
			x.Dropped = (len(x.Vectors) - most) / wordDim
			x.Vectors = x.Vectors[:most]
		}
	}
	return all, err
}

// A question that the model does not read to its end is cut, and whoever asks it hears of it.
func TestCutQuestionIsReported(t *testing.T) {
	s := start(t, cutting{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "parts"}, nil)
	s.ok(t, 202, "POST", "/indices/parts/update_with_encoding", object{"documents": list{"owl sleeps"}, "metadata": list{object{"_id": "a", "year": 1}}}, nil)
	long := strings.Repeat("owl ", 37)
	const note = "the query was cut at the query length (32); --query-length raises it, the model takes 512; its last 5 tokens took no part"
	type figures struct {
		Truncated int
		Dropped   int `json:"dropped_tokens"`
	}
	var found struct {
		figures
		Results []struct{ Notes []string }
	}
	for path, body := range map[string]object{
		"search_with_encoding":          {},
		"search/filtered_with_encoding": {"filter_condition": "year = 1"},
	} {
		body["queries"] = list{"owl", long}
		s.ok(t, 200, "POST", "/indices/parts/"+path, body, &found)
		require.Equal(t, figures{1, 5}, found.figures, path)
		require.Empty(t, found.Results[0].Notes, path)
		require.Equal(t, []string{note}, found.Results[1].Notes, path)
	}
	require.NotContains(t, string(s.send(t, "POST", "/indices/parts/search_with_encoding", object{"queries": list{"owl"}}).body), "truncated")
	var explained struct{ Notes []string }
	s.ok(t, 200, "POST", "/indices/parts/explain", object{"text": long, "id": "a"}, &explained)
	require.Contains(t, explained.Notes, note)
	var encoded figures
	s.ok(t, 200, "POST", "/encode", object{"texts": list{long, "owl", long}, "input_type": "query"}, &encoded)
	require.Equal(t, figures{2, 10}, encoded)
	require.Contains(t, string(s.send(t, "GET", "/metrics", nil).body), `plaid_texts_cut_total{role="query"} 5`)
}

// What is encoded to be scored, or sent to a client of another service, is cut in no silence either.
func TestCutIsReportedByOtherDoors(t *testing.T) {
	s := start(t, cutting{}, nil)
	query, documents := strings.Repeat("owl ", 37), list{strings.Repeat("owl ", 307), "short"}
	for _, c := range []struct {
		path string
		body object
		want []int
	}{
		{"/rerank_with_encoding", object{"query": query, "documents": documents}, []int{2, 12}},
		{"/rerank_with_encoding", object{"query": "owl", "documents": documents}, []int{1, 7}},
		{"/rerank_with_encoding", object{"query": "owl", "documents": list{"owl"}}, []int{0, 0}},
		{"/v1/rerank", object{"query": query, "documents": documents}, []int{2, 12}},
		{"/v2/rerank", object{"query": "owl", "documents": documents}, []int{1, 7}},
		{"/v1/embeddings", object{"input": documents}, []int{1, 7}},
		{"/v1/embeddings", object{"input": list{query}, "is_query": true}, []int{1, 5}},
	} {
		var out object
		s.ok(t, 200, "POST", c.path, c.body, &out)
		if usage, ok := out["usage"].(object); ok {
			out = usage
		}
		require.EqualValues(t, c.want[0], out["truncated"], "%s %v", c.path, out)
		require.EqualValues(t, c.want[1], out["dropped_tokens"], "%s %v", c.path, out)
	}
}

// A text that the model does not read to its end is cut, and everybody hears of it: who sent it,
// who reads the log, and who watches the figures. With a window nothing is cut.
func TestCutIsReported(t *testing.T) {
	var log bytes.Buffer
	s := start(t, cutting{}, &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.ok(t, 200, "POST", "/indices", object{"name": "parts"}, nil)
	body := object{"documents": list{strings.Repeat("owl ", 307), "short"}, "metadata": list{object{"_id": "a"}, object{"_id": "b"}}}
	r := s.send(t, "POST", "/indices/parts/update_with_encoding", body)
	require.Equal(t, 202, r.status)
	require.JSONEq(t, `"2 documents stored in index parts, 1 text cut: 7 tokens not found"`, string(r.body))
	require.Contains(t, log.String(), "texts were cut")
	var out struct {
		Truncated int
		Dropped   int `json:"dropped_tokens"`
		IDs       []string
		Numbers   []uint64 `json:"document_ids"`
	}
	s.send(t, "POST", "/indices/parts/update_with_encoding", body, "Prefer: return=representation").json(t, &out)
	require.Equal(t, []int{1, 7}, []int{out.Truncated, out.Dropped})
	out.Truncated = 0
	s.ok(t, 200, "POST", "/encode", object{"texts": body["documents"], "input_type": "document"}, &out)
	require.Equal(t, []int{1, 7}, []int{out.Truncated, out.Dropped})
	require.Contains(t, string(s.send(t, "GET", "/metrics", nil).body), `plaid_texts_cut_total{role="document"} 3`)
	body["window"] = 300
	s.send(t, "POST", "/indices/parts/update_with_encoding", body, "Prefer: return=representation").json(t, &out)
	require.Equal(t, []int{0, 0}, []int{out.Truncated, out.Dropped})
	require.Equal(t, []string{"a", "b"}, out.IDs)
	require.Len(t, out.Numbers, 3, "of two passages and a document")
}

// A window is counted in tokens of the model, and one that the model does not read is refused with
// both numbers.
func TestWindowOfTokens(t *testing.T) {
	e, err := encode.Open("../docs/examples/quickstart/colbert-nano", nil)
	require.NoError(t, err)
	defer e.Close()
	s := start(t, e, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "parts"}, nil)
	body := object{"documents": list{strings.Repeat("我们在这里看到了许多不同的东西。", 100)}, "metadata": list{object{"_id": "a"}}, "window": 1000}
	var p server.Problem
	s.send(t, "POST", "/indices/parts/update_with_encoding", body).json(t, &p)
	require.Equal(t, server.CodeBadRequest, p.Code)
	require.Regexp(t, `passages of 1000 tokens: the model reads at most \d+ of a text`, p.Message)
	body["window"], body["window_by"] = 100, "sentences"
	var out struct {
		Passages  int
		Truncated int
	}
	s.send(t, "POST", "/indices/parts/update_with_encoding", body, "Prefer: return=representation").json(t, &out)
	require.Greater(t, out.Passages, 10)
	require.Zero(t, out.Truncated)
}

// Metadata that texts are put into is stored as it was sent: lists are compared as their text.
func TestStoredListsAreTheirText(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "pets"}, nil)
	for id, how := range map[string]string{"plain": ``, "field": `, "text_field": "text"`, "window": `, "window": 2`} {
		s.ok(t, 202, "POST", "/indices/pets/update_with_encoding",
			`{"documents": ["cats & dogs < owls"], "metadata": [{"_id": "`+id+`", "kind": "`+id+`", "tags": ["a<b", "c&d"]}]`+how+`}`, nil)
		var found struct{ Count int }
		s.ok(t, 200, "POST", "/indices/pets/metadata/query", object{"condition": `kind = ? AND tags LIKE '%"a<b","c&d"%'`, "parameters": list{id}}, &found)
		require.NotZero(t, found.Count, id)
	}
}

// Texts in a script that the model does not know are stored, and the log says that vectors hardly
// find them.
func TestUnknownScriptIsLogged(t *testing.T) {
	e, err := encode.Open("../docs/examples/quickstart/colbert-nano", nil)
	require.NoError(t, err)
	defer e.Close()
	var log bytes.Buffer
	s := start(t, e, &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.ok(t, 200, "POST", "/indices", object{"name": "parts"}, nil)
	s.ok(t, 202, "POST", "/indices/parts/update_with_encoding", object{"documents": list{"cats sleep by day ☃"}}, nil)
	require.NotContains(t, log.String(), "mostly unknown")
	s.ok(t, 202, "POST", "/indices/parts/update_with_encoding", object{"documents": list{"cats", strings.Repeat("a", 1700)}}, nil)
	require.Regexp(t, `level=WARN msg="texts are mostly unknown to the model.*texts=1`, log.String())
}
