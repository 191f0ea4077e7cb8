package command_test

import (
	"net/http"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/internal/freeports"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

// A node may be started before the server that it is to use; it says what it waits for.
func TestNodeBeforeServer(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	address := "127.0.0.1:" + freeports.Find(t, 1)[0]
	serves(t, []string{"cluster", "node", "--name", "b", "--data", filepath.Join(dir, "b"), "--store", store, "--connect", "nats://" + address},
		`(waiting for a server at)`)
	serves(t, []string{"cluster", "node", "--name", "a", "--data", filepath.Join(dir, "a"), "--store", store, "--listen", address}, `(node a answers)`)
	both := regexp.MustCompile(`(?m)^ *a .* ok *$(?s:.*)^ *b .* ok *$`)
	require.Eventually(t, func() bool {
		return both.MatchString(run(t, 0, "cluster", "status", "--servers", "nats://"+address))
	}, 2*time.Minute, time.Second)
}

// Commands may come before the servers too: they say what they wait for, as long as --timeout
// says, and go on when it is there.
func TestCommandsBeforeServer(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	address := "127.0.0.1:" + freeports.Find(t, 1)[0]
	at := []string{"--servers", "nats://" + address}
	queries := write(t, dir, "q.jsonl", vectors.Document{ID: "q", Tokens: make([]float32, dim)})
	for _, command := range [][]string{
		{"cluster", "status"}, {"cluster", "restore", "wiki", "--store", store}, {"cluster", "search", "wiki", "--queries", queries}, {"cluster", "delete", "wiki", "d"},
	} {
		_, said := answer(t, "", 1, args(append(at, "--timeout", "300ms"), command...)...)
		require.Contains(t, said, "no server answers at nats://"+address, "%v", command)
		run(t, 2, args(append(at, "--timeout", "0s"), command...)...)
	}
	waiting := []*process{}
	for _, command := range [][]string{{"cluster", "status"}, {"cluster", "delete", "wiki", "d"}, {"cluster", "status", "--watch"}} {
		p, _ := serves(t, args(at, command...), `(waiting for a server at nats://`+address+`)`)
		waiting = append(waiting, p)
	}
	front, found := serves(t, []string{"serve", "--cluster", "nats://" + address, "--cluster-store", store, "--listen", "127.0.0.1:0", "--until-eof"}, `address=(http://\S+)`)
	url := found[0]
	status, text := page(t, url+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "no server answers at nats://"+address)
	status, _ = page(t, url+"/livez")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, send(t, 503, "POST", url+"/indices", `{"name": "wiki"}`), "SERVICE_UNAVAILABLE")
	require.Contains(t, send(t, 503, "GET", url+"/indices/wiki", ""), "no server answers")

	serves(t, []string{"cluster", "node", "--name", "a", "--data", filepath.Join(dir, "a"), "--store", store, "--listen", address, "--build"}, `(node a answers)`)
	require.Zero(t, waiting[0].wait())
	require.Equal(t, 4, waiting[1].wait(), "there is no such collection")
	require.Eventually(t, func() bool { status, _ := page(t, url+"/readyz"); return status == http.StatusOK }, time.Minute, 20*time.Millisecond)
	send(t, 200, "POST", url+"/indices", `{"name": "wiki"}`)
	send(t, 202, "POST", url+"/indices/wiki/update?wait=true", `{"documents": [{"embeddings": [[1, 0], [0, 1]]}]}`)
	require.NoError(t, front.in.Close())
	require.Zero(t, front.wait())
}

// Without a quorum of servers, commands say so in words, and a service waits.
func TestCommandsWithoutQuorum(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	ports := freeports.Find(t, 3)
	serves(t, []string{
		"cluster", "node", "--name", "a", "--data", filepath.Join(dir, "a"), "--store", dir, "--listen", "127.0.0.1:" + ports[0],
		"--cluster-listen", "127.0.0.1:" + ports[1], "--join", "127.0.0.1:" + ports[2], "--log-replicas", "3",
	}, `(no quorum of the servers answers yet)`)
	at := []string{"--servers", "nats://127.0.0.1:" + ports[0]}
	for _, command := range [][]string{{"cluster", "status"}, {"cluster", "delete", "wiki", "d"}} {
		_, said := answer(t, "", 1, args(append(at, "--timeout", "3s"), command...)...)
		require.Contains(t, said, "no quorum", "%v", command)
	}
	front, found := serves(t, []string{"serve", "--cluster", at[1], "--listen", "127.0.0.1:0", "--until-eof"}, `address=(http://\S+)`)
	status, text := page(t, found[0]+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "no quorum")
	require.NoError(t, front.in.Close())
	require.Zero(t, front.wait())
}
