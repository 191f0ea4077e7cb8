package service_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// Values that do not fit into one message come in several, and those of all shards are
// counted as those of a folder: also true beside 1, nested ones, and null.
func TestFacetsOfManyPages(t *testing.T) {
	c := clustertest.New(t, 2)
	cluster := declaring(t, c, operate.CreateOptions{Shards: 2, Replicas: 2})
	st, err := store.Open(c.Ctx, filepath.Join(t.TempDir(), "data"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close(c.Ctx)) })
	folder := serveOver(t, st.Set())
	maker := searchtest.New(5, dim, 4)
	long := strings.Repeat("é\x01", 30_000)
	var docs, metadata list
	for i := range 32 {
		docs = append(docs, object{"embeddings": [][]float32{maker.Tokens(1)}})
		m := object{"_id": fmt.Sprint("d", i), "text": fmt.Sprint(i, long), "mixed": []any{true, 1, 0.5, nil, list{1, 2}, "1"}[i%6]}
		if i%7 == 0 {
			delete(m, "mixed")
		}
		metadata = append(metadata, m)
	}
	for _, body := range []object{
		{"fields": list{"text"}, "values": 5}, {"fields": list{"text", "mixed"}, "values": 100}, {"fields": list{"mixed"}},
		{"fields": list{"mixed", "text"}, "ids": list{"d1", "d2", "d3", "d7"}}, {"fields": list{"mixed"}, "filter_condition": "mixed >= 1"},
	} {
		var answers [2]any
		for i, f := range []*front{folder, cluster} {
			if body["values"] == 5 {
				f.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
				f.do(200, "POST", "/indices/wiki/update", object{"documents": docs, "metadata": metadata}, nil)
			}
			f.do(200, "POST", "/indices/wiki/facets", body, &answers[i])
		}
		require.Equal(t, answers[0], answers[1], "%v", body)
	}
}
