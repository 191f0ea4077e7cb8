package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/search"
)

// inPieces lets the rest of a test read and write in pieces of so many bytes.
func inPieces(t *testing.T, bytes int) {
	large, piece := largeBody, pieceText
	largeBody, pieceText = 0, bytes
	t.Cleanup(func() { largeBody, pieceText = large, piece })
}

// What is decoded piece by piece is what encoding/json decodes, with the same errors.
func TestPiecesAreTheWhole(t *testing.T) {
	for _, piece := range []int{1, 20, 1000} {
		t.Run(fmt.Sprint(piece), func(t *testing.T) { inPieces(t, piece); piecesAreTheWhole(t) })
	}
}

func piecesAreTheWhole(t *testing.T) {
	for _, into := range []any{&searchIn{}, &searchTextIn{}, &updateIn{}, &encodeIn{}, &embeddingsIn{}, &rerankIn{}, &rerankTextIn{}, &rerankAPIIn{}, &updateMetadataIn{}, &explainIn{}, &getMetadataIn{}} {
		for _, text := range []string{
			`{}`, ` { } `, `null`, `[]`, `7`,
			`{"queries": [{"embeddings": [[1, 2], [3, 4]], "weights": [1, 2]}, null, {"subset": [1], "ids": []}], "params": {"top_k": 3}, "subset": [1, 2], "filter_condition": "a = ?", "filter_parameters": [1e3, "x"], "text_query": ["],[{\"", "b"]}`,
			`{"queries": ["a", {"text": "b\\\"]", "ids": ["x"]}] , "stats" : true}`,
			`{"queries": []}`, `{"queries": null}`, `{"QUERIES": [{"embeddings": [[1]]}]}`,
			`{"documents": [{"embeddings": [[1]]}, {"embeddings_b64": "AACAPw==", "shape": [1, 1]}], "metadata": [{"_id": "a", "x": {"y": [1, {"z": "}"}]}}, {}, null]}`,
			`{"documents": ["a", "b"], "query": "c", "pool_factor": 2}`, `{"texts": ["a", "b,]", ""], "input_type": "query"}`, `{"input": ["a"], "is_query": null}`, `{"input": "a"}`,
			`{"queries": [{"weights": [1, "x"]}]}`, `{"queries": [7]}`, `{"documents": [{"embeddings": 7}]}`, `{"documents": [[1]]}`, `{"texts": [7]}`, `{"metadata": [7]}`, `{"metadata": 7, "texts": 7, "queries": 7}`,
			`{"params": {"top_k": "x"}}`, `{"updates": {"a": {"b": [1, "}"]}, "c": null}, "condition": "a = 1"}`, `{"query": {"embeddings": [[1, 2]], "weights": [1]}, "document_id": 3, "params": {"top_k": 2}}`, `{"query": null, "document_ids": [1, 2], "limit": 3}`, `{"updates": {"a": 1}, "UPDATES": {"b": "c"}, "none": {"x": [{}]}}`,
			`{"documents": [{"embeddings_b64": "AACA PwAAgD8=", "shape": [1, 2]}, {"embeddings_b64": 7}, {"embeddings": null}]}`, `{"documents": [{"embeddings": [[1], [], [1, 2]]}]}`, `{"documents": [{"embeddings": [1]}]}`,
		} {
			whole, pieces := reflect.New(reflect.TypeOf(into).Elem()).Interface(), reflect.New(reflect.TypeOf(into).Elem()).Interface()
			want := json.Unmarshal([]byte(text), whole)
			got := unmarshal(t.Context(), []byte(text), pieces)
			if want != nil {
				require.Error(t, got, "%T %s", into, text)
				require.Equal(t, badJSON(want).Error(), badJSON(got).Error(), "%T %s", into, text)
				continue
			}
			require.NoError(t, got, "%T %s", into, text)
			require.Equal(t, whole, pieces, "%T %s", into, text)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	require.ErrorIs(t, unmarshal(ctx, []byte(`{"texts": [`+strings.Repeat(`"a",`, 1000)+`"a"]}`), &encodeIn{}), context.Canceled)
}

// Base64 is read in pieces of a mebibyte.
func TestLongBase64(t *testing.T) {
	raw := make([]byte, 3<<20+5)
	for i := range raw {
		raw[i] = byte(i * 7 >> 3)
	}
	text := base64.StdEncoding.EncodeToString(raw)
	for name, s := range map[string]string{
		"whole": text, "early end": text[:1<<20+2] + "==" + text[1<<20:], "a sign": text[:3<<20] + "?" + text[3<<20:], "escapes": strings.ReplaceAll(text, "/", `\/`), "short": text[:len(text)-1],
	} {
		quoted := []byte(`"` + s + `"`)
		var whole, pieces floatsJSON
		require.NoError(t, json.Unmarshal(quoted, &whole))
		require.NoError(t, unmarshal(t.Context(), quoted, &pieces))
		require.Equal(t, whole.err, pieces.err, name)
		if whole.err == nil {
			require.Equal(t, whole, pieces, name)
		}
	}
}

// A body of one long value is read no further once its client has left, and looks for that
// every 64 KiB.
func TestLongBodiesEndWithTheirContext(t *testing.T) {
	const size = 1 << 19
	long := func(before, item, after string) string { return before + strings.Repeat(item, size/len(item)) + after }
	for name, c := range map[string]struct {
		text string
		into any
	}{
		"rows":     {long(`{"queries":[{"embeddings":[`, "[1,2.5,-3],", `[1,2,3]]}]}`), &searchIn{}},
		"one row":  {long(`{"queries":[{"embeddings":[[`, "1.25,", `1]]}]}`), &searchIn{}},
		"blanks":   {long(`{"queries":[{"embeddings":[[1`, " ", `]]}]}`), &searchIn{}},
		"a query":  {long(`{"query":{"embeddings":[`, "[1,2.5,-3],", `[1,2,3]]}}`), &explainIn{}},
		"numbers":  {long(`{"document_ids":[`, "1,", `1]}`), &getMetadataIn{}},
		"base64":   {long(`{"queries":[{"shape":[1,1],"embeddings_b64":"`, "AAAA", `"}]}`), &searchIn{}},
		"weights":  {long(`{"queries":[{"weights":[`, "1,", `1]}]}`), &searchIn{}},
		"a text":   {long(`{"queries":["`, "é", `"]}`), &searchTextIn{}},
		"an input": {long(`{"input":"`, "a", `"}`), &embeddingsIn{}},
		"texts":    {long(`{"input":[`, `"a",`, `"a"]}`), &embeddingsIn{}},
		"metadata": {long(`{"metadata":[{"a":[`, "{},", `{}]}]}`), &updateIn{}},
		"members":  {long(`{"updates":{"a":[`, "{},", `{}]}}`), &updateMetadataIn{}},
		"a name":   {long(`{"`, "a", `":1}`), &updateMetadataIn{}},
	} {
		for what, read := range map[string]func(ctx context.Context) error{
			"fields": func(ctx context.Context) error {
				if err := checkFields(ctx, []byte(c.text), reflect.TypeOf(c.into)); ctx.Err() != nil {
					return err
				}
				return nil
			},
			"decoding": func(ctx context.Context) error { return unmarshal(ctx, []byte(c.text), c.into) },
		} {
			ctx := countdown.New(math.MaxInt)
			require.NoError(t, read(ctx), "%s: %s", name, what)
			looks := math.MaxInt - ctx.Left()
			require.GreaterOrEqual(t, looks, size/pieceText, "%s: %s", name, what)
			for left := 0; left < looks-1; left += 1 + looks/4 {
				require.ErrorIs(t, read(countdown.New(left)), context.Canceled, "%s: %s", name, what)
			}
		}
	}
}

// What is written in pieces is what encoding/json writes.
func TestAnswersInPieces(t *testing.T) {
	inPieces(t, 1)
	raw := []json.RawMessage{json.RawMessage(`{ "a" : "<&>" }`), nil, json.RawMessage("null")}
	n, texts := 3, make([]string, 3*scalarsAtOnce+1)
	for i := range texts {
		texts[i] = strings.Repeat("<\u2028é\xff", i%3)
	}
	hits := make([]resultOut, 2)
	hits[0] = resultOut{Query: 1, Documents: make([]uint64, 2*scalarsAtOnce), Scores: []float64{1e21, -0.5, 1e-9}, IDs: []string{}, Metadata: raw, Stats: &search.Stats{Plans: map[string]int{"b": 1, "a": 2}}, Coverage: &search.Coverage{}}
	for _, v := range []any{
		searchOut{}, searchOut{Results: hits, Queries: 2}, &searchOut{Results: []resultOut{}}, metadataOut{Metadata: raw, Count: 3}, explainOut{}, facetsOut{},
		texts, raw, nil, map[string]any{"b": texts, "a": 1}, [2]int{1, 2}, []byte("abc"), [][]float32{{1, 2}, nil, {}}, []any{1, "x", nil, hits[0]}, &n, (*int)(nil),
		rowsJSON{given: true, m: Matrix{Tokens: 1, Dim: 2, Data: []float32{1, 2}}}, queryIn{},
		struct {
			A int       `json:"a,omitempty"`
			B []int     `json:"b,omitzero"`
			C *rowsJSON `json:"c,omitzero"`
			D string    `json:"d,omitempty"`
			e int
			F rowsJSON `json:"f,omitzero"`
			G []textsJSON
		}{B: []int{}, e: 1},
	} {
		want, err := json.Marshal(v)
		require.NoError(t, err)
		got, err := marshal(t.Context(), v)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%T", v)
	}
	many := metadataOut{Metadata: make([]json.RawMessage, 1000)}
	ctx := countdown.New(500)
	_, err := marshal(ctx, many)
	require.ErrorIs(t, err, context.Canceled)
	ctx = countdown.New(3)
	_, err = marshal(ctx, explainOut{QueryTokens: nil, Similarities: make([][]float32, 1000)})
	require.ErrorIs(t, err, context.Canceled)
}
