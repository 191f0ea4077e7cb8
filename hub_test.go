package plaid_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/internal/testing/hubtest"
)

// A collection is made with a model by its name, and opened again by what it keeps of it: from the cache,
// or on another machine from the hub.
func TestModelByName(t *testing.T) {
	ctx := t.Context()
	server := hubtest.New()
	t.Cleanup(server.Close)
	commit, err := server.AddFolder("org/nano", "main", model)
	require.NoError(t, err)
	told := 0
	h := &hub.Hub{Endpoint: server.URL, Cache: t.TempDir(), Attempts: 1, Progress: func(hub.Progress) { told++ }}
	path := filepath.Join(t.TempDir(), "docs.plaid")
	c, err := plaid.Create(ctx, path, &plaid.Options{Model: "org/nano", Hub: h})
	require.NoError(t, err)
	require.NotZero(t, told)
	_, err = c.Add(ctx, plaid.Document{ID: "bird", Text: "a bird sings"})
	require.NoError(t, err)
	require.NoError(t, c.Close())

	offline := &hub.Hub{Endpoint: server.URL, Cache: h.Cache, Offline: "the test"}
	elsewhere := &hub.Hub{Endpoint: server.URL, Cache: t.TempDir()}
	for _, h := range []*hub.Hub{offline, elsewhere} {
		c, err := plaid.Open(ctx, path, &plaid.Options{Hub: h})
		require.NoError(t, err)
		found, err := c.Search(ctx, plaid.Query{Text: "what sings?"})
		require.NoError(t, err)
		require.Equal(t, "bird", found[0].ID)
		e, err := c.Encoder(ctx)
		require.NoError(t, err)
		require.Equal(t, "org/nano@"+commit, e.Config().Name)
		require.NoError(t, c.Close())
	}
	nowhere := &hub.Hub{Endpoint: server.URL, Cache: t.TempDir(), Offline: "the test"}
	c, err = plaid.Open(ctx, path, &plaid.Options{Hub: nowhere})
	require.NoError(t, err)
	_, err = c.Search(ctx, plaid.Query{Text: "what sings?"})
	require.ErrorIs(t, err, hub.ErrOffline)
	require.ErrorContains(t, err, "hf download org/nano --revision "+commit+" fetches it")
	require.NoError(t, c.Close())
}
