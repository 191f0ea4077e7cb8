package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// Pages by offset are together the whole ranking, by vectors, by words and by both; a least score leaves
// out what is below it. Hits have their ids, whether their metadata is wanted or not.
func TestPages(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "many"}, nil)
	var texts, metadata list
	for i := range 30 {
		text := fmt.Sprintf("cats sleep %d", i)
		for j := range i {
			text += fmt.Sprintf(" cats%d", j)
		}
		texts, metadata = append(texts, text), append(metadata, object{"_id": fmt.Sprintf("d%02d", i), "text": text, "n": i})
	}
	s.ok(t, 202, "POST", "/indices/many/update_with_encoding", object{"documents": texts, "metadata": metadata}, nil)
	type page struct {
		Results []struct {
			IDs      []string
			Scores   []float64
			Metadata []struct {
				ID string `json:"_id"`
			}
		}
	}
	ask := func(body, params object) (ids []string, scores []float64) {
		body["params"] = params
		var out page
		s.ok(t, 200, "POST", "/indices/many/search_with_encoding", body, &out)
		require.Len(t, out.Results, 1)
		r := out.Results[0]
		require.NotNil(t, r.IDs)
		require.Len(t, r.Scores, len(r.IDs))
		if body["metadata"] != false {
			require.Len(t, r.Metadata, len(r.IDs))
			for i, m := range r.Metadata {
				require.Equal(t, m.ID, r.IDs[i])
			}
		}
		return r.IDs, r.Scores
	}
	for name, body := range map[string]object{
		"vectors":           {"queries": list{"cats cats3"}},
		"without metadata":  {"queries": list{"cats cats3"}, "metadata": false},
		"words":             {"text_query": list{"cats"}},
		"both":              {"queries": list{"cats cats3"}, "text_query": list{"cats"}},
		"groups":            {"queries": list{"cats cats3"}, "group": "best"},
		"groups of words":   {"text_query": list{"cats"}, "group": "best"},
		"under a condition": {"queries": list{"cats"}, "filter_condition": "n < 20"},
		"feedback":          {"queries": list{"cats cats3"}, "feedback": object{"documents": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			mode := object{"top_k": 100, "mode": "exhaustive"}
			all, scores := ask(body, mode)
			require.Greater(t, len(all), 10)
			var got []string
			for at := 0; ; at += 7 {
				ids, _ := ask(body, object{"top_k": 7, "mode": "exhaustive", "offset": at})
				if got = append(got, ids...); len(ids) < 7 {
					break
				}
			}
			require.Equal(t, all, got)
			for _, beyond := range []int{len(all), 1000, 1 << 62} {
				ids, _ := ask(body, object{"top_k": 7, "mode": "exhaustive", "offset": beyond})
				require.Empty(t, ids)
			}
			for _, i := range []int{0, 5, len(all) - 1} {
				ids, above := ask(body, object{"top_k": 100, "mode": "exhaustive", "min_score": scores[i]})
				require.GreaterOrEqual(t, len(ids), i+1)
				require.Equal(t, all[:len(ids)], ids)
				require.Equal(t, scores[i], above[len(above)-1])
			}
			ids, _ := ask(body, object{"mode": "exhaustive", "min_score": 1e6})
			require.Empty(t, ids)
		})
	}
	for _, bad := range []object{{"offset": -1}, {"offset": 1.5}, {"min_score": "high"}} {
		s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/many/search_with_encoding", object{"queries": list{"cats"}, "params": bad})
	}
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/many/explain", object{"text": "cats", "id": "d01", "params": object{"offset": 1}})
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/many/recall", object{"queries": list{query("cats")}, "params": object{"min_score": 1}})
}
