package service_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/service"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/server"
)

// send sends bytes, with a token, and returns the status and the answer.
func (f *front) send(method, path, token string, body []byte) (int, []byte) {
	f.t.Helper()
	r, err := http.NewRequest(method, f.url+path, bytes.NewReader(body))
	require.NoError(f.t, err)
	r.Header.Set("Content-Type", "application/octet-stream")
	if !strings.HasSuffix(path, "/backup") {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := http.DefaultClient.Do(r)
	require.NoError(f.t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(f.t, err)
	return a.StatusCode, text
}

// contents are the documents of an index, by id.
func (f *front) contents(name string) map[string]object {
	f.t.Helper()
	var got struct {
		Metadata []object `json:"metadata"`
	}
	f.do(200, "GET", "/indices/"+name+"/metadata", nil, &got)
	all := map[string]object{}
	for _, m := range got.Metadata {
		delete(m, "_subset_")
		all[m["_id"].(string)] = m
	}
	return all
}

// A backup that is made while documents come, change and go is one index file. It has what
// was acknowledged before it began and nothing that was never written, it makes an index of a
// folder and one of a cluster with other shards, and these answer alike.
func TestBackupWhileWritten(t *testing.T) {
	c := clustertest.New(t, 3)
	f := declaring(t, c, operate.CreateOptions{Shards: 3, Replicas: 2})
	other := serveAs(t, c, service.Config{Store: c.Store, Create: operate.CreateOptions{Shards: 5}, Dir: t.TempDir()})
	folder := folderOf(t, c, store.Options{})
	maker := searchtest.New(8, dim, 12)
	const at = "/indices/wiki"
	f.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	status, _ := f.send("GET", at+"/backup", "", nil)
	require.Equal(t, 404, status)
	var bodies list
	for range 64 {
		bodies = append(bodies, object{"embeddings": [][]float32{maker.Tokens(1)}})
	}
	put := func(id string, version int) {
		f.do(200, "POST", at+"/update", object{"documents": bodies[version%64 : version%64+1], "metadata": list{object{"_id": id, "v": version}}}, nil)
	}
	for i := range 8 {
		put(fmt.Sprint("d", i), 0)
	}
	var acknowledged [8]atomic.Int64 // versions of documents
	var wg sync.WaitGroup
	ended := make(chan struct{})
	for w := range 2 {
		wg.Go(func() {
			for v := 1; ; v++ {
				for i := w; i < 8; i += 2 {
					select {
					case <-ended:
						return
					default:
					}
					put(fmt.Sprint("d", i), v)
					acknowledged[i].Store(int64(v))
				}
				put(fmt.Sprint("passing", w), v)
				f.do(200, "DELETE", at+"/documents", object{"ids": list{fmt.Sprint("passing", w)}}, nil)
			}
		})
	}
	var file []byte
	for i := range 4 {
		var before [8]int64
		for d := range before {
			before[d] = acknowledged[d].Load()
		}
		status, file = f.send("GET", at+"/backup", "", nil)
		require.Equal(t, 200, status, "%.200s", file)
		name := fmt.Sprint("copy", i)
		for _, to := range []*front{folder, other} {
			status, text := to.send("PUT", "/indices/"+name+"/backup", "", file)
			require.Equal(t, 200, status, "%s", text)
		}
		got := folder.contents(name)
		require.Equal(t, got, other.contents(name))
		for d := range before {
			m, there := got[fmt.Sprint("d", d)]
			require.True(t, there)
			require.GreaterOrEqual(t, m["v"], float64(before[d]), "what was acknowledged is in the backup")
			require.LessOrEqual(t, m["v"], float64(acknowledged[d].Load()+1))
			delete(got, fmt.Sprint("d", d))
		}
		delete(got, "passing0")
		delete(got, "passing1")
		require.Empty(t, got)
	}
	close(ended)
	wg.Wait()
	// All documents are asked for: some have the same tokens, and which of them comes first
	// depends on their shards.
	body := object{"queries": list{bodies[3], bodies[9]}, "params": object{"top_k": 16}, "metadata": false}
	var one, two searched
	folder.do(200, "POST", "/indices/copy3/search", body, &one)
	other.do(200, "POST", "/indices/copy3/search", body, &two)
	for q := range one.Results {
		require.Equal(t, one.Results[q].Scores, two.Results[q].Scores)
		require.ElementsMatch(t, one.Results[q].IDs, two.Results[q].IDs)
	}
	_, err := c.Op.Verify(c.Ctx, "copy3")
	require.NoError(t, err)
	other.do(200, "POST", "/indices/copy3/verify", nil, nil)
	other.do(200, "POST", "/indices/copy3/update", object{"documents": bodies[:3]}, nil) // it grows on

	// What is wrong with an upload leaves nothing behind.
	for text, body := range map[string][]byte{"no sound index": file[:len(file)/2], "index": []byte("nonsense"), "": {}} {
		status, answer := other.send("PUT", "/indices/new/backup", "", body)
		require.Equal(t, 400, status, "%s", answer)
		require.Contains(t, string(answer), text)
		other.refused(server.CodeIndexNotFound, 404, "GET", "/indices/new/stats", nil)
	}
	status, answer := other.send("PUT", "/indices/copy3/backup", "", file)
	require.Equal(t, 409, status, "%s", answer)
	status, _ = other.send("PUT", "/indices/Bad/backup", "", file)
	require.Equal(t, 400, status)
	other.do(200, "POST", "/indices", object{"name": "declared", "config": object{"nbits": 2}}, nil)
	status, answer = other.send("PUT", "/indices/declared/backup", "", file)
	require.Equal(t, 200, status, "%s", answer)
	require.Len(t, other.contents("declared"), len(other.contents("copy3"))-3)
}

// Tokens allow things on some collections, and only so many of them, as in a folder.
func TestTokensAndLimits(t *testing.T) {
	c := clustertest.New(t, 2)
	f := declaring(t, c, operate.CreateOptions{Shards: 2})
	maker := searchtest.New(8, dim, 12)
	tokens, err := server.ParseTokens(strings.NewReader(`
admin admin admin-admin-admin-1
team write:team-* team-team-team-team1
tenant admin:tenant-* tenant-tenant-tenant indexes=1
guest read:team-a guest-guest-guest-1
`), "tokens")
	require.NoError(t, err)
	f.url = serveWith(t, f.of, &server.Options{Tokens: tokens}).url
	ask := func(want int, token, method, path, body string) string {
		t.Helper()
		status, text := f.send(method, path, token, []byte(body))
		require.Equal(t, want, status, "%s", text)
		return string(text)
	}
	const admin, team, guest = "admin-admin-admin-1", "team-team-team-team1", "guest-guest-guest-1"
	const tenant = "tenant-tenant-tenant"
	docs := func(n int) string {
		var all []string
		for range n {
			all = append(all, fmt.Sprintf(`{"embeddings":[%s]}`, strings.ReplaceAll(fmt.Sprint(maker.Tokens(1)), " ", ",")))
		}
		return `{"documents":[` + strings.Join(all, ",") + `]}`
	}
	for _, name := range []string{"team-a", "team-b", "own"} {
		ask(403, team, "POST", "/indices", `{"name":"`+name+`"}`)
		ask(200, admin, "POST", "/indices", `{"name":"`+name+`"}`)
	}
	ask(202, team, "POST", "/indices/team-a/update", docs(3))
	ask(202, admin, "POST", "/indices/own/update", docs(5))
	ask(202, team, "POST", "/indices/team-b/update", docs(1))
	ask(200, tenant, "POST", "/indices", `{"name":"tenant-a"}`)
	require.Contains(t, ask(403, tenant, "POST", "/indices", `{"name":"tenant-b"}`), "token tenant")
	ask(403, team, "POST", "/indices/own/update", docs(1))
	require.JSONEq(t, `["team-a"]`, ask(200, guest, "GET", "/indices", ""))
	ask(200, guest, "GET", "/indices/team-a/stats", "")
	require.Contains(t, ask(400, guest, "POST", "/indices/team-a/facets", `{"fields":["nosuch"]}`), `"unknown field nosuch"`)
	ask(403, guest, "GET", "/indices/team-a/backup", "")
	ask(403, guest, "DELETE", "/indices/team-a/documents", `{"ids":["x"]}`)
	ask(401, "nobody-nobody-nobody", "GET", "/indices/team-a/stats", "")
	ask(200, admin, "POST", "/indices/team-a/retrain", "")
	ask(200, admin, "GET", "/indices/team-a/backup", "")
}

// A backup that cannot be made, as a log has lost its end, says why and that it may be later.
func TestNoBackupUntilTheLogIsHealed(t *testing.T) {
	docs := searchtest.New(9, dim, 12).Docs("d", 12, 4)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:10])
	_, err := c.Client(client.Config{Collection: "wiki"}).Add(c.Ctx, searchtest.Source(t, dim, docs[10:]), nil)
	require.NoError(t, err)
	id := c.ID("wiki")
	c.Await(func() bool { rs := c.Op.Watcher().Replicas(id, 1, 0); return len(rs) == 1 && rs[0].Applied == 1 })
	require.NoError(t, c.Bus.JS.DeleteStream(c.Ctx, bus.LogStream(id, 0)))
	require.NoError(t, c.Bus.MakeLog(c.Ctx, id, 0, 0))
	message := declaring(t, c, operate.CreateOptions{}).refused(server.CodeBusy, http.StatusServiceUnavailable, "GET", "/indices/wiki/backup", nil)
	require.Contains(t, message, "it has to be healed first")
}
