package service_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// A document id is that of one document: deleting it does not delete the one that takes
// the place of it meanwhile, whichever front is asked.
func TestDeleteBesideReplace(t *testing.T) {
	c := clustertest.New(t, 2)
	maker := searchtest.New(6, dim, 12)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, maker.Docs("d", 20, 4))
	one, other := serve(t, c, client.Config{}), serve(t, c, client.Config{})
	rounds := 25
	if !effort.Long() {
		rounds = 5
	}
	at := uint64(0)
	put := func() uint64 {
		var r struct {
			Documents []uint64 `json:"document_ids"`
		}
		one.do(200, "POST", "/indices/wiki/update", object{"documents": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}, "metadata": list{object{"_id": "x"}}}, &r)
		return r.Documents[0]
	}
	at = put()
	for range rounds {
		var next uint64
		var wg sync.WaitGroup
		wg.Go(func() { next = put() })
		var r struct {
			Deleted int `json:"deleted"`
		}
		other.do(200, "DELETE", "/indices/wiki/documents", object{"document_ids": list{at}}, &r)
		wg.Wait()
		require.LessOrEqual(t, r.Deleted, 1)
		var found struct {
			Count int `json:"count"`
		}
		one.do(200, "POST", "/indices/wiki/metadata/query", object{"condition": "_id = ?", "parameters": list{"x"}}, &found)
		require.Equal(t, 1, found.Count, "the document that took its place is gone")
		at = next
	}
	other.do(200, "DELETE", "/indices/wiki/documents", object{"document_ids": list{at, at + 1<<20}}, nil)
}
