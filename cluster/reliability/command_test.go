//go:build unix

package reliability

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// plaid runs a command and returns its exit code and what it prints.
func (p *processes) plaid(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	self, err := os.Executable()
	require.NoError(p.t, err)
	cmd := exec.Command(self, append([]string{"cluster"}, args...)...)
	cmd.Env = append(os.Environ(), "PLAID_TEST_COMMAND=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (p *processes) jsonl(name string, docs ...vectors.Document) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	require.NoError(p.t, os.WriteFile(path, searchtest.Lines(dim, docs...), 0o666))
	return path
}

// Every command, from an empty cluster to one that has lost a node.
func TestCommands(t *testing.T) {
	p := start(t, 2, false)
	docs, maker := documents(9, 60)
	file := p.jsonl("docs.jsonl", docs[:50]...)
	more := p.jsonl("more.jsonl", docs[50:]...)
	queries := p.jsonl("queries.jsonl", vectors.Document{ID: "q0", Tokens: maker.Tokens(3)}, vectors.Document{ID: "q1", Tokens: maker.Tokens(2)})
	store, servers := filepath.Join(p.dir, "store"), "--servers="+p.url
	do := func(want int, args ...string) (stdout string) {
		t.Helper()
		args = append(args, servers)
		code, stdout, stderr := p.plaid(args...)
		require.Equal(t, want, code, "%v: %s%s", args, stdout, stderr)
		return stdout
	}
	op := func(want int, args ...string) string { t.Helper(); return do(want, append(args, "--store", store)...) }

	assert.Contains(t, do(0, "status"), "n1")
	do(4, "search", "wiki", "--queries", queries)
	op(1, "create", "wiki", "--replicas", "5")
	op(1, "create", "Wiki.x")
	op(0, "create", "wiki", "--shards", "3", "--replicas", "2")
	op(1, "create", "wiki")
	do(2, "create", "other") // without a store
	do(1, "search", "wiki", "--queries", queries)
	op(1, "promote", "wiki", "--timeout", "5s")
	op(1, "build", "wiki", "--resume")
	op(2, "build", "wiki")
	op(0, "build", "wiki", "--vectors", file, "--centroids", "8", "-q")
	op(1, "build", "wiki", "--vectors", file, "-q") // one waits
	op(0, "build", "wiki", "--resume", "-q")
	op(0, "discard", "wiki")
	op(0, "build", "wiki", "--vectors", file, "--centroids", "8", "-q")
	assert.Contains(t, op(0, "promote", "wiki"), "generation 2")

	found := do(0, "search", "wiki", "--queries", queries, "-k", "60", "--exhaustive", "--format", "trec")
	assert.Equal(t, 2, strings.Count(found, " 1 "), found)
	assert.Contains(t, do(0, "add", "wiki", "--vectors", more), "10 added")
	do(1, "add", "wiki", "--vectors", more)
	assert.Contains(t, do(0, "add", "wiki", "--vectors", more, "--replace", "--json"), `"replaced":10`)
	assert.Contains(t, do(3, "delete", "wiki", docs[0].ID, "nothing"), "1 deleted, 1 not there")
	do(2, "delete", "wiki")
	assert.Equal(t, 7, strings.Count(op(0, "verify", "wiki"), "\n"))
	op(0, "checkpoint", "wiki")
	for !strings.Contains(do(0, "status", "--json"), `"short":[],"silent":[]`) || !strings.Contains(do(0, "status", "--json"), `"documents":59`) {
		require.NoError(t, p.ctx.Err()) // leases say it when they are renewed
	}
	op(0, "restore", "wiki")
	op(1, "drain", "wiki", "n0")
	op(0, "rebalance", "wiki")
	do(2, "search", "wiki", "--queries", queries, "--partial", "perhaps")

	// A node is stopped in order, the other goes on; then nobody is left.
	x := p.node("n0")
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGTERM))
	<-x.done
	assert.Equal(t, 0, x.cmd.ProcessState.ExitCode(), x.log.String())
	do(0, "search", "wiki", "--queries", queries)
	assert.Contains(t, do(0, "status"), "fewer replicas answer than wanted")
	p.kill("n1")
	do(1, "search", "wiki", "--queries", queries, "--deadline", "3s")
	_, _, stderr := p.plaid("node", "--name", "x")
	assert.Contains(t, stderr, "--data is missing")
	for _, bad := range [][]string{
		{"--connect", p.url, "--listen", "127.0.0.1:0"}, {"--join", "127.0.0.1:1"}, {"--user", "x"}, {"--user", "CN=x=king"}, {"--tls-cert", "x"}, {"--lease", "1s"},
	} {
		code, _, stderr := p.plaid(append([]string{"node", "--name", "x", "--data", filepath.Join(p.dir, "x"), "--store", store}, bad...)...)
		assert.Equal(t, 2, code, "%v: %s", bad, stderr)
	}
	code, _, stderr := p.plaid("node", "--name", "A.B", "--data", filepath.Join(p.dir, "x"), "--store", store)
	assert.NotZero(t, code, stderr)
}

// With --partial allow a result may lack shards, and the exit code says so.
func TestPartialCommand(t *testing.T) {
	p := start(t, 2, false)
	docs, maker := documents(10, 60)
	file := p.jsonl("docs.jsonl", docs...)
	queries := p.jsonl("queries.jsonl", vectors.Document{ID: "q0", Tokens: maker.Tokens(3)})
	store, servers := filepath.Join(p.dir, "store"), "--servers="+p.url
	for _, args := range [][]string{{"create", "wiki", "--shards", "4", "--store", store}, {"build", "wiki", "--vectors", file, "--centroids", "8", "-q", "--store", store}, {"promote", "wiki", "--store", store}} {
		code, _, stderr := p.plaid(append(args, servers)...)
		require.Zero(t, code, stderr)
	}
	p.kill("n1")
	code, out, stderr := p.plaid("search", "wiki", "--queries", queries, "--deadline", "20s", servers, "--partial", "allow")
	assert.Equal(t, 3, code, stderr)
	assert.Contains(t, stderr, "documents")
	assert.NotEmpty(t, out)
	code, out, stderr = p.plaid("search", "wiki", "--queries", queries, "--deadline", "20s", servers)
	assert.Equal(t, 1, code, stderr)
	assert.Empty(t, out)
}
