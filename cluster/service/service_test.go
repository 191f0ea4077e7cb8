package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/service"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

const dim = 16

type (
	object = map[string]any
	list   = []any
)

// front is a service over a cluster.
type front struct {
	t   testing.TB
	url string
	of  *service.Front
}

// serve starts one.
func serve(t testing.TB, c *clustertest.Cluster, cfg client.Config) *front {
	t.Helper()
	return serveAs(t, c, service.Config{Client: cfg})
}

func serveAs(t testing.TB, c *clustertest.Cluster, cfg service.Config) *front {
	t.Helper()
	cfg.Place = "a test"
	if cfg.Client.Deadline == 0 {
		cfg.Client.Deadline = clustertest.Patience
	}
	if cfg.Client.WriteDeadline == 0 {
		cfg.Client.WriteDeadline = clustertest.Patience
	}
	of, err := service.New(c.Ctx, c.Connect("front"), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, of.Close()) })
	f := serveOver(t, of)
	f.of = of
	return f
}

// serveOver starts a service over whichever indexes.
func serveOver(t testing.TB, indexes collection.Set) *front {
	t.Helper()
	return serveWith(t, indexes, nil)
}

func serveWith(t testing.TB, indexes collection.Set, o *server.Options) *front {
	t.Helper()
	s, err := server.New(indexes, nil, o)
	require.NoError(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &front{t: t, url: h.URL}
}

// do sends a request that must be answered with a status, and reads the answer into v,
// unless that is nil.
func (f *front) do(status int, method, path string, body, v any) {
	f.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(f.t, err)
	if body == nil {
		text = nil
	}
	r, err := http.NewRequest(method, f.url+path, bytes.NewReader(text))
	require.NoError(f.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "return=representation")
	a, err := http.DefaultClient.Do(r)
	require.NoError(f.t, err)
	defer a.Body.Close()
	text, err = io.ReadAll(a.Body)
	require.NoError(f.t, err)
	require.Equal(f.t, status, a.StatusCode, "%s %s: %s", method, path, text)
	if v != nil {
		require.NoError(f.t, json.Unmarshal(text, v), string(text))
	}
}

func (f *front) refused(code server.Code, status int, method, path string, body any) string {
	f.t.Helper()
	var p server.Problem
	f.do(status, method, path, body, &p)
	require.Equal(f.t, code, p.Code, p.Message)
	return p.Message
}

func rows(d vectors.Document) [][]float32 {
	var rows [][]float32
	for t := range slices.Chunk(d.Tokens, dim) {
		rows = append(rows, t)
	}
	return rows
}

// searched are the documents and the metadata that a search finds.
type searched struct {
	Results []struct {
		Documents []uint64         `json:"document_ids"`
		Scores    []float64        `json:"scores"`
		Metadata  []object         `json:"metadata"`
		IDs       []string         `json:"ids"`
		Stats     object           `json:"stats"`
		Coverage  *json.RawMessage `json:"coverage"`
	} `json:"results"`
}

// Every route does with the shards of a cluster what it does with a file, or says that it
// does not.
func TestRoutes(t *testing.T) {
	c := clustertest.New(t, 3)
	maker := searchtest.New(1, dim, 12)
	docs := maker.Docs("d", 60, 6)
	for i := range docs {
		docs[i].Tokens, docs[i].Payload = maker.Tokens(1+i%6), fmt.Appendf(nil, `{"n":%d}`, i)
	}
	c.Collection("wiki", operate.CreateOptions{Shards: 3, Replicas: 2}, dim, docs)
	_, err := c.Op.Create(c.Ctx, "later", operate.CreateOptions{})
	require.NoError(t, err)
	f := serve(t, c, client.Config{})
	const at = "/indices/wiki"

	var names []string
	f.do(200, "GET", "/indices", nil, &names)
	require.Equal(t, []string{"later", "wiki"}, names)
	var info struct {
		Documents  int `json:"num_documents"`
		Embeddings int `json:"num_embeddings"`
		Partitions int `json:"num_partitions"`
		Metadata   int `json:"metadata_count"`
	}
	f.do(200, "GET", at, nil, &info)
	tokens := 0
	for _, d := range docs {
		tokens += len(d.Tokens) / dim
	}
	require.Equal(t, []int{60, tokens, 16, 60}, []int{info.Documents, info.Embeddings, info.Partitions, info.Metadata})
	f.refused(server.CodeIndexNotFound, 404, "GET", "/indices/later", nil)
	f.refused(server.CodeIndexNotFound, 404, "GET", "/indices/nothing", nil)
	f.refused(server.CodeNotSupported, 400, "POST", "/indices/later/update", object{"documents": list{object{"embeddings": rows(docs[0])}}})

	// A document of a field that no other has; its shard is one of three.
	var r struct {
		Documents []uint64 `json:"document_ids"`
		IDs       []string `json:"ids"`
		Count     int      `json:"count"`
		Message   string   `json:"message"`
		Deleted   int      `json:"deleted"`
		Updated   int      `json:"updated"`
	}
	more := maker.Docs("e", 20, 6)
	var bodies, metadata list
	for i := range more {
		more[i].Tokens = maker.Tokens(3 + i%4)
		d := more[i]
		bodies = append(bodies, object{"embeddings": rows(d)})
		m := object{"_id": d.ID, "n": 100 + i}
		if i == 0 {
			m["only"] = "here"
		}
		metadata = append(metadata, m)
	}
	f.do(200, "POST", at+"/update", object{"documents": bodies, "metadata": metadata}, &r)
	require.Len(t, r.Documents, 20)
	ids := slices.Clone(r.Documents) // reading another answer writes over it
	shards := map[uint64]bool{}
	for _, d := range ids {
		shards[d>>32] = true
	}
	require.Len(t, shards, 3, "documents go to all shards")
	var unnamed = r
	f.do(200, "POST", at+"/update", object{"documents": bodies[:2]}, &unnamed)
	require.Len(t, unnamed.IDs, 2)
	require.Len(t, unnamed.IDs[0], 32)

	// What was written is found, where it is said to be.
	var s searched
	f.do(200, "POST", at+"/search", object{"queries": list{bodies[3]}, "params": object{"top_k": 5, "mode": "exhaustive"}, "stats": true}, &s)
	require.Equal(t, ids[3], s.Results[0].Documents[0])
	require.EqualValues(t, 103, s.Results[0].Metadata[0]["n"])
	require.EqualValues(t, ids[3], s.Results[0].Metadata[0]["_subset_"])
	require.Nil(t, s.Results[0].Coverage)
	require.Len(t, s.Results[0].Documents, 5)
	s = searched{}
	f.do(200, "POST", at+"/search", object{"queries": list{bodies[3]}, "params": object{"top_k": 1000, "mode": "exhaustive"}, "metadata": false}, &s)
	require.Len(t, s.Results[0].IDs, 82)
	f.refused(server.CodeBadRequest, 400, "POST", at+"/search", object{"queries": list{bodies[3]}, "params": object{"top_k": 0}})
	f.refused(server.CodeDimension, 400, "POST", at+"/search", object{"queries": list{object{"embeddings": [][]float32{{1, 2}}}}})

	find := func(body object) (found []uint64) {
		t.Helper()
		body["params"] = object{"top_k": 100}
		if body["queries"] == nil {
			body["queries"] = list{bodies[0]}
		}
		var s searched
		f.do(200, "POST", at+"/search", body, &s)
		found = s.Results[0].Documents
		slices.Sort(found)
		return found
	}
	require.Equal(t, ids[:1], find(object{"filter_condition": "only = ?", "filter_parameters": list{"here"}}), "a field that one shard has is one of all")
	require.Len(t, find(object{"filter_condition": "only IS NULL AND n >= ?", "filter_parameters": list{0}}), 79, "and NULL in the others")
	sorted := slices.Clone(ids[2:6])
	slices.Sort(sorted)
	require.Equal(t, sorted, find(object{"subset": append(list{1 << 40, 7 << 32}, anys(ids[2:6])...)}))
	require.Equal(t, ids[2:3], find(object{"subset": ids[2:6], "filter_condition": "n <= ?", "filter_parameters": list{102}}))
	require.Equal(t, ids[3:4], find(object{"subset": ids[2:6], "ids": list{more[3].ID, more[9].ID, "nothing"}}))
	require.Equal(t, ids[4:5], find(object{"filter_condition": "n > ?", "filter_parameters": list{103},
		"queries": list{object{"embeddings": rows(more[0]), "filter_condition": "n < ?", "filter_parameters": list{105}}}}), "two conditions")
	require.Empty(t, find(object{"subset": list{}}))
	require.Equal(t, ids[5:6], func() []uint64 {
		var s searched
		f.do(200, "POST", at+"/search", object{"queries": list{bodies[0]}, "ids": list{more[5].ID}, "params": object{"mode": "candidates"}}, &s)
		return s.Results[0].Documents
	}())
	f.refused(server.CodeBadRequest, 400, "POST", at+"/search", object{"queries": list{bodies[0]}, "filter_condition": "nowhere = ?", "filter_parameters": list{1}})
	f.refused(server.CodeBadRequest, 400, "POST", at+"/search", object{"queries": list{bodies[0]}, "filter_condition": "_subset_ = ?", "filter_parameters": list{1}})

	// What became of a document is what the search of all shards says.
	s = searched{}
	params := object{"top_k": 20, "mode": "exhaustive"}
	f.do(200, "POST", at+"/search", object{"queries": list{bodies[6]}, "params": params}, &s)
	var x struct {
		search.Explanation
		Document     uint64      `json:"document_id"`
		Similarities [][]float64 `json:"similarities"`
		Metadata     object      `json:"metadata"`
	}
	for i, d := range s.Results[0].Documents {
		f.do(200, "POST", at+"/explain", object{"query": bodies[6], "document_id": d, "params": params, "similarities": true}, &x)
		require.Equal(t, []any{d, search.StageReturned, i + 1}, []any{x.Document, x.Stage, x.Rank})
		require.InDelta(t, s.Results[0].Scores[i], x.Score, 1e-4)
		require.EqualValues(t, d, x.Metadata["_subset_"])
		sum := 0.
		for _, row := range x.Similarities {
			sum += slices.Max(row)
		}
		require.InDelta(t, x.Score, sum, 1e-3)
	}
	f.do(200, "POST", at+"/explain", object{"query": bodies[6], "document_id": s.Results[0].Documents[3], "params": object{"top_k": 2, "mode": "exhaustive"}}, &x)
	require.Equal(t, search.StageOutranked, x.Stage)
	require.InDelta(t, s.Results[0].Scores[1], *x.StageLimit, 1e-4)
	f.do(200, "POST", at+"/explain", object{"query": bodies[6], "id": more[2].ID, "filter_condition": "only = ?", "filter_parameters": list{"here"}}, &x)
	require.Equal(t, search.StageFiltered, x.Stage)
	f.do(200, "POST", at+"/explain", object{"query": bodies[6], "id": more[2].ID, "ids": list{more[3].ID}}, &x)
	require.Equal(t, search.StageFiltered, x.Stage)
	f.refused(server.CodeDocumentNotFound, 404, "POST", at+"/explain", object{"query": bodies[6], "id": "nothing"})
	f.refused(server.CodeDocumentNotFound, 404, "POST", at+"/explain", object{"query": bodies[6], "document_id": 4000000000})
	f.refused(server.CodeBadRequest, 400, "POST", at+"/explain", object{"query": bodies[6], "id": more[2].ID, "filter_condition": "nowhere = ?", "filter_parameters": list{1}})

	// Metadata.
	f.do(200, "POST", at+"/metadata/query", object{"condition": "n BETWEEN ? AND ?", "parameters": list{104, 106}}, &r)
	sorted = slices.Clone(ids[4:7])
	slices.Sort(sorted)
	require.Equal(t, sorted, r.Documents)
	f.refused(server.CodeBadRequest, 400, "POST", at+"/metadata/query", object{"condition": "nowhere IS NULL"})
	var m struct {
		Metadata []object `json:"metadata"`
		Existing []uint64 `json:"existing_ids"`
		Missing  []uint64 `json:"missing_ids"`
		Count    int      `json:"count"`
	}
	f.do(200, "GET", at+"/metadata", nil, &m)
	require.Equal(t, 82, m.Count)
	require.True(t, slices.IsSortedFunc(m.Metadata, func(a, b object) int { return int(a["_subset_"].(float64) - b["_subset_"].(float64)) }))
	f.do(200, "GET", at+"/metadata/count", nil, &m)
	require.Equal(t, 80, m.Count)
	f.do(200, "POST", at+"/metadata/check", object{"document_ids": list{ids[7], 99, 5 << 32}}, &m)
	require.Equal(t, ids[7:8], m.Existing)
	require.Len(t, m.Missing, 2)
	f.do(200, "POST", at+"/metadata/get", object{"document_ids": list{ids[9], 1 << 50, ids[8]}}, &m)
	require.Equal(t, []any{109., 108.}, []any{m.Metadata[0]["n"], m.Metadata[1]["n"]})
	f.do(200, "POST", at+"/metadata/get", object{"condition": "n >= ?", "parameters": list{50}, "limit": 4}, &m)
	require.Len(t, m.Metadata, 4)
	f.do(200, "POST", at+"/metadata/update", object{"condition": "only IS NULL AND n < ?", "parameters": list{5}, "updates": object{"fresh": true, "n": 1000}}, &r)
	require.Equal(t, 5, r.Updated)
	f.do(200, "POST", at+"/metadata/query", object{"condition": "fresh = ?", "parameters": list{true}}, &r)
	require.Equal(t, 5, r.Count)
	f.do(200, "POST", at+"/metadata/update", object{"condition": "fresh = ?", "parameters": list{true}, "updates": object{"FRESH": nil, "other": nil, "later": 1}}, &r)
	require.Equal(t, 5, r.Updated)
	f.do(200, "POST", at+"/metadata/get", object{"condition": "later = ?", "parameters": list{1}}, &m)
	require.Len(t, m.Metadata, 5)
	for _, fields := range m.Metadata {
		require.NotContains(t, fields, "fresh")
		require.NotContains(t, fields, "other")
	}
	f.refused(server.CodeBadRequest, 400, "POST", at+"/metadata/update", object{"condition": "nowhere IS NULL", "updates": object{"a": 1}})

	// Documents.
	var stored struct {
		Documents []struct {
			ID         string      `json:"id"`
			Document   uint64      `json:"document_id"`
			Embeddings [][]float32 `json:"embeddings"`
		} `json:"documents"`
	}
	f.do(200, "GET", fmt.Sprintf("%s/documents?document_id=%d&id=%s&vectors=json", at, ids[11], more[10].ID), nil, &stored)
	require.Equal(t, []string{more[11].ID, more[10].ID}, []string{stored.Documents[0].ID, stored.Documents[1].ID})
	require.Len(t, stored.Documents[0].Embeddings, len(more[11].Tokens)/dim)
	require.Len(t, stored.Documents[0].Embeddings[0], dim)
	f.refused(server.CodeDocumentNotFound, 404, "GET", at+"/documents?id=nothing", nil)
	f.refused(server.CodeDocumentNotFound, 404, "GET", at+"/documents?document_id=4294967295", nil)

	// Deletions.
	f.do(200, "DELETE", at+"/documents", object{"condition": "only IS NULL AND n > ?", "parameters": list{500}}, &r)
	require.Equal(t, 5, r.Deleted)
	f.refused(server.CodeBadRequest, 400, "DELETE", at+"/documents", object{"condition": "nowhere IS NULL"})
	f.do(200, "DELETE", at+"/documents", object{"document_ids": list{ids[12], 1 << 60}}, &r)
	require.Equal(t, 1, r.Deleted)
	f.do(200, "DELETE", at+"/documents", object{"ids": list{more[13].ID, "nothing"}}, &r)
	require.Equal(t, 1, r.Deleted)
	f.do(200, "GET", at, nil, &info)
	require.Equal(t, 75, info.Documents)

	// A bad document, and what a front does not do that is not told of the object store.
	msg := f.refused(server.CodeDimension, 400, "POST", at+"/update", object{"documents": list{bodies[0], object{"embeddings": [][]float32{{1}}}}})
	require.Contains(t, msg, "document 1")
	f.refused(server.CodeBadRequest, 400, "POST", at+"/update", object{"documents": list{bodies[0]}, "metadata": list{object{"_Subset_": 1}}})
	f.refused(server.CodeIndexExists, 409, "POST", "/indices", object{"name": "wiki"})
	msg = f.refused(server.CodeNotSupported, 400, "POST", "/indices", object{"name": "new"})
	require.Contains(t, msg, "plaid cluster create")
	for _, no := range []struct {
		method, path string
		body         any
	}{
		{"DELETE", at, nil},
		{"PUT", at + "/config", object{"max_documents": 5}},
		{"GET", at + "/backup", nil},
		{"POST", at + "/retrain", nil},
		{"POST", at + "/verify", nil},
	} {
		f.refused(server.CodeNotSupported, 400, no.method, no.path, no.body)
	}
	var measured struct {
		Recall float64        `json:"recall"`
		K      int            `json:"k"`
		Lost   map[string]int `json:"lost"`
	}
	f.do(200, "POST", at+"/recall", object{"queries": list{bodies[0], bodies[1]}, "params": object{"top_k": 20, "n_ivf_probe": 1, "n_full_scores": 5}}, &measured)
	require.Equal(t, 20, measured.K)
	lost := 0
	for _, n := range measured.Lost {
		lost += n
	}
	require.InDelta(t, 1-float64(lost)/40, measured.Recall, 1e-9)
	require.Less(t, measured.Recall, 1.)
	var health struct {
		Dir     string   `json:"index_dir"`
		Indices []object `json:"indices"`
	}
	f.do(200, "GET", "/health", nil, &health)
	require.Equal(t, "a test", health.Dir)
	require.Len(t, health.Indices, 1)
	f.do(200, "GET", "/readyz", nil, nil)
	var st object
	f.do(200, "GET", at+"/stats", nil, &st)
	require.EqualValues(t, 75, st["documents"])

	// A generation that waits to be searched takes part in what is changed by a condition.
	_, err = c.Op.Build(c.Ctx, "wiki", searchtest.Source(t, dim, docs), operate.BuildOptions{Train: clustertest.Train, Dir: t.TempDir()})
	require.NoError(t, err)
	f.do(200, "DELETE", at+"/documents", object{"condition": "n < ?", "parameters": list{10}}, &r)
	require.Equal(t, 5, r.Deleted)
	_, err = c.Op.Promote(c.Ctx, "wiki")
	require.NoError(t, err)
	c.Await(func() bool { // the front hears of it
		ix, err := f.of.Get("wiki")
		require.NoError(t, err)
		st, err := ix.Stats(c.Ctx)
		return err == nil && st.Generation == 2
	})
	f.do(200, "GET", at, nil, &info)
	require.Equal(t, 50, info.Documents)
}

func anys(ids []uint64) (all list) {
	for _, id := range ids {
		all = append(all, id)
	}
	return all
}

// A shard that nobody answers for is an error; where partial results are allowed, a search
// says what it lacks, and everything else is refused all the same.
func TestMissingShard(t *testing.T) {
	c := clustertest.New(t, 2)
	maker := searchtest.New(2, dim, 12)
	docs := maker.Docs("d", 40, 4)
	c.Collection("wiki", operate.CreateOptions{Shards: 4}, dim, docs)
	strict := serve(t, c, client.Config{Deadline: 20 * time.Second})
	loose := serve(t, c, client.Config{Deadline: 20 * time.Second, AllowPartial: true})
	query := object{"queries": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}, "params": object{"mode": "exhaustive", "top_k": 40}}
	var all, some searched
	loose.do(200, "POST", "/indices/wiki/search", query, &all)
	require.Nil(t, all.Results[0].Coverage)
	c.Stop("n1")
	msg := strict.refused(server.CodeBusy, 503, "POST", "/indices/wiki/search", query)
	require.Contains(t, msg, "shard")
	loose.do(200, "POST", "/indices/wiki/search", query, &some)
	require.NotNil(t, some.Results[0].Coverage)
	var coverage search.Coverage
	require.NoError(t, json.Unmarshal(*some.Results[0].Coverage, &coverage))
	require.Len(t, coverage.Missing, 2)
	require.Equal(t, int64(40), coverage.Of)
	require.Less(t, coverage.Docs, coverage.Of)
	require.Less(t, len(some.Results[0].Documents), len(all.Results[0].Documents))
	for _, f := range []*front{strict, loose} {
		f.refused(server.CodeBusy, 503, "GET", "/indices/wiki/metadata", nil)
		f.refused(server.CodeBusy, 503, "POST", "/indices/wiki/metadata/check", object{"document_ids": list{0, 1 << 32, 2 << 32, 3 << 32}})
		f.refused(server.CodeBusy, 503, "GET", "/indices/wiki", nil)
		f.refused(server.CodeBusy, 503, "DELETE", "/indices/wiki/documents", object{"condition": "_id = ?", "parameters": list{"d1"}})
	}
	strict.do(200, "GET", "/health", nil, nil)
	// A field that no shard which answers has may be one of a shard that does not.
	query["filter_condition"], query["filter_parameters"] = "lang = ?", list{"en"}
	strict.refused(server.CodeBusy, 503, "POST", "/indices/wiki/search", query)
	some = searched{}
	loose.do(200, "POST", "/indices/wiki/search", query, &some)
	require.NotNil(t, some.Results[0].Coverage)
}

// A change that too few replicas acknowledge in time is of unknown outcome, and says so; it
// is made as soon as they can.
func TestUnacknowledged(t *testing.T) {
	c := clustertest.New(t, 2)
	maker := searchtest.New(5, dim, 12)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2, Acks: 2}, dim, maker.Docs("d", 20, 4))
	hasty, patient := serve(t, c, client.Config{WriteDeadline: time.Second}), serve(t, c, client.Config{})
	c.Stop("n1")
	one := object{"documents": list{object{"embeddings": [][]float32{maker.Tokens(1)}}}, "metadata": list{object{"_id": "new"}}}
	hasty.refused(server.CodeOutcomeUnknown, 500, "POST", "/indices/wiki/update", one)
	c.Start("n1")
	c.Ready("n1")
	patient.do(200, "POST", "/indices/wiki/update", one, nil)
	var r struct {
		Count int `json:"count"`
	}
	patient.do(200, "POST", "/indices/wiki/metadata/query", object{"condition": "_id = ?", "parameters": list{"new"}}, &r)
	require.Equal(t, 1, r.Count)
}
