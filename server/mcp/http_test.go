package mcp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
)

// withToken is a transport that brings a bearer token.
type withToken string

func (secret withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+string(secret))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// By HTTP a token sees what it sees of the service itself.
func TestTokens(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader("all read read-read-read-read\nsome read:empty some-some-some-some\n"), "tokens")
	if err != nil { // the form of scopes is the service's
		t.Fatal(err)
	}
	s := newService(t, true, &server.Options{Tokens: tokens})
	web := httptest.NewServer(s)
	defer web.Close()
	agent := func(secret withToken) (*sdk.ClientSession, error) {
		client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
		return client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: web.URL + "/mcp", HTTPClient: &http.Client{Transport: secret}, DisableStandaloneSSE: true}, nil)
	}
	for _, secret := range []withToken{"", "wrong-wrong-wrong-wrong"} {
		_, err := agent(secret)
		require.Error(t, err)
	}
	var list struct{ Indexes []struct{ Name string } }
	c, err := agent("read-read-read-read")
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, call(t, c, "list", nil, &list))
	require.Len(t, list.Indexes, 2)
	var found hits
	require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "dogs"}, &found))
	require.Equal(t, "dog", found.Hits[0].ID)

	narrow, err := agent("some-some-some-some")
	require.NoError(t, err)
	defer narrow.Close()
	require.NoError(t, call(t, narrow, "list", nil, &list))
	require.Len(t, list.Indexes, 1)
	require.ErrorContains(t, call(t, narrow, "search", map[string]any{"index": "notes", "query": "dogs"}, &found), "FORBIDDEN")
	require.ErrorContains(t, call(t, narrow, "get", map[string]any{"index": "notes", "ids": []string{"dog"}}, &found), "FORBIDDEN")
	_, err = narrow.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "plaid://notes/dog"})
	require.ErrorContains(t, err, "FORBIDDEN")
}

// What is no message of the protocol, or comes from a page elsewhere, gets no further.
func TestRefused(t *testing.T) {
	s := newService(t, false, &server.Options{Hosts: []string{"localhost"}})
	ask := func(change func(r *http.Request), body string) int {
		r := httptest.NewRequest("POST", "http://localhost/mcp", strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		_, _ = io.Copy(io.Discard, w.Body)
		return w.Code
	}
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	require.Equal(t, http.StatusOK, ask(nil, list))
	require.Equal(t, http.StatusForbidden, ask(func(r *http.Request) { r.Host = "evil.example" }, list))
	require.Equal(t, http.StatusForbidden, ask(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, list))
	require.Equal(t, http.StatusForbidden, ask(func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, list))
	require.Equal(t, http.StatusBadRequest, ask(nil, `{`))
	require.Equal(t, http.StatusBadRequest, ask(func(r *http.Request) { r.Header.Del("Accept") }, list))
	require.Equal(t, http.StatusUnsupportedMediaType, ask(func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, list))
	require.Equal(t, http.StatusRequestEntityTooLarge, ask(nil, `{"jsonrpc":"2.0","id":1,"method":"`+strings.Repeat("x", 1<<20)+`"}`))
	require.Equal(t, http.StatusMethodNotAllowed, ask(func(r *http.Request) { r.Method = "DELETE" }, ""))
}

// Requests of one client are counted as such, though they come from within.
func TestRate(t *testing.T) {
	s := newService(t, false, &server.Options{Limits: server.Limits{Rate: .001, Burst: 6}})
	web := httptest.NewServer(s)
	defer web.Close()
	status := 0
	for range 8 {
		answer, err := http.Post(web.URL+"/mcp", "application/json", strings.NewReader("{}"))
		require.NoError(t, err)
		status = answer.StatusCode
		require.NoError(t, answer.Body.Close())
	}
	require.Equal(t, http.StatusTooManyRequests, status)
}

// Pages of an origin that the service names may use the tools, as they may use its other routes.
func TestOrigins(t *testing.T) {
	const origin = "https://app.example"
	s := newService(t, false, &server.Options{Origins: []string{origin}})
	ask := func(method, from string) *httptest.ResponseRecorder {
		r := message(t, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		r.Method = method
		r.Header.Set("Origin", from)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if method == http.MethodOptions {
			r.Header.Set("Access-Control-Request-Method", http.MethodPost)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	w := ask(http.MethodOptions, origin)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, origin, w.Header().Get("Access-Control-Allow-Origin"))
	require.Contains(t, w.Header().Get("Access-Control-Allow-Headers"), "Mcp-Protocol-Version")
	w = ask(http.MethodPost, origin)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, origin, w.Header().Get("Access-Control-Allow-Origin"))
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodOptions, "https://evil.example").Code)
	require.Equal(t, http.StatusForbidden, ask(http.MethodPost, "https://evil.example").Code)
}

// What never changes is not said to.
func TestCapabilities(t *testing.T) {
	c := connect(t, mcp.NewInProcess(newService(t, false, nil))).InitializeResult().Capabilities
	require.NotNil(t, c.Tools)
	require.NotNil(t, c.Resources)
	require.False(t, c.Tools.ListChanged)
	require.False(t, c.Resources.ListChanged)
	require.False(t, c.Resources.Subscribe)
}
