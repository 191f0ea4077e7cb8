package server

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is decoded piece by piece is what encoding/json decodes, with the same errors.
func TestPiecesAreTheWhole(t *testing.T) {
	free := func(int64) error { return nil }
	for _, into := range []any{&searchIn{}, &searchTextIn{}, &updateIn{}, &encodeIn{}, &embeddingsIn{}, &rerankIn{}, &rerankTextIn{}, &rerankAPIIn{}} {
		for _, text := range []string{
			`{}`, ` { } `, `null`, `[]`, `7`,
			`{"queries": [{"embeddings": [[1, 2], [3, 4]], "weights": [1, 2]}, null, {"subset": [1], "ids": []}], "params": {"top_k": 3}, "subset": [1, 2], "filter_condition": "a = ?", "filter_parameters": [1e3, "x"], "text_query": ["],[{\"", "b"]}`,
			`{"queries": ["a", {"text": "b\\\"]", "ids": ["x"]}] , "stats" : true}`,
			`{"queries": []}`, `{"queries": null}`, `{"QUERIES": [{"embeddings": [[1]]}]}`,
			`{"documents": [{"embeddings": [[1]]}, {"embeddings_b64": "AACAPw==", "shape": [1, 1]}], "metadata": [{"_id": "a", "x": {"y": [1, {"z": "}"}]}}, {}, null]}`,
			`{"documents": ["a", "b"], "query": "c", "pool_factor": 2}`, `{"texts": ["a", "b,]", ""], "input_type": "query"}`, `{"input": ["a"], "is_query": null}`, `{"input": "a"}`,
			`{"queries": [{"weights": [1, "x"]}]}`, `{"queries": [7]}`, `{"documents": [{"embeddings": 7}]}`, `{"documents": [[1]]}`, `{"texts": [7]}`, `{"metadata": [7]}`, `{"metadata": 7, "texts": 7, "queries": 7}`,
			`{"params": {"top_k": "x"}}`,
		} {
			whole, pieces := reflect.New(reflect.TypeOf(into).Elem()).Interface(), reflect.New(reflect.TypeOf(into).Elem()).Interface()
			want := json.Unmarshal([]byte(text), whole)
			got := unmarshal(t.Context(), []byte(text), pieces, free)
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
	require.ErrorIs(t, unmarshal(ctx, []byte(`{"texts": [`+strings.Repeat(`"a",`, 1000)+`"a"]}`), &encodeIn{}, free), context.Canceled)
}
