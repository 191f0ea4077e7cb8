package cluster

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// answering is a client of a collection with documents, on a node whose answers to an operation are others.
func answering(t *testing.T, op, body string) collection.Collection {
	var asked atomic.Int32
	before := innerClient.Transport
	innerClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := before.RoundTrip(r)
		if err == nil && strings.TrimPrefix(r.URL.Path, innerPath) == op {
			asked.Add(1)
			_ = answer.Body.Close()
			answer.Body = io.NopCloser(strings.NewReader(body))
		}
		return answer, err
	})
	t.Cleanup(func() {
		innerClient.Transport = before
		require.NotZero(t, asked.Load())
	})
	n := startNodes(t, 1, 1, nil)[0]
	declared(t, n, testDocs(0, 20, testDim)...)
	client, err := Open(t.Context(), Config{Store: n.cfg.Store, Dir: t.TempDir(), Beat: testBeat})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close(context.Background())) })
	wiki, err := client.Get("wiki")
	require.NoError(t, err)
	return wiki
}

// A node that has made a change, and says so in a form that is not known here, may have made it.
func TestAnswerToChangeOfAnotherForm(t *testing.T) {
	wiki := answering(t, "update", `{"entry":"many"}`)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	_, err := wiki.Update(ctx, testDocs(20, 5, testDim), collection.UpdateOptions{})
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
}

// Documents that are said to be in a shard that there is not are an error.
func TestPlacesInNoShard(t *testing.T) {
	wiki := answering(t, "evidence", `{"shards":[{"shard":0,"docs":20,"places":[{"Part":7,"Ordinal":1}]}]}`)
	v, err := wiki.Snapshot(t.Context())
	require.NoError(t, err)
	_, err = v.Search(t.Context(), []search.Query{{Vectors: testDocs(0, 1, testDim)[0].Vectors}},
		search.Options{Feedback: &search.Feedback{Like: []string{"d1"}}})
	require.ErrorIs(t, err, errMessage)
}

// A shard without documents has no counts and no sums.
func TestFiguresOfNoDocuments(t *testing.T) {
	wiki := answering(t, "evidence", `{"shards":[{"shard":0,"counts":[1,2,3],"sums":"AAAAAAAAAAAAAAAAAAAAAA=="}]}`)
	v, err := wiki.Snapshot(t.Context())
	require.NoError(t, err)
	e := &evidence{v: v.(*shardedSnapshot), good: []search.Location{{}}}
	e.v.dim = 1
	_, _, err = e.DocumentFrequencies(t.Context(), []uint32{0})
	require.ErrorIs(t, err, errMessage)
	_, err = e.TokenSums(t.Context(), false, []uint32{0})
	require.ErrorIs(t, err, errMessage)
}
