package server_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

const gzipHeader = "Content-Encoding: gzip"

func gzipOf(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func jsonOf(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

// A body that is sent compressed is taken as if it was not, on every route that takes one.
func TestGzip(t *testing.T) {
	s := startPets(t)
	send := func(method, path string, body any, headers ...string) *reply {
		text, ok := body.([]byte)
		if !ok {
			text = jsonOf(t, body)
		}
		return s.send(t, method, path, gzipOf(t, text), append(headers, gzipHeader)...)
	}
	for _, x := range []struct {
		method, path string
		body         any
		status       int
	}{
		{"POST", "/indices", object{"name": "small"}, 200},
		{"POST", "/indices/small/update", object{"documents": list{query("cats sleep"), query("dogs bark")}}, 202},
		{"POST", "/indices/small/documents", object{"documents": list{query("cats sleep")}}, 202},
		{"POST", "/indices/small/search", object{"queries": list{query("cats")}}, 200},
		{"POST", "/indices/pets/search/filtered", object{"queries": list{query("cats")}, "filter_condition": "year > 0"}, 200},
		{"POST", "/indices/pets/metadata/query", object{"condition": "year > 0"}, 200},
		{"POST", "/indices/pets/facets", object{"fields": list{"year"}}, 200},
		{"PUT", "/indices/small/config", object{"max_documents": 100}, 200},
		{"DELETE", "/indices/small/documents", object{"ids": list{"0"}}, 202},
		{"POST", "/rerank", object{"query": matrix("cats"), "documents": list{query("cats")}}, 200},
	} {
		r := send(x.method, x.path, x.body)
		require.Equal(t, x.status, r.status, "%s %s %s", x.method, x.path, r.body)
	}
	r := send("POST", "/mcp", []byte(`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`), acceptsBoth)
	require.Equal(t, 200, r.status, r.body)
	require.JSONEq(t, `{"jsonrpc":"2.0","id":1.5,"result":{}}`, r.body)

	// A whole index, with the digest of what is sent.
	file := []byte(s.send(t, "GET", "/indices/pets/backup", nil).body)
	sum := sha256.Sum256(gzipOf(t, file))
	digest := "Repr-Digest: sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	require.Equal(t, 200, send("PUT", "/indices/copy/backup", file, octets, digest).status)
	var one, two found
	body := object{"queries": list{query("cats sleep")}}
	s.ok(t, 200, "POST", "/indices/pets/search", body, &one)
	s.ok(t, 200, "POST", "/indices/copy/search", body, &two)
	require.Equal(t, one, two)
	r = send("PUT", "/indices/other/backup", file, octets, "Repr-Digest: sha-256=:AAAA:")
	require.Equal(t, 400, r.status)
	r = send("PUT", "/indices/other/import", []byte("no archive"), "Content-Type: application/x-tar")
	require.Equal(t, 400, r.status)
	require.NotContains(t, r.body, "gzip", "it is the archive that is wrong")

	// Names of codings.
	name := jsonOf(t, object{"name": "pets"})
	for _, value := range []string{"GZIP", "x-gzip", "identity, gzip", " gzip ,", "gzip, identity"} {
		require.Equal(t, 409, s.send(t, "POST", "/indices", gzipOf(t, name), "Content-Encoding: "+value).status, value)
	}
	for _, value := range []string{"", "identity", "Identity, identity"} {
		require.Equal(t, 409, s.send(t, "POST", "/indices", name, "Content-Encoding: "+value).status, value)
	}
	for _, value := range []string{"br", "deflate", "zstd", "compress", "gzip, br", "br, gzip", "gzip, gzip", "*", "gzip;q=1", "none"} {
		r := s.send(t, "POST", "/indices", gzipOf(t, name), "Content-Encoding: "+value)
		require.Equal(t, 415, r.status, value)
		isProblem(t, r, server.CodeMediaType)
		require.Equal(t, "gzip, identity", r.header.Get("Accept-Encoding"), value)
	}

	// What is cut or damaged.
	good := gzipOf(t, jsonOf(t, object{"name": "never", "config": object{"nbits": 2}}))
	require.Contains(t, s.refused(t, 400, server.CodeBadRequest, "POST", "/indices", "", gzipHeader).Message, "no body")
	for n := 1; n < len(good); n++ {
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices", good[:n], gzipHeader)
		require.Contains(t, p.Message, "cut short", n)
	}
	hurt := bytes.Clone(good)
	hurt[len(hurt)-5] ^= 1
	require.Contains(t, s.refused(t, 400, server.CodeBadRequest, "POST", "/indices", hurt, gzipHeader).Message, "gzip")
	for _, bad := range []string{`{"name":"never"}`, string(good) + "more", "\x1f\x8b"} {
		require.Contains(t, s.refused(t, 400, server.CodeBadRequest, "POST", "/indices", bad, gzipHeader).Message, "gzip", bad)
	}
	require.Contains(t, s.refused(t, 400, server.CodeBadRequest, "POST", "/indices", gzipOf(t, []byte(`{"name":`)), gzipHeader).Message, "JSON")
	s.refused(t, 404, server.CodeIndexNotFound, "GET", "/indices/never", nil)
	require.Equal(t, 200, s.send(t, "POST", "/indices", append(gzipOf(t, []byte(`{"name":`)), gzipOf(t, []byte(`"parts"}`))...), gzipHeader).status, "two members")
}

// What comes out of a body has the limits of bodies, and takes the memory that they may.
func TestGzipIsBounded(t *testing.T) {
	s := start(t, words{}, &server.Options{Limits: server.Limits{Body: 1 << 20}})
	text := func(n int) []byte { return jsonOf(t, object{"name": strings.Repeat("x", n)}) }
	p := s.refused(t, 413, server.CodeTooLarge, "POST", "/indices", gzipOf(t, text(1<<20)), gzipHeader)
	require.Contains(t, p.Message, "1048576 bytes")
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices", gzipOf(t, text(900<<10)), gzipHeader) // the name

	s = start(t, words{}, &server.Options{Limits: server.Limits{Decoded: 1 << 20}})
	p = s.refused(t, 413, server.CodeTooLarge, "POST", "/indices", gzipOf(t, text(2<<20)), gzipHeader)
	require.Contains(t, p.Message, "max-memory")

	// An upload has the disk for a limit: it is no more than so many times what is sent.
	s = start(t, words{}, nil)
	bomb := gzipOf(t, make([]byte, 64<<20))
	require.Less(t, len(bomb), 1<<17)
	for path, media := range map[string]string{"/indices/new/backup": octets, "/indices/new/import": "Content-Type: application/x-tar"} {
		r := s.send(t, http.MethodPut, path, bomb, media, gzipHeader)
		require.Contains(t, []int{400, 413}, r.status, r.body) // that it is no archive is seen before
	}
	p = s.refused(t, 413, server.CodeTooLarge, "POST", "/indices", bomb, gzipHeader)
	require.Contains(t, p.Message, "256 times")
	p = s.refused(t, 413, server.CodeTooLarge, "POST", "/mcp", gzipOf(t, make([]byte, 300<<10)), gzipHeader, acceptsBoth)
	require.Contains(t, p.Message, "262144")
}
