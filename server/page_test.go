package server_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

var ofPage = regexp.MustCompile(`(?:href|src)="(ui/[^"]+)"|from "\./([^"]+)"`)

// The page and whatever it and its scripts name are there, without a token, and what
// they may do is limited by the browser.
func TestPageFiles(t *testing.T) {
	s := start(t, nil, &server.Options{Tokens: server.Tokens{server.NewToken("reader", server.Read, "a secret of readers")}})
	wanted := []string{"/ui"}
	seen := map[string]bool{}
	for len(wanted) > 0 {
		path := wanted[0]
		wanted = wanted[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		r := s.send(t, "GET", path, nil)
		require.Equal(t, 200, r.status, path)
		policy := r.header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'")
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"))
		for _, m := range ofPage.FindAllStringSubmatch(r.body, -1) {
			wanted = append(wanted, "/"+strings.TrimPrefix(m[1], "/"))
			if m[1] == "" {
				wanted[len(wanted)-1] = "/ui/" + m[2]
			}
		}
		require.NotContains(t, r.body, "innerHTML", path)
		if !strings.HasSuffix(path, ".svg") { // the name of a format is an address
			require.NotRegexp(t, `https?://`, r.body, path)
		}
		// Who has it already is told so.
		same := s.send(t, "GET", path, nil, "If-None-Match: "+r.header.Get("ETag"))
		require.Equal(t, 304, same.status, path)
		require.Empty(t, same.body)
		head := s.send(t, "HEAD", path, nil)
		require.Equal(t, 200, head.status, path)
		require.Equal(t, r.header.Get("Content-Length"), head.header.Get("Content-Length"))
	}
	require.Len(t, seen, 17)
	require.Equal(t, "text/html; charset=utf-8", s.send(t, "GET", "/ui", nil).header.Get("Content-Type"))
	require.Equal(t, "text/javascript; charset=utf-8", s.send(t, "GET", "/ui/page.js", nil).header.Get("Content-Type"))

	r := s.send(t, "GET", "/ui/", nil)
	require.Equal(t, 301, r.status)
	require.Equal(t, "../ui", r.header.Get("Location"))
	s.refused(t, 404, server.CodeNoRoute, "GET", "/ui/ui.go", nil)
	s.refused(t, 404, server.CodeNoRoute, "GET", "/ui/page.html", nil)
	s.refused(t, 405, server.CodeMethod, "POST", "/ui", nil)
}
