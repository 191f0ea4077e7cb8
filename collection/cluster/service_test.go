package cluster_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/server"
)

const clients = "../../server/testdata/clients"

// The clients that exist use a cluster of three as they use a folder of indexes, in the same test:
// next-plaid-client (both classes and the command line), langchain-plaid, those of OpenAI and
// Cohere. Collections are of one shard, so that documents have the numbers of a file.
func TestRealClients(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs Python packages")
	}
	python := pyenv.Python(t, clients+"/requirements.txt")
	args := []string{clients + "/clients.py", "--tmp", t.TempDir(), "--keywords"}
	for name, o := range map[string]*server.Options{
		"plain": {}, "texts": {}, "damaged": {}, "loading": {EncoderLater: true},
		"limited": {Limits: server.Limits{Rate: .001, Burst: 5}},
		"tokens":  {Tokens: server.Tokens{server.NewToken("reader", server.Read, "read-read-read-read")}},
	} {
		c := three(t, 1, 3)
		if name == "damaged" {
			name := fmt.Sprintf("maps/damaged/%016x", 1)
			_, err := c.Store.Put(t.Context(), name, strings.NewReader(`{"format":1}`), 12)
			require.NoError(t, err)
			c.Stop("n0")
			c.Start("n0")
		}
		var e server.Encoder
		if name == "texts" {
			e = words{}
		}
		args = append(args, "--"+name, serve(t, c.Node("n0"), e, o).url)
	}
	env := []string{"PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "LANGSMITH_TRACING=false"}
	out, err := pyenv.Run(env, python, args...)
	require.NoError(t, err, out)
	t.Log(out)
}

// Every route that the service describes works over a cluster, with the body that the description
// has for an example: none is not supported.
func TestEveryRouteIsSupported(t *testing.T) {
	if !effort.Long() {
		t.Skip("trains many collections")
	}
	f := serve(t, three(t, 2, 2).Node("n1"), words{}, &server.Options{})
	const asJSON = "application/json"
	// Routes for texts need a collection of the encoder's vectors; other examples have two components.
	for name, update := range map[string][2]string{
		"pets": {"update",
			`{"documents": [{"embeddings": [[1, 0], [0, 1]]}, {"embeddings": [[0, 1]]}],
				"metadata": [{"_id": "a", "year": 2021, "lang": "en"}, {"_id": "b", "year": 2019}]}`},
		"texts": {"update_with_encoding",
			`{"documents": ["Cats sleep for most of the day.", "Dogs bark."],
				"metadata": [{"year": 2021}, {"year": 2019}], "text_field": "text"}`},
	} {
		f.do(200, "POST", "/indices", object{"name": name}, nil)
		status, text := f.ask("POST", "/indices/"+name+"/"+update[0]+"?wait=true", asJSON, []byte(update[1]))
		require.Less(t, status, 300, "%s", text)
	}
	packed := &bytes.Buffer{}
	w := tar.NewWriter(packed)
	require.NoError(t, w.AddFS(os.DirFS("../../index/interop/testdata/real/fast-plaid")))
	require.NoError(t, w.Close())
	_, backup := f.ask("GET", "/indices/pets/backup", "", nil)
	var description struct {
		Paths map[string]map[string]struct {
			ID   string `json:"operationId"`
			Body struct {
				Content map[string]struct {
					Example json.RawMessage `json:"example"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
	}
	f.do(200, "GET", "/openapi.json", nil, &description)
	type route struct{ method, path, id, kind, index, query, body string }
	var routes []route
	for path, methods := range description.Paths {
		for method, op := range methods {
			r := route{method: strings.ToUpper(method), path: path, id: op.ID, index: "pets"}
			if content, there := op.Body.Content[asJSON]; there {
				r.kind, r.body = asJSON, string(content.Example)
			}
			if strings.HasSuffix(path, "_with_encoding") {
				r.index = "texts"
			}
			switch r.id {
			case "update_index", "add_documents", "update_index_with_encoding":
				r.query = "?wait=true"
			case "get_image":
				r.query = "?id=a"
			case "get_documents":
				r.query = "?id=a&vectors=json"
			case "upload_backup":
				r.kind, r.body, r.index = "application/octet-stream", string(backup), "restored"
			case "import_index":
				r.kind, r.body, r.index = "application/x-tar", packed.String(), "imported"
			}
			routes = append(routes, r)
		}
	}
	require.Greater(t, len(routes), 40)
	last := func(r route) int { // what deletes comes after what reads
		return slices.Index([]string{"GET", "POST", "PUT", "DELETE"}, r.method)
	}
	slices.SortFunc(routes, func(a, b route) int {
		return cmp.Or(cmp.Compare(last(a), last(b)),
			cmp.Compare(strings.Count(b.path, "/"), strings.Count(a.path, "/")), cmp.Compare(a.id, b.id))
	})
	for _, r := range routes {
		status, text := f.ask(r.method, strings.ReplaceAll(r.path, "{name}", r.index)+r.query, r.kind, []byte(r.body))
		if r.id == "get_image" { // a folder of pictures is a setting, and none is given
			require.Contains(t, string(text), server.CodeImageNotFound)
			continue
		}
		if r.id == "compact_index" { // the nodes compact by themselves
			require.Contains(t, string(text), server.CodeNotSupported)
			continue
		}
		require.Less(t, status, 400, "%s %s: %s", r.method, r.path, text)
	}
}

// A document number is that of one document: deleting it does not delete the one that takes its
// place meanwhile, whichever node is asked.
func TestDeleteBesideReplace(t *testing.T) {
	t.Parallel()
	c := three(t, 2, 2)
	wiki := c.Node("n0").MustCreate(t, "wiki", collection.Config{})
	number := update(t, wiki, document("x", "a b", "")).Numbers[0]
	other := c.Get(c.Node("n2"), "wiki")
	for range effort.Cases(10, 100) {
		var next uint64
		var wg sync.WaitGroup
		wg.Go(func() { next = update(t, wiki, document("x", "a b", "")).Numbers[0] })
		n, err := other.Delete(t.Context(), collection.Selection{Numbers: []uint64{number}})
		wg.Wait()
		require.NoError(t, err)
		require.LessOrEqual(t, n.Documents, 1)
		require.Equal(t, []string{"x"}, ids(t, wiki), "the document that took its place is gone")
		number = next
	}
}

// A backup that is made while documents come, change and go is one index file. It has what
// was acknowledged before it began and nothing that was never written, it makes an index of a
// folder and one of a cluster with other shards, and these answer alike.
func TestBackupWhileWritten(t *testing.T) {
	t.Parallel()
	c, wide := three(t, 3, 2), clustertest.New(t, clustertest.Options{Nodes: 1, Change: shards(5, 1)})
	f, other, plain := serve(t, c.Node("n1"), nil, nil), serve(t, wide.Node("n0"), nil, nil), folder(t)
	const path = "/indices/wiki"
	f.do(200, "POST", "/indices", object{"name": "wiki"}, nil)
	f.do(404, "GET", path+"/backup", nil, nil)
	put := func(id string, version int) {
		text := fmt.Sprint("t", version%64)
		f.do(200, "POST", path+"/update", object{"documents": list{object{"embeddings": rows(text)}},
			"metadata": list{object{"_id": id, "v": version}}}, nil)
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
				f.do(200, "DELETE", path+"/documents", object{"ids": list{fmt.Sprint("passing", w)}}, nil)
			}
		})
	}
	contents := func(f *front, name string) map[string]object {
		var got struct{ Metadata []object }
		f.do(200, "GET", "/indices/"+name+"/metadata", nil, &got)
		all := map[string]object{}
		for _, m := range got.Metadata {
			delete(m, "_subset_")
			all[m["_id"].(string)] = m
		}
		return all
	}
	for i := range 3 {
		var before [8]int64
		for d := range before {
			before[d] = acknowledged[d].Load()
		}
		status, file := f.ask("GET", path+"/backup", "", nil)
		require.Equal(t, 200, status, "%.200s", file)
		name := fmt.Sprint("copy", i)
		for _, to := range []*front{plain, other} {
			status, text := to.ask("PUT", "/indices/"+name+"/backup", "application/octet-stream", file)
			require.Equal(t, 200, status, "%s", text)
		}
		got := contents(plain, name)
		require.Equal(t, got, contents(other, name))
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
		status, text := other.ask("PUT", "/indices/bad/backup", "application/octet-stream", file[:len(file)/2])
		require.Equal(t, 400, status, "%s", text)
		other.do(404, "GET", "/indices/bad/stats", nil, nil)
	}
	close(ended)
	wg.Wait()
	body := object{"queries": list{object{"embeddings": rows("t3 t9")}}, "params": object{"top_k": 16},
		"metadata": false}
	var answers [2]object
	plain.do(200, "POST", "/indices/copy2/search", body, &answers[0])
	other.do(200, "POST", "/indices/copy2/search", body, &answers[1])
	same(t, answers, body)
	other.do(200, "POST", "/indices/copy2/verify", nil, nil)
	// it grows on
	other.do(200, "POST", "/indices/copy2/update", object{"documents": list{object{"embeddings": rows("more")}}}, nil)
}

// A collection grows from one document through all stages while it is written to and a node is
// away, is trained again when somebody wants that, and keeps its documents, their numbers and
// their metadata.
func TestGrowth(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, clustertest.Options{Change: shards(3, 2, small)})
	grown := c.Node("n0").MustCreate(t, "grown", collection.Config{Nbits: 2})
	numbers := map[string]uint64{}
	n := 0
	add := func(most int) {
		for end := n + most; n < end; n++ {
			id := fmt.Sprint("d", n)
			numbers[id] = update(t, grown,
				document(id, fmt.Sprintf("a%d b%d c%d d%d", n%7, n%5, n%11, n), fmt.Sprintf(`{"n":%d}`, n))).Numbers[0]
		}
	}
	stage := func() collection.Stage {
		st, err := grown.Stats(t.Context())
		require.NoError(t, err)
		require.Empty(t, st.Growth.Failed)
		return st.Growth.Stage
	}
	add(1)
	require.Equal(t, collection.StageFlat, stage())
	c.Kill("n2") // the others do not wait for it
	add(14)
	gone, err := grown.Delete(t.Context(), collection.Selection{IDs: []string{"d3"}})
	require.NoError(t, err)
	require.Equal(t, 1, gone.Documents)
	delete(numbers, "d3")
	c.Await(func() bool { return stage() == collection.StageGrowing })
	add(45) // while trainings run
	c.Await(func() bool { return stage() == collection.StageFinal })
	before, err := grown.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, before.Nbits)
	c.Start("n2")
	done := make(chan error, 1) // changes go on while it is trained again
	go func() {
		_, err := grown.(collection.Retrainer).Retrain(t.Context())
		done <- err
	}()
	add(20)
	require.NoError(t, <-done)
	after, err := grown.Stats(t.Context())
	require.NoError(t, err)
	require.Greater(t, after.Generation, before.Generation)
	require.Equal(t, collection.StageFinal, after.Growth.Stage)
	c.Await(func() bool { return len(c.Node("n0").Status(t.Context()).Faults) == 0 })
	for _, name := range []string{"n0", "n2"} {
		ix := c.Get(c.Node(name), "grown")
		require.NoError(t, ix.(collection.Verifier).Verify(t.Context()))
		c.Await(func() bool { return len(ids(t, ix)) == len(numbers) })
		v, err := ix.Snapshot(t.Context())
		require.NoError(t, err)
		for d, err := range v.Documents(t.Context(), collection.Selection{}, collection.ReadOptions{Metadata: true}) {
			require.NoError(t, err)
			require.Equal(t, numbers[d.ID], d.Number, "the number of %s stays", d.ID)
			require.JSONEq(t, fmt.Sprintf(`{"n":%s}`, d.ID[1:]), string(d.Metadata))
		}
		require.NoError(t, v.Close())
	}
}
