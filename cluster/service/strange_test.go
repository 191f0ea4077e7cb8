package service_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/server"
)

// A collection whose map is of a later program is listed, and said to be of no use to this one.
func TestStrangeMapIsListed(t *testing.T) {
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, searchtest.New(1, dim, 12).Docs("d", 20, 4))
	_, err := c.Bus.Maps.Put(c.Ctx, "later", []byte(`{"format": 1, "collection": "later", "version": 1, "invented": true}`))
	require.NoError(t, err)
	f := serve(t, c, client.Config{})
	var names []string
	f.do(http.StatusOK, "GET", "/indices", nil, &names)
	require.Equal(t, []string{"later", "wiki"}, names)
	message := f.refused(server.CodeCorrupt, http.StatusInternalServerError, "GET", "/indices/later", nil)
	require.Contains(t, message, "does not understand the map")
	var ready struct {
		Damaged map[string]string `json:"damaged"`
	}
	f.do(http.StatusOK, "GET", "/readyz", nil, &ready)
	require.Contains(t, ready.Damaged, "later")
	f.do(http.StatusOK, "GET", "/health", nil, nil)
	f.refused(server.CodeIndexExists, http.StatusConflict, "POST", "/indices", object{"name": "later"})
}
