package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

func TestParseTokens(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader("# comment\n\n a read "+readSecret+"\nb admin sha256:"+strings.Repeat("0f", 32)+"\r\n"), "f")
	require.NoError(t, err)
	require.Len(t, tokens, 2)
	require.Equal(t, server.NewToken("a", server.Read, readSecret), tokens[0])
	tokens, err = server.ParseTokens(strings.NewReader("a read,write:notes-*,admin:tmp "+readSecret+" indexes=10 rate=1.5"), "f")
	require.NoError(t, err)
	want := server.NewToken("a", server.Read, readSecret)
	want.Grants = []server.Grant{{Permission: server.Write, Pattern: "notes-*"}, {Permission: server.Admin, Pattern: "tmp"}}
	want.Indexes, want.Rate = 10, 1.5
	require.Equal(t, server.Tokens{want}, tokens)
	for text, says := range map[string]string{
		"":                                    "none",
		"a read":                              "line 1",
		"a root " + readSecret:                "root",
		"a read short":                        "16",
		"a read sha256:00":                    "hexadecimal",
		"a read " + readSecret + " x":         "limit 1",
		"a read x " + readSecret:              "limit 1",
		"a read:* " + readSecret + " bytes=9": "limit 1",
		"a admin " + readSecret + " rate=1 indexes=0":       "limit 2",
		"a read:a/b " + readSecret:                          "pattern",
		"a write:[a] " + readSecret:                         "pattern",
		"a read:*,root:b " + readSecret:                     "root",
		"a read " + readSecret + "\na write " + writeSecret: "twice",
	} {
		_, err := server.ParseTokens(strings.NewReader(text), "tokens.txt")
		require.ErrorIs(t, err, server.ErrTokens)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "tokens.txt")
		require.NotContains(t, err.Error(), readSecret)
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add("a read " + readSecret)
	f.Add("b write:x*,read:? " + readSecret + " rate=1e3")
	f.Add("b admin sha256:" + strings.Repeat("0f", 32))
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := server.ParseTokens(strings.NewReader(text), "f")
		if err == nil && len(tokens) == 0 {
			t.Fatal("no tokens and no error")
		}
	})
}

func FuzzParseIndexRate(f *testing.F) {
	for _, text := range []string{"a=1", "a-*=2.5", "?=1e-9", "*=0", "a/b=1", "a", "a=NaN", "=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := server.ParseIndexRate(text)
		if err == nil && (!(r.Rate > 0) || r.Pattern == "" || strings.ContainsAny(r.Pattern, "[/\\ ")) {
			t.Fatalf("%q is %+v", text, r)
		}
	})
}

// bearers is a service with the tokens of a list, and asks it with the one of a name.
func bearers(t *testing.T, o *server.Options, lines ...string) (*service, func(name, method, path string, body any) *reply) {
	t.Helper()
	var text strings.Builder
	for _, line := range lines { // NAME GRANTS LIMIT…
		words := strings.Fields(line)
		fmt.Fprintln(&text, words[0], words[1], secretOf(words[0]), strings.Join(words[2:], " "))
	}
	tokens, err := server.ParseTokens(strings.NewReader(text.String()), "test")
	require.NoError(t, err)
	o.Tokens = tokens
	s := start(t, words{}, o)
	return s, func(name, method, path string, body any) *reply {
		t.Helper()
		return s.send(t, method, path, body, "Authorization: Bearer "+secretOf(name))
	}
}

func secretOf(name string) string { return name + strings.Repeat("-secret", 3) }

// A token that is for some indexes reads, writes and administers these, whether they are
// there or not, and sees no others.
func TestTokensByIndex(t *testing.T) {
	_, as := bearers(t, &server.Options{}, "root admin", "tenant read:shared,write:a-*,admin:a-tmp?", "reader read:a-docs", "all read:*")
	for _, name := range []string{"shared", "a-docs", "a-tmp1", "b-docs"} {
		require.Equal(t, 200, as("root", "POST", "/indices", object{"name": name}).status)
		require.Equal(t, 202, as("root", "POST", "/indices/"+name+"/update", object{"documents": list{query("cats sleep")}}).status)
	}
	search := object{"queries": list{query("cats")}}
	more := object{"documents": list{query("more")}}
	for _, c := range []struct {
		who, method, path string
		body              any
		want              int
	}{
		{"tenant", "POST", "/indices/shared/search", search, 200},
		{"tenant", "POST", "/indices/a-docs/search", search, 200},
		{"tenant", "POST", "/indices/b-docs/search", search, 403},
		{"tenant", "POST", "/indices/nosuch/search", search, 403}, // nobody learns what is there
		{"tenant", "GET", "/indices/b-docs/stats", nil, 403},
		{"tenant", "POST", "/indices/a-docs/update", more, 202},
		{"tenant", "POST", "/indices/shared/update", more, 403},
		{"tenant", "DELETE", "/indices/shared/documents", object{"ids": list{"0"}}, 403},
		{"tenant", "POST", "/indices/shared/metadata/update", object{"condition": "_id = '0'", "updates": object{}}, 403},
		{"tenant", "GET", "/indices/a-docs/backup", nil, 403},
		{"tenant", "GET", "/indices/a-tmp1/backup", nil, 200},
		{"tenant", "POST", "/indices", object{"name": "a-new"}, 403},
		{"tenant", "POST", "/indices", object{"name": "a-tmp2"}, 200},
		{"tenant", "POST", "/indices", object{"name": "a-tmp22"}, 403},
		{"tenant", "DELETE", "/indices/a-tmp2", nil, 200},
		{"tenant", "DELETE", "/indices/a-docs", nil, 403},
		{"tenant", "PUT", "/indices/b-new/backup", "x", 403},
		{"tenant", "POST", "/encode", object{"texts": list{"a"}, "input_type": "query"}, 200},
		{"tenant", "GET", "/metrics", nil, 403}, // of all indexes
		{"all", "GET", "/metrics", nil, 200},
		{"reader", "POST", "/indices", object{"name": "a-docs"}, 403},
		{"reader", "POST", "/indices/a-docs/search", search, 200},
		{"reader", "POST", "/indices/a-docs/update", more, 403},
	} {
		r := as(c.who, c.method, c.path, c.body)
		require.Equal(t, c.want, r.status, "%s %s %s: %s", c.who, c.method, c.path, r.body)
		if c.want == 403 {
			isProblem(t, r, server.CodeForbidden)
		}
	}
	for who, want := range map[string][]string{"root": {"a-docs", "a-tmp1", "b-docs", "shared"}, "tenant": {"a-docs", "a-tmp1", "shared"}, "reader": {"a-docs"}, "all": {"a-docs", "a-tmp1", "b-docs", "shared"}} {
		var names []string
		as(who, "GET", "/indices", nil).json(t, &names)
		require.Equal(t, want, names, who)
		var health struct {
			Loaded  int `json:"loaded_indices"`
			Indices []struct{ Name string }
		}
		as(who, "GET", "/health", nil).json(t, &health)
		require.Equal(t, len(want), health.Loaded)
		for i := range want {
			require.Equal(t, want[i], health.Indices[i].Name)
		}
	}
}

func TestRates(t *testing.T) {
	rates := []server.IndexRate{{Pattern: "slow", Rate: 1e-3}}
	_, as := bearers(t, &server.Options{IndexRates: rates}, "root admin", "few read rate=0.001")
	require.Equal(t, 200, as("few", "GET", "/indices", nil).status)
	r := as("few", "GET", "/indices", nil)
	require.Equal(t, 429, r.status)
	require.NotEmpty(t, isProblem(t, r, server.CodeRateLimited).RetryAfter)
	for range 5 {
		require.Equal(t, 200, as("root", "GET", "/indices", nil).status)
	}
	require.Equal(t, 404, as("root", "GET", "/indices/slow", nil).status)
	require.Equal(t, 429, as("root", "GET", "/indices/slow", nil).status)
	require.Equal(t, 404, as("root", "GET", "/indices/other", nil).status)
}

// A rate of all indexes does not count what is asked of no index, such as probes; and an index
// with rates by several patterns keeps each of them.
func TestRatesByPattern(t *testing.T) {
	rates := []server.IndexRate{{Pattern: "*", Rate: 1e3}, {Pattern: "few*", Rate: 1e-3}}
	s, as := bearers(t, &server.Options{IndexRates: rates}, "root admin")
	for range 3 {
		require.Equal(t, 200, s.send(t, "GET", "/livez", nil).status)
		require.Equal(t, 200, as("root", "GET", "/indices", nil).status)
		require.Equal(t, 200, as("root", "GET", "/health", nil).status)
	}
	require.Equal(t, 404, as("root", "GET", "/indices/few", nil).status)
	require.Equal(t, 429, as("root", "GET", "/indices/few", nil).status)
	require.Equal(t, 404, as("root", "GET", "/indices/many", nil).status)
	require.Equal(t, 404, as("root", "GET", "/indices/many", nil).status)
}

// Who asks learns what its own token allows, and an admin of all indexes what all do; no
// answer has anything of a secret.
func TestAccess(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader(`
ops   admin                a-secret-of-operators
pets  read:pets,write:p-*  a-secret-of-pets-readers indexes=2 rate=50
`), "test")
	require.NoError(t, err)
	s := start(t, nil, &server.Options{Tokens: tokens})
	ask := func(path, secret string) *reply { return s.send(t, "GET", path, nil, "Authorization: Bearer "+secret) }

	all := ask("/tokens", "a-secret-of-operators")
	require.JSONEq(t, `{"needed": true, "own": {"name": "ops", "permission": "admin"}, "tokens": [
		{"name": "ops", "permission": "admin"},
		{"name": "pets", "permission": "none", "indexes": 2, "rate": 50, "grants": [{"permission": "read", "pattern": "pets"}, {"permission": "write", "pattern": "p-*"}]}]}`, all.body)
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
	s := startPets(t)
	r := s.send(t, "POST", "/indices/pets/search_with_encoding", object{"queries": list{"cats", "dogs"}, "filter_condition": "year > 2000"})
	require.Equal(t, 200, r.status, r.body)
	require.Regexp(t, `^encode;dur=[0-9.]+, select;dur=[0-9.]+, search;dur=[0-9.]+, total;dur=[0-9.]+$`, r.header.Get("Server-Timing"))
}
