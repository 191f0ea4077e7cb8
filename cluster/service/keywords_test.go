package service_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/server"
)

// folderOf is a service over a folder of indexes, with keywords.
func folderOf(t *testing.T, c *clustertest.Cluster, o store.Options) *front {
	t.Helper()
	o.Derive = store.DeriveKeywords(nil)
	st, err := store.Open(c.Ctx, filepath.Join(t.TempDir(), "data"), &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close(c.Ctx)) })
	return serveOver(t, st.Set())
}

// Searches by words, and by both, have the scores of one index, to 1e-5 and better: in random
// collections that change, with conditions and lists of ids.
func TestKeywordsAsInAFolder(t *testing.T) {
	for _, tokenizer := range []string{"unicode61", "trigram"} {
		t.Run(tokenizer, func(t *testing.T) {
			c := clustertest.New(t, 3)
			cluster := declaring(t, c, operate.CreateOptions{Shards: 4, Replicas: 2})
			folder := folderOf(t, c, store.Options{})
			r := rand.New(rand.NewPCG(1, uint64(len(tokenizer))))
			maker := searchtest.New(6, dim, 12)
			text := func(words int) (s string) {
				for range words {
					s += fmt.Sprintf(" w%c%c", 'a'+rune(r.IntN(6)*r.IntN(5)), 'a'+rune(r.IntN(3)))
				}
				return s
			}
			add := func(i int) object {
				return object{"_id": fmt.Sprint("d", i), "title": text(2), "body": text(1 + r.IntN(30)), "n": i}
			}
			both := func(method, path string, body any) (answers [2]object) {
				for i, f := range []*front{folder, cluster} {
					f.do(200, method, "/indices/wiki"+path, body, &answers[i])
				}
				return answers
			}
			for _, f := range []*front{folder, cluster} {
				f.do(200, "POST", "/indices", object{"name": "wiki", "config": object{"fts_tokenizer": tokenizer}}, nil)
			}
			next, found := 0, 0
			for round := range 8 {
				var docs, metadata list
				for range 12 {
					docs = append(docs, object{"embeddings": [][]float32{maker.Tokens(1), maker.Tokens(1)}})
					metadata = append(metadata, add(next))
					next++
				}
				both("POST", "/update", object{"documents": docs, "metadata": metadata})
				switch round % 3 {
				case 1:
					both("DELETE", "/documents", object{"condition": "n = ? OR n = ?", "parameters": list{r.IntN(next), r.IntN(next)}})
				case 2:
					both("POST", "/metadata/update", object{"condition": "n < ?", "parameters": list{r.IntN(next)}, "updates": object{"title": text(3)}})
				}
				for range 10 {
					body := object{"text_query": list{text(1 + r.IntN(4))}, "params": object{"top_k": 1 + r.IntN(40)}, "metadata": false}
					if r.IntN(2) == 0 {
						body["text_mode"] = "expression"
						body["text_query"] = list{[]string{`"wa wb"`, `wa*`, `+wa wb -wc`, `"wab waa" wca*`}[r.IntN(4)] + text(1)}
					}
					if r.IntN(2) == 0 {
						body["filter_condition"], body["filter_parameters"] = "n >= ?", list{r.IntN(next)}
					}
					if r.IntN(4) == 0 {
						body["ids"] = list{"d1", "d5", "d7", "d9", "d20", "nobody"}
					}
					if r.IntN(2) == 0 {
						body["queries"] = list{object{"embeddings": [][]float32{maker.Tokens(1)}}}
						body["alpha"] = r.Float64()
						body["fusion"] = []string{"relative_score", "rrf"}[r.IntN(2)]
					}
					answers := both("POST", "/search", body)
					var ranked [2][]any
					for i := range answers {
						result := answers[i]["results"].(list)[0].(object)
						scores, ids := result["scores"].(list), result["ids"].(list)
						for j := range scores {
							ranked[i] = append(ranked[i], scores[j])
							ranked[i] = append(ranked[i], ids[j])
						}
					}
					require.Len(t, ranked[1], len(ranked[0]), "%v", body)
					if body["fusion"] == "rrf" {
						continue // equal scores by words have other ranks where documents have other numbers
					}
					byID := map[any]float64{}
					for j := 0; j < len(ranked[0]); j += 2 {
						require.InDelta(t, ranked[0][j], ranked[1][j], 1e-5, "%v", body)
						byID[ranked[0][j+1]] = ranked[0][j].(float64)
					}
					for j := 0; j < len(ranked[1]); j += 2 { // equal scores may be in another order, and cut off
						if score, there := byID[ranked[1][j+1]]; there {
							require.InDelta(t, score, ranked[1][j], 1e-5, "%v", body)
							found++
						}
					}
				}
			}
			require.Greater(t, found, 200)
			for _, f := range []*front{folder, cluster} {
				msg := f.refused(server.CodeBadRequest, 400, "POST", "/indices/wiki/search", object{"text_query": list{`"open`}, "text_mode": "expression"})
				require.Contains(t, msg, "syntax error")
				f.refused(server.CodeBadRequest, 400, "POST", "/indices/wiki/search", object{"text_query": list{"wa"}, "filter_condition": "nosuch = 1"})
				var s searched
				f.do(200, "POST", "/indices/wiki/search", object{"text_query": list{"d3"}, "params": object{"top_k": 1}}, &s)
				if tokenizer == "unicode61" {
					require.Equal(t, "d3", s.Results[0].Metadata[0]["_id"], "ids are words too")
				}
			}
		})
	}
}
