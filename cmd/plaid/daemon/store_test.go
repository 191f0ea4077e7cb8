package daemon

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSettingsOfStore(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--store s", ""},
		{"--store s --data d --node n.1 --zone z --advertise https://n.example:8443/plaid --shards 4 --replicas 3 --partial allow", ""},
		{"--data d", ""},
		{"", "give --data, the folder of the indexes, or --store"},
		{"--data s3://bucket/plaid", "use --store for the address of an object store"},
		{"--data d --zone z", "zone is for services that share a store"},
		{"--data d --shards 2", "shards is for services"},
		{"--store s --node a/b", `node is "a/b"`},
		{"--store s --node .a", `node is ".a"`},
		{"--store s --shards 10000", "shards is 10000; the maximum is 9999"},
		{"--store s --replicas 33", "replicas is 33; the maximum is 32"},
		{"--store s --advertise n.example:8443", "want a URL such as"},
		{"--store s --advertise ftp://n.example", "want a URL such as"},
		{"--store s --advertise http://n.example/?a=b", "want a URL such as"},
	} {
		_, err := settings(t, strings.Fields(c.args)...)
		if c.want == "" {
			require.NoError(t, err, c.args)
			continue
		}
		require.ErrorIs(t, err, ErrConfig, c.args)
		require.ErrorContains(t, err, c.want)
	}
	c, err := settings(t, "--store", "s")
	require.NoError(t, err)
	c.ReadOnly = true
	require.ErrorContains(t, c.checkSettings(), "read-only is for a folder")
}

// A node has a name, an address and a cache without being told.
func TestNodeOfListener(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	listen := func(network, address string) net.Listener {
		l, err := net.Listen(network, address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	own := listen("tcp", "127.0.0.1:0")
	_, port, err := net.SplitHostPort(own.Addr().String())
	require.NoError(t, err)
	socket := listen("unix", filepath.Join(t.TempDir(), "a socket"))

	c, err := settings(t, "--store", "s")
	require.NoError(t, err)
	name, err := c.serviceNodeName(own)
	require.NoError(t, err)
	require.Regexp(t, `^[A-Za-z0-9_-][A-Za-z0-9_.-]*-`+port+`$`, name)
	at, err := c.advertisedURL(own)
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:"+port, at)
	dir, err := c.cacheDir(name)
	require.NoError(t, err)
	require.DirExists(t, dir)
	require.Equal(t, name, filepath.Base(dir))
	name, err = c.serviceNodeName(socket)
	require.NoError(t, err)
	require.Regexp(t, `-a-socket$`, name)
	_, err = c.advertisedURL(socket)
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "set advertise")
	c.TLSCert = "c.pem"
	at, err = c.advertisedURL(own)
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:"+port, at)

	c, err = settings(t, "--store", "s", "--node", "one", "--advertise", "http://n.example:80/", "--data", t.TempDir())
	require.NoError(t, err)
	name, err = c.serviceNodeName(own)
	require.NoError(t, err)
	require.Equal(t, "one", name)
	at, err = c.advertisedURL(socket)
	require.NoError(t, err)
	require.Equal(t, "http://n.example:80", at)
	dir, err = c.cacheDir(name)
	require.NoError(t, err)
	require.Equal(t, c.Data, dir)
}

// A service that listens everywhere tells others an address that is not everywhere.
func TestAdvertisedOutward(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer l.Close()
	c, err := settings(t, "--store", "s")
	require.NoError(t, err)
	at, err := c.advertisedURL(l)
	if outboundIP() == nil {
		require.ErrorContains(t, err, "set advertise")
		return
	}
	require.NoError(t, err)
	host, _, err := net.SplitHostPort(strings.TrimPrefix(at, "http://"))
	require.NoError(t, err)
	ip := net.ParseIP(host)
	require.NotNil(t, ip, at)
	require.False(t, ip.IsUnspecified(), at)
}

// Inner routes go past the service, with and without the path below which it is reached.
func TestInnerRoutes(t *testing.T) {
	said := func(word string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(word + " " + r.URL.Path)) })
	}
	h := stripBasePath("/plaid", routePeers(said("inner"), said("service")))
	for path, want := range map[string]string{
		"/cluster/v1/search": "inner /cluster/v1/search", "/plaid/cluster/v1/search": "inner /cluster/v1/search",
		"/indices": "service /indices", "/plaid/cluster": "service /cluster", "/cluster/v10": "service /cluster/v10",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		require.Equal(t, want, w.Body.String(), path)
	}
	w := httptest.NewRecorder()
	routePeers(nil, said("service")).ServeHTTP(w, httptest.NewRequest("POST", "/cluster/v1/search", nil))
	require.Equal(t, "service /cluster/v1/search", w.Body.String())
}
