package daemon_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
)

// config is that of flags and an environment.
func config(t *testing.T, environ []string, args ...string) (*daemon.Config, error) {
	t.Helper()
	c := daemon.NewConfig()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.Register(f)
	if err := f.Parse(append([]string{"--listen", "127.0.0.1:0", "--data", t.TempDir()}, args...)); err != nil {
		return nil, err
	}
	return c, c.Load(environ, f)
}

// start serves until the test ends, and returns the address.
func start(t *testing.T, c *daemon.Config, log io.Writer, environ []string) (address string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, c, log, environ, func(a string) { ready <- a }) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	select {
	case address = <-ready:
	case err := <-ended:
		ended <- err
		require.NoError(t, err)
	}
	return address, stop
}

// run serves with flags until the test ends, and returns the address and the log.
func run(t *testing.T, environ []string, flags ...string) (address string, log *buffer, stop func() error) {
	t.Helper()
	c, err := config(t, environ, flags...)
	require.NoError(t, err)
	log = &buffer{}
	address, stop = start(t, c, log, environ)
	return address, log, stop
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// writeCertificate makes a certificate of 127.0.0.1 under a serial number.
func writeCertificate(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	about := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "plaid"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &k.PublicKey, k)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return cert, key
}

// serial is the number of the certificate that a service shows.
func serial(t *testing.T, address string) int64 {
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// TLS, with a certificate that is replaced while the service runs.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir, 1)
	address, _, stop := run(t, nil, "--tls-cert", cert, "--tls-key", key)
	require.EqualValues(t, 1, serial(t, address))
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	r, err := client.Get("https://" + address + "/livez")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, 200, r.StatusCode)
	client.CloseIdleConnections()
	writeCertificate(t, dir, 2)
	require.Eventually(t, func() bool { return serial(t, address) == 2 }, time.Minute, 20*time.Millisecond)
	require.NoError(t, os.WriteFile(cert, []byte("nonsense"), 0o600))
	require.NoError(t, os.Chtimes(cert, time.Now(), time.Now().Add(time.Hour)))
	require.EqualValues(t, 2, serial(t, address))
	require.NoError(t, stop())
}

// Spans reach a collector, in the trace that the client began.
func TestTracing(t *testing.T) {
	got := make(chan []byte, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" && r.Header.Get("X-Key") == "a b" &&
			r.Header.Get("Content-Type") == "application/x-protobuf" {
			got <- body
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment=test")
	address, log, stop := run(t, nil)
	const traceID, parentID = "0123456789abcdef0123456789abcdef", "0123456789abcdef"
	require.Equal(t, 404, statusOf(t, "http://"+address+"/indices/none", "Traceparent: 00-"+traceID+"-"+parentID+"-01"))
	require.NoError(t, stop()) // what waits is sent
	require.Contains(t, log.String(), "trace_id="+traceID)
	var request tracepb.TracesData
	require.NoError(t, proto.Unmarshal(<-got, &request))
	sent := request.ResourceSpans[0]
	attributes := func(all []*commonpb.KeyValue) map[string]*commonpb.AnyValue {
		values := map[string]*commonpb.AnyValue{}
		for _, kv := range all {
			values[kv.Key] = kv.Value
		}
		return values
	}
	about := attributes(sent.Resource.Attributes)
	require.Equal(t, "plaid", about["service.name"].GetStringValue())
	require.NotEmpty(t, about["service.version"].GetStringValue())
	require.Equal(t, "test", about["deployment"].GetStringValue())
	span := sent.ScopeSpans[0].Spans[0]
	require.Equal(t, "GET /indices/{name}", span.Name)
	require.Equal(t, traceID, hex.EncodeToString(span.TraceId))
	require.Equal(t, parentID, hex.EncodeToString(span.ParentSpanId))
	require.Len(t, span.SpanId, 8)
	require.Equal(t, tracepb.Span_SPAN_KIND_SERVER, span.Kind)
	require.Less(t, span.StartTimeUnixNano, span.EndTimeUnixNano)
	require.EqualValues(t, 404, attributes(span.Attributes)["http.response.status_code"].GetIntValue())
}

func TestBadTracing(t *testing.T) {
	for _, c := range []struct{ endpoint, suffix, value string }{
		{"collector:4317", "PROTOCOL", ""},
		{"http://x", "PROTOCOL", "grpc"},
		{"http://x", "PROTOCOL", "http/json"},
		{"http://x", "TIMEOUT", "soon"},
		{"http://x", "HEADERS", "a=%zz"},
	} {
		for _, suffix := range []string{"PROTOCOL", "TIMEOUT", "HEADERS"} {
			t.Setenv("OTEL_EXPORTER_OTLP_"+suffix, "")
		}
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.endpoint)
		t.Setenv("OTEL_EXPORTER_OTLP_"+c.suffix, c.value)
		config, err := config(t, nil)
		require.NoError(t, err)
		require.ErrorIs(t, daemon.Run(context.Background(), config, io.Discard, nil, nil), daemon.ErrConfig, c)
	}
}

// Tokens come from a file and from the environment at once.
func TestTokensOfBoth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, []byte("f read file-file-file-file"), 0o600))
	address, log, _ := run(t, []string{"PLAID_SERVE_TOKENS=e read envi-envi-envi-envi"}, "--tokens-file", path)
	for secret, want := range map[string]int{"file-file-file-file": 200, "envi-envi-envi-envi": 200, "none-none-none-none": 401} {
		require.Equal(t, want, statusOf(t, "http://"+address+"/indices", "Authorization: Bearer "+secret))
	}
	require.NotContains(t, log.String(), "file-file")
}

// Whatever a file of settings holds, it is read or refused, and what is printed reads
// the same.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{"data: d", `{"data": "d", "rate": 1e3}`, "data: d\ncors-origins: [\"*\"]\nmax-body: 1.5GB", "data: &a d\nlisten: *a", "- x", "data: [", "data: !!binary aGk=", "? {a: b}\n: c"} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "config.yaml")
		load := func() (*daemon.Config, error) {
			c := daemon.NewConfig()
			flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			c.Register(flags)
			if err := flags.Parse([]string{"--config", path}); err != nil {
				t.Fatal(err)
			}
			return c, c.Load(nil, flags)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load()
		if err != nil {
			return
		}
		var one, two bytes.Buffer
		if err := c.Print(&one); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, one.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := load()
		if err != nil {
			t.Fatalf("%v: %s", err, one.Bytes())
		}
		if err := again.Print(&two); err != nil {
			t.Fatal(err)
		}
		if values(one.String()) != values(two.String()) {
			t.Fatalf("%s\nis not\n%s", one.String(), two.String())
		}
	})
}

// values are the lines of a printed configuration without its comments.
func values(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if line, _, _ = strings.Cut(line, " # from"); !strings.HasPrefix(line, "#") {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	return b.String()
}

// Limits of indexes are settings: what is none ends the start.
func TestLimitsOfIndexes(t *testing.T) {
	address, _, _ := run(t, nil, "--index-rates", "p*=0.001, q=5", "--max-indexes", "2")
	send := func(method, path, body string) int {
		r, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	for _, name := range []string{"pets", "q"} {
		require.Equal(t, 200, send("POST", "/indices", `{"name": "`+name+`"}`))
	}
	require.Equal(t, 403, send("POST", "/indices", `{"name": "more"}`))
	require.Equal(t, 202, send("POST", "/indices/pets/update", `{"documents": [{"embeddings": [[1, 0]]}]}`))
	require.Equal(t, 429, send("POST", "/indices/pets/update", `{"documents": [{"embeddings": [[1, 0]]}]}`))

	for _, bad := range []string{"p*", "p*=0", "p* rate=1", "a/b=1", "[=1", "p=x"} {
		_, err := config(t, nil, "--index-rates", bad)
		require.Error(t, err, bad)
	}
}
