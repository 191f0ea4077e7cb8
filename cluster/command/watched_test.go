package command_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/internal/freeports"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// page reads what a node shows at an address.
func page(t *testing.T, url string) (status int, text string) {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(body)
}

// A node shows what it is about from its beginning: what it waits for, then that it
// answers, and its figures; and it sends spans to where the environment says.
func TestNodeIsWatched(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	var spans sync.Map // by name
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" && strings.Contains(string(body), "service.instance.id") {
			for _, name := range regexp.MustCompile(`\x2a[\x01-\x1f]([a-z ]+)`).FindAllStringSubmatch(string(body), -1) {
				spans.Store(name[1], true) // field 5 of a span, a text
			}
		}
	}))
	t.Cleanup(collector.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	address := "127.0.0.1:" + freeports.Find(t, 1)[0]
	_, found := serves(t, []string{
		"cluster", "node", "--name", "b", "--data", filepath.Join(dir, "b"), "--store", store, "--build", "--connect", "nats://" + address, "--metrics", "127.0.0.1:0",
	}, `metrics are at (http://\S+)/metrics`)
	b := found[0]
	status, text := page(t, b+"/livez")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"status": "alive"}`, text)
	status, text = page(t, b+"/metrics")
	require.Equal(t, 200, status)
	require.Contains(t, text, "plaid_info{")
	require.Eventually(t, func() bool {
		status, text := page(t, b+"/readyz")
		require.Equal(t, 503, status)
		return text == `{"status":"waiting","waits":["no server answers at nats://`+address+`"]}`+"\n"
	}, time.Minute, 20*time.Millisecond)
	serves(t, []string{"cluster", "node", "--name", "a", "--data", filepath.Join(dir, "a"), "--store", store, "--listen", address}, `(node a answers)`)
	require.Eventually(t, func() bool { status, _ := page(t, b+"/readyz"); return status == 200 }, time.Minute, 20*time.Millisecond)

	nats := "nats://" + address
	maker := searchtest.New(1, dim, 12)
	docs := maker.Docs("d", 20, 4)
	run(t, 0, "cluster", "create", "wiki", "--shards", "2", "--replicas", "2", "--servers", nats, "--store", store)
	run(t, 0, "cluster", "build", "wiki", "--vectors", write(t, dir, "docs.jsonl", docs...), "--centroids", "4", "--servers", nats, "--store", store, "-q")
	run(t, 0, "cluster", "promote", "wiki", "--servers", nats, "--store", store)
	run(t, 0, "cluster", "delete", "wiki", "--servers", nats, docs[0].ID)
	queries := write(t, dir, "queries.jsonl", vectors.Document{ID: "q0", Tokens: maker.Tokens(3)})
	searches := func() {
		run(t, 0, "cluster", "search", "wiki", "--servers", nats, "--queries", queries, "--deadline", "1m")
	}
	require.Eventually(t, func() bool { // whichever of the two is asked
		searches()
		_, text := page(t, b+"/metrics")
		for _, line := range []string{
			"plaid_node_ready 1", "plaid_node_connected 1", `plaid_node_replicas{state="ready"} 2`, `plaid_node_replicas{state="failed"} 0`,
			`plaid_node_replica_lag_entries{collection="wiki",generation="1",shard="1"} 0`, "plaid_node_panics_total 0", "plaid_node_rebuilds_total 0",
			"plaid_node_differences_total 0",
		} {
			require.Contains(t, text, line+"\n")
		}
		require.Regexp(t, `plaid_node_replica_applied_entry\{collection="wiki",generation="1",shard="\d"\} 1\n`, text)
		return regexp.MustCompile(`plaid_node_queries_total\{status="ok"\} [1-9]`).MatchString(text) && regexp.MustCompile(`plaid_node_query_seconds_count\{part="work"\} [1-9]`).MatchString(text)
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		for _, name := range []string{"query", "search", "build", "fetch", "apply"} {
			if _, sent := spans.Load(name); !sent {
				return false
			}
		}
		return true
	}, time.Minute, 20*time.Millisecond)
}

// A log of a node in JSON has nothing else in it.
func TestNodeLogsJSON(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	cmd := start(t, "cluster", "node", "--name", "a", "--data", dir, "--store", filepath.Join(dir, "store"), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug")
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		var line struct {
			Time  time.Time `json:"time"`
			Level string    `json:"level"`
			Msg   string    `json:"msg"`
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
		require.NotEmpty(t, line.Level)
		require.False(t, line.Time.IsZero())
		if line.Msg == "node a answers" {
			return
		}
	}
	require.Fail(t, "it ended", lines.Err())
}

// args are those of a command with flags at their end.
func args(flags []string, command ...string) []string { return append(command, flags...) }

// The status is calm when all is well, says in words what is not, and with --watch says so
// when it changes.
func TestStatusInWords(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	_, found := serves(t, []string{"cluster", "node", "--name", "a", "--data", filepath.Join(dir, "a"), "--store", store, "--listen", "127.0.0.1:0", "--lease", "3s", "--build"},
		`clients reach a at (nats://\S+)`, `(node a answers)`)
	nats := found[0]
	second := []string{"cluster", "node", "--name", "b", "--data", filepath.Join(dir, "b"), "--store", store, "--connect", nats, "--lease", "3s"}
	b, _ := serves(t, second, `(node b answers)`)
	at := []string{"--servers", nats, "--store", store}
	require.Regexp(t, `^all is well on 2 nodes\n\n`, run(t, 0, "cluster", "status", "--servers", nats))
	run(t, 0, args(at, "cluster", "create", "wiki", "--shards", "2", "--replicas", "2")...)
	require.Regexp(t, `^all is well on 2 nodes\nwiki: 2 shards, nothing is searched yet\n`, run(t, 0, "cluster", "status", "--servers", nats))
	docs := searchtest.New(1, dim, 12).Docs("d", 20, 4)
	run(t, 0, args(at, "cluster", "build", "wiki", "--vectors", write(t, dir, "docs.jsonl", docs...), "--centroids", "4", "-q")...)
	require.Contains(t, run(t, 0, "cluster", "status", "--servers", nats), "plaid cluster promote wiki lets searches see it\n")
	run(t, 0, args(at, "cluster", "promote", "wiki")...)
	run(t, 2, "cluster", "status", "--servers", nats, "--watch", "--timeout", "1s")

	watch := start(t, "cluster", "status", "--servers", nats, "--watch")
	said, err := watch.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, watch.Start())
	t.Cleanup(func() { _ = watch.Process.Kill(); _ = watch.Wait() })
	lines := bufio.NewScanner(said)
	await := func(pattern string) {
		seen := ""
		for wanted := regexp.MustCompile(pattern); !wanted.MatchString(seen); seen += lines.Text() + "\n" {
			require.True(t, lines.Scan(), "%s: %s", pattern, seen)
		}
	}
	await(`: all is well on 2 nodes\nwiki: 20 documents in 2 shards, generation 1\n`)
	require.NoError(t, b.cmd.Process.Kill())
	b.wait()
	await(`: not all is well:
  not heard of: b
  wiki, all 2 shards: fewer replicas answer than wanted
  wiki, all 2 shards: no changes are taken until 2 replicas can make them
`)
	var status struct {
		Well        bool     `json:"well"`
		Away        []string `json:"away"`
		Collections []struct {
			Unchanging []int `json:"unchanging"`
		} `json:"collections"`
	}
	require.NoError(t, json.Unmarshal([]byte(run(t, 0, "cluster", "status", "--servers", nats, "--json")), &status))
	require.False(t, status.Well)
	require.Equal(t, []string{"b"}, status.Away)
	require.Equal(t, []int{0, 1}, status.Collections[0].Unchanging)
	serves(t, second, `(node b answers)`)
	await(`: all is well on 2 nodes\n`)
	if runtime.GOOS != "windows" {
		require.NoError(t, watch.Process.Signal(os.Interrupt))
		for lines.Scan() {
		}
		require.NoError(t, watch.Wait())
	}
}
