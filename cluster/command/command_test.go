package command_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/command"
	plaid "github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// The test binary is plaid too.
func TestMain(m *testing.M) {
	if os.Getenv("PLAID_TEST_COMMAND") != "" {
		os.Exit(plaid.Main(command.Extension()))
	}
	os.Exit(m.Run())
}

const dim = 8

func start(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "PLAID_TEST_COMMAND=1")
	return cmd
}

// run runs a command, which has to end with an exit code.
func run(t *testing.T, want int, args ...string) (stdout string) {
	t.Helper()
	stdout, _ = answer(t, "", want, args...)
	return stdout
}

// answer is run for a command that asks something.
func answer(t *testing.T, typed string, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := start(t, args...)
	cmd.Stdin = strings.NewReader(typed)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.Equal(t, want, cmd.ProcessState.ExitCode(), "%v: %s%s", args, &out, &errs)
	return out.String(), errs.String()
}

// process is a command that goes on.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.Closer
	drained chan struct{}
	ended   bool
}

// serves starts a command, and finds in what it says what some patterns have in
// parentheses.
func serves(t *testing.T, args []string, patterns ...string) (*process, []string) {
	t.Helper()
	p := &process{t: t, cmd: start(t, args...), drained: make(chan struct{})}
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	errs, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if !p.ended {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	found := make([]string, len(patterns))
	missing := len(patterns)
	said := ""
	lines := bufio.NewScanner(errs)
	for missing > 0 && lines.Scan() {
		said += lines.Text() + "\n"
		for i, pattern := range patterns {
			if m := regexp.MustCompile(pattern).FindStringSubmatch(lines.Text()); m != nil && found[i] == "" {
				found[i] = m[1]
				missing--
			}
		}
	}
	require.Zero(t, missing, said)
	go func() { defer close(p.drained); _, _ = io.Copy(io.Discard, errs) }()
	return p, found
}

// wait returns the exit code of a process that was told to end.
func (p *process) wait() int {
	p.ended = true
	<-p.drained
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func write(t *testing.T, dir, name string, docs ...vectors.Document) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, searchtest.Lines(dim, docs...), 0o666))
	return path
}

func get(t *testing.T, url string, v any) int {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, v), string(text))
	return r.StatusCode
}

// A node that is a front too, a front in a process of its own, and the usual commands with
// --cluster.
func TestServe(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	tokens := filepath.Join(dir, "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("somebody read a-secret-of-a-reader\n"), 0o600))
	settings := filepath.Join(dir, "front.yaml")
	require.NoError(t, os.WriteFile(settings, []byte("cluster-partial: allow\ncluster-deadline: 1m\ntokens-file: "+tokens+"\n"), 0o600))
	node, found := serves(t, []string{
		"cluster", "node", "--name", "a", "--data", filepath.Join(dir, "a"), "--store", store, "--build", "--listen", "127.0.0.1:0",
		"--http", "127.0.0.1:0", "--http-config", settings,
	}, `clients reach a at (nats://\S+)`, `address=(http://\S+)`, `node (a) answers`)
	nats, guarded := found[0], found[1]
	maker := searchtest.New(1, dim, 12)
	docs := maker.Docs("d", 30, 4)
	for i := range docs {
		docs[i].Tokens = maker.Tokens(2)
	}
	run(t, 0, "cluster", "create", "wiki", "--shards", "2", "--servers", nats, "--store", store)
	payload := func(id, title string) string {
		name := filepath.Join(dir, title+".payload.jsonl")
		require.NoError(t, os.WriteFile(name, []byte(`{"_id": "`+id+`", "title": "`+title+`"}`), 0o600))
		return name
	}
	run(t, 0, "cluster", "build", "wiki", "--vectors", write(t, dir, "docs.jsonl", docs[:20]...), "--metadata", payload(docs[1].ID, "built"), "--centroids", "4", "--servers", nats, "--store", store, "-q")
	run(t, 0, "cluster", "promote", "wiki", "--servers", nats, "--store", store)
	more := write(t, dir, "more.jsonl", docs[20:]...)
	require.Contains(t, run(t, 0, "add", "--cluster", nats, "wiki", "--vectors", more, "--metadata", payload(docs[25].ID, "added")), "10 added")
	run(t, 1, "add", "wiki", "--vectors", more, "--cluster="+nats)
	require.Contains(t, run(t, 3, "delete", "wiki", "--cluster", nats, docs[0].ID, "nothing"), "1 deleted, 1 not there")
	_, said := answer(t, "", 4, "cluster", "delete", "wiki", "--servers", nats, "nothing", "nobody")
	require.Contains(t, said, `not in the collection: ["nobody" "nothing"]`)
	status := run(t, 0, "cluster", "status", "--servers", nats)
	require.Regexp(t, `(?m)^ *a .* ok *$`, status)
	require.Contains(t, run(t, 0, "cluster", "tidy", "--servers", nats, "--store", store), "removed 0 objects")
	run(t, 2, "cluster", "tidy", "--servers", nats, "--store", store, "--older", "1m")
	maintenance := func(code int, want string, args ...string) {
		t.Helper()
		require.Contains(t, run(t, code, append([]string{"cluster", "maintenance", "--servers", nats, "--store", store}, args...)...), want)
	}
	maintenance(0, "no node is in maintenance")
	maintenance(0, "a is in maintenance until", "a", "--for", "5m")
	maintenance(0, `"b":`, "b", "--json")
	maintenance(0, "b is in maintenance until", "a", "--end")
	maintenance(2, "", "--end")
	maintenance(2, "", "a", "--for", "-1s")
	require.Contains(t, run(t, 0, "cluster", "rejoin", "wiki", "a", "--servers", nats, "--store", store), "a has what the logs of wiki have")
	require.Contains(t, run(t, 0, "cluster", "status", "--servers", nats), "2 replicas made again since it was started")
	queries := write(t, dir, "queries.jsonl", vectors.Document{ID: "q0", Tokens: maker.Tokens(3)})
	out := run(t, 0, "search", "--cluster", nats, "wiki", "--queries", queries, "-k", "30", "--exhaustive", "--deadline", "1m", "--format", "trec")
	require.Equal(t, 29, strings.Count(out, "\n"), out)
	out = run(t, 0, "search", "--cluster", nats, "wiki", "--queries", queries, "-k", "30", "--exhaustive", "--deadline", "1m", "--format", "jsonl", "--show-metadata")
	for _, title := range []string{"built", "added"} {
		require.Regexp(t, `"title": ?"`+title+`"`, out)
	}

	front, found := serves(t, []string{"serve", "--cluster", nats, "--listen", "127.0.0.1:0", "--until-eof"}, `address=(http://\S+)`)
	var info struct {
		Documents int    `json:"num_documents"`
		Dir       string `json:"index_dir"`
		Code      string `json:"code"`
	}
	require.Equal(t, 200, get(t, found[0]+"/indices/wiki", &info))
	require.Equal(t, 29, info.Documents)
	require.Equal(t, 200, get(t, found[0]+"/health", &info))
	require.Equal(t, nats, info.Dir)
	require.NoError(t, front.in.Close())
	require.Zero(t, front.wait())
	require.Equal(t, 401, get(t, guarded+"/indices", &info))
	require.Equal(t, "UNAUTHORIZED", info.Code)
	r, err := http.NewRequest(http.MethodGet, guarded+"/indices/wiki", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer a-secret-of-a-reader")
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, a.Body.Close())
	require.Equal(t, 200, a.StatusCode)
	if runtime.GOOS != "windows" {
		require.NoError(t, node.cmd.Process.Signal(os.Interrupt))
		require.Zero(t, node.wait())
	}
}

// send makes a request with a body and wants a status.
func send(t *testing.T, status int, method, url, body string) (answered string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.Equal(t, status, a.StatusCode, string(text))
	return string(text)
}

// Collections come and go, by commands and over HTTP, at a node and at a front that is
// told of the object store.
func TestLife(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	_, found := serves(t, []string{
		"cluster", "node", "--name", "a", "--data", filepath.Join(dir, "a"), "--store", store, "--build", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
	}, `clients reach a at (nats://\S+)`, `address=(http://\S+)`, `node (a) answers`)
	nats, node := found[0], found[1]
	_, found = serves(t, []string{
		"serve", "--cluster", nats, "--cluster-store", store, "--cluster-shards", "3", "--listen", "127.0.0.1:0", "--until-eof",
	}, `address=(http://\S+)`)
	front := found[0]
	at := []string{"--servers", nats}
	op := append([]string{"--store", store}, at...)
	with := func(flags []string, args ...string) []string {
		return append(append([]string{"cluster"}, args...), flags...)
	}
	const one = `{"documents": [{"embeddings": [[1, 0], [0, 1]]}], "metadata": [{"_id": "d"}]}`

	send(t, 200, "POST", front+"/indices", `{"name": "wiki", "config": {"nbits": 2}}`)
	send(t, 409, "POST", front+"/indices", `{"name": "wiki"}`)
	run(t, 1, with(op, "create", "wiki")...)
	said := run(t, 0, with(at, "describe", "wiki")...)
	require.Contains(t, said, "wiki@")
	require.Contains(t, said, "3 shards")
	send(t, 202, "POST", front+"/indices/wiki/update?wait=true", one)
	said = run(t, 0, with(at, "describe", "wiki", "--json")...)
	var d struct {
		ID       string `json:"id"`
		Replicas []struct {
			Node  string `json:"node"`
			Ready bool   `json:"ready"`
		} `json:"replicas"`
	}
	require.NoError(t, json.Unmarshal([]byte(said), &d), said)
	require.Len(t, d.Replicas, 3)
	require.Contains(t, run(t, 0, with(at, "status")...), "wiki: ")
	run(t, 4, with(at, "describe", "nothing")...)

	_, asked := answer(t, "wikis\n", 2, with(op, "remove", "wiki")...)
	require.Contains(t, asked, "in 3 shards")
	run(t, 2, with(op, "remove", "wiki")...) // nobody types anything
	run(t, 2, with(at, "remove", "wiki", "--yes")...)
	run(t, 4, with(op, "remove", "nothing", "--yes")...)
	require.Contains(t, run(t, 0, with(at, "describe", "wiki")...), d.ID, "it is there as before")
	gone, _ := answer(t, "wiki\n", 0, with(op, "remove", "wiki")...)
	require.Contains(t, gone, "wiki is removed")
	require.NoDirExists(t, filepath.Join(dir, "a", "shards", d.ID))
	require.Contains(t, run(t, 0, with(op, "remove", "wiki", "--yes")...), "removed before")
	run(t, 4, with(at, "describe", "wiki")...)
	run(t, 4, with(at, "search", "wiki", "--queries", write(t, dir, "q.jsonl", vectors.Document{ID: "q", Tokens: make([]float32, dim)}))...)
	run(t, 4, with(op, "restore", "wiki")...)
	send(t, 404, "GET", front+"/indices/wiki", "")

	run(t, 0, with(op, "create", "wiki")...)
	require.NotContains(t, run(t, 0, with(at, "describe", "wiki")...), d.ID)
	send(t, 202, "POST", node+"/indices/wiki/update?wait=true", one)
	send(t, 200, "GET", node+"/indices/wiki", "")
	send(t, 200, "DELETE", node+"/indices/wiki", "")
	send(t, 200, "POST", node+"/indices", `{"name": "wiki"}`)
	require.Contains(t, run(t, 0, with(at, "describe", "wiki")...), "1 shard")
}

func TestBadSettings(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	node := []string{"cluster", "node", "--name", "a", "--data", dir, "--store", dir}
	for _, bad := range [][]string{
		{"serve", "--cluster", "nats://127.0.0.1:1", "--data", dir},
		{"serve", "--cluster-zone", "here", "--data", dir},
		{"serve", "--cluster-store", dir, "--data", dir},
		{"serve", "--cluster", "nats://127.0.0.1:1", "--cluster-shards", "0"},
		{"serve", "--cluster", "nats://127.0.0.1:1", "--cluster-replicas", "2"},
		{"serve", "--cluster", "nats://127.0.0.1:1", "--cluster-store", dir, "--cluster-shards", "5000"},
		{"serve", "--cluster", "nats://127.0.0.1:1", "--cluster-tls-cert", "a"},
		{"serve", "--cluster", "nats://127.0.0.1:1", "--cluster-deadline", "0s"},
		{"serve", "--cluster", "nats://127.0.0.1:1", "--cluster-partial", "perhaps"},
		append(node, "--http-config", "x"),
		append(node, "--http", "127.0.0.1:0", "--http-config", filepath.Join(dir, "none")),
		{"search", "wiki", "--cluster"},
	} {
		run(t, 2, bad...)
	}
}

// The help of the command names the commands below it.
func TestHelpListsCommands(t *testing.T) {
	said := run(t, 0, "cluster", "--help")
	for _, name := range []string{"node", "status", "create", "search", "verify", "tidy", "rejoin"} {
		require.Regexp(t, `(?m)^  `+name+` `, said)
	}
}
