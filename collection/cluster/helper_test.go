package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage/objects"
)

var errLost = errors.New("the connection broke")

// collect collects the garbage of the collection of the test.
func collect(t *testing.T, s *memory.Store) {
	t.Helper()
	require.NoError(t, (&collector{s, time.Hour, s.Now()}).collect(t.Context(), "wiki"))
}

// testMap puts the first version of a map.
func testMap(t *testing.T, s objects.Store, name string, change func(*Map)) *Map {
	t.Helper()
	cfg, err := collection.Config{}.Completed()
	require.NoError(t, err)
	m := &Map{Name: name, ID: name + ".0123456789abcdef", Version: 1, Config: cfg, Shards: 2, Replicas: 2}
	if change != nil {
		change(m)
	}
	require.NoError(t, putMap(t.Context(), s, m))
	return m
}

const testBeat = 100 * time.Millisecond

// testNode starts a node of a store for as long as a test runs.
func testNode(t testing.TB, s objects.Store, name string, change func(*Config)) *Cluster {
	t.Helper()
	return testNodeBehind(t, s, name, http.Handler.ServeHTTP, change)
}

// testNodeBehind is testNode with a function between the network and the handler of the node.
func testNodeBehind(t testing.TB, s objects.Store, name string,
	serve func(http.Handler, http.ResponseWriter, *http.Request), change func(*Config)) *Cluster {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	cfg := Config{
		Store: s, StoreAddress: "a test", Dir: filepath.Join(t.TempDir(), name), Name: name,
		Address: "http://" + server.Listener.Addr().String(), Beat: testBeat, Deadline: 20 * time.Second,
		Index: store.Options{Threads: 1, Derive: store.DeriveKeywords(nil)},
	}
	if os.Getenv("PLAID_CLUSTER_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", name)
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(c.Handler(), w, r) })
	server.Start()
	t.Cleanup(func() {
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
		server.CloseClientConnections()
		server.Close()
	})
	return c
}

// startNodes starts nodes n0, n1 … that know each other, for collections of some shards.
func startNodes(t testing.TB, nodes, shards int, change func(*Config)) []*Cluster {
	t.Helper()
	return nodesOver(t, memory.New(), nodes, func(c *Config) {
		if c.Shards = shards; change != nil {
			change(c)
		}
	})
}

func nodesOver(t testing.TB, s objects.Store, nodes int, change func(*Config)) (all []*Cluster) {
	t.Helper()
	for i := range nodes {
		all = append(all, testNode(t, s, fmt.Sprint("n", i), change))
	}
	await(t, "the nodes know each other", func() bool {
		return !slices.ContainsFunc(all, func(c *Cluster) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.nodes) != nodes
		})
	})
	return all
}

// declared declares a collection, and adds documents.
func declared(t *testing.T, c *Cluster, docs ...collection.DocumentInput) collection.Collection {
	t.Helper()
	wiki, err := c.Create(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	if len(docs) > 0 {
		add(t, wiki, docs)
	}
	return wiki
}

func add(t *testing.T, c collection.Collection, docs []collection.DocumentInput) {
	t.Helper()
	_, err := c.Update(t.Context(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
}

func numbersOf(t *testing.T, c collection.Collection) collection.Stats {
	t.Helper()
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	return st
}

func changeMap(t *testing.T, s objects.Store, change func(*Map)) {
	t.Helper()
	_, err := updateMap(t.Context(), s, "wiki", func(m *Map) error { change(m); return nil })
	require.NoError(t, err)
}

// inStore is the newest map of the collection.
func inStore(t *testing.T, s objects.Store) *Map {
	t.Helper()
	m, err := existingMap(t.Context(), s, "wiki")
	require.NoError(t, err)
	return m
}

// await waits until a condition holds, for a minute at most.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		require.True(t, time.Now().Before(end), what)
		time.Sleep(20 * time.Millisecond)
	}
}

// testDocs are documents of two tokens.
func testDocs(from, n, dim int) []collection.DocumentInput {
	docs := make([]collection.DocumentInput, n)
	for i := range docs {
		rng := rand.New(rand.NewPCG(uint64(from+i), 1))
		docs[i] = collection.DocumentInput{ID: fmt.Sprint("d", from+i), Dim: dim,
			Metadata: []byte(fmt.Sprintf(`{"n":%d}`, from+i))}
		for range 2 * dim {
			docs[i].Vectors = append(docs[i].Vectors, float32(rng.NormFloat64()))
		}
	}
	return docs
}

// found is the document that is most like another one.
func found(t *testing.T, c *Cluster, name string, d collection.DocumentInput) string {
	t.Helper()
	wiki, err := c.Get(name)
	require.NoError(t, err)
	v, err := wiki.Snapshot(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	rs, err := v.Search(t.Context(), []search.Query{{Vectors: d.Vectors, Dim: d.Dim}}, search.Options{K: 1})
	require.NoError(t, err)
	require.Len(t, rs[0].Hits, 1)
	return rs[0].Hits[0].ID
}

// begunBuild is a bulk build of a collection that has begun.
func begunBuild(t *testing.T, c *Cluster, name string) *bulkBuild {
	t.Helper()
	m, err := newestMap(t.Context(), c.cfg.Store, name)
	require.NoError(t, err)
	b := &bulkBuild{store: c.cfg.Store, id: m.ID, growth: c.cfg.Index.Growth, log: c.log}
	require.NoError(t, b.reserveGeneration(t.Context()))
	return b
}

// finishBuild ends a bulk build with documents.
func finishBuild(t *testing.T, b *bulkBuild, docs []collection.DocumentInput) (m *Map, err error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "whole.plaid")
	_, err = index.Build(t.Context(), path, sourceOf(t, docs), &index.BuildOptions{Nbits: 4})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, ix.Close()) }()
	return b.publishIndex(t.Context(), ix, dir)
}
