package server_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// Who asks learns what its own token allows, and an admin of all indexes what all do; no
// answer has anything of a secret.
func TestAccess(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader(`
ops   admin                a-secret-of-operators
pets  read:pets,write:p-*  a-secret-of-pets-readers rate=50
`), "test")
	require.NoError(t, err)
	s := start(t, nil, &server.Options{Tokens: tokens})
	ask := func(path, secret string) *reply { return s.send(t, "GET", path, nil, "Authorization: Bearer "+secret) }

	all := ask("/tokens", "a-secret-of-operators")
	require.JSONEq(t, `{"needed": true, "own": {"name": "ops", "permission": "admin"}, "tokens": [
		{"name": "ops", "permission": "admin"},
		{"name": "pets", "permission": "none", "rate": 50, "grants": [{"permission": "read", "pattern": "pets"}, {"permission": "write", "pattern": "p-*"}]}]}`, all.body)
	own := ask("/tokens", "a-secret-of-pets-readers")
	require.Equal(t, 200, own.status, own.body)
	require.NotContains(t, own.body, "ops")
	require.Contains(t, own.body, `"name":"pets"`)
	for _, r := range []*reply{all, own} {
		require.NotContains(t, r.body, "secret")
	}
	require.Equal(t, 401, s.send(t, "GET", "/tokens", nil).status)
	require.Equal(t, 403, ask("/nodes", "a-secret-of-pets-readers").status)
	s.refused(t, 400, server.CodeNotSupported, "GET", "/nodes", nil, "Authorization: Bearer a-secret-of-operators")

	open := start(t, nil, nil)
	require.JSONEq(t, `{"needed": false}`, open.send(t, "GET", "/tokens", nil).body)
}

// The answer says what took the time of a request.
func TestServerTiming(t *testing.T) {
	s := start(t, words{}, nil)
	s.addPets(t)
	r := s.send(t, "POST", "/indices/pets/search_with_encoding", object{"queries": list{"cats", "dogs"}, "filter_condition": "year > 2000"})
	require.Equal(t, 200, r.status, r.body)
	require.Regexp(t, `^encode;dur=[0-9.]+, select;dur=[0-9.]+, search;dur=[0-9.]+, total;dur=[0-9.]+$`, r.header.Get("Server-Timing"))
}
