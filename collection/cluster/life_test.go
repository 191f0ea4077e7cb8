package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage/objects"
)

const testBeat = 100 * time.Millisecond

// testNode starts a node of a store for as long as a test runs.
func testNode(t *testing.T, s objects.Store, name string, change func(*Config)) *Cluster {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	cfg := Config{
		Store: s, Place: "a test", Dir: filepath.Join(t.TempDir(), name), Name: name, Address: "http://" + server.Listener.Addr().String(),
		Beat: testBeat, Index: store.Options{Threads: 1},
	}
	if os.Getenv("PLAID_CLUSTER_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", name)
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	server.Config.Handler = c.Handler()
	server.Start()
	t.Cleanup(func() {
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
		server.CloseClientConnections()
		server.Close()
	})
	return c
}

func testStore(t *testing.T) *objects.Folder {
	t.Helper()
	s, err := objects.OpenFolder(filepath.Join(t.TempDir(), "store"))
	require.NoError(t, err)
	return s
}

// await waits for what must happen.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		require.True(t, time.Now().Before(end), what)
		time.Sleep(20 * time.Millisecond)
	}
}

func living(nodes ...*Cluster) func() bool {
	return func() bool {
		for _, c := range nodes {
			c.mu.Lock()
			n := len(c.nodes)
			c.mu.Unlock()
			if n != len(nodes) {
				return false
			}
		}
		return true
	}
}

// testDocs are documents of two tokens.
func testDocs(from, n, dim int) []collection.Document {
	docs := make([]collection.Document, n)
	for i := range docs {
		rng := rand.New(rand.NewPCG(uint64(from+i), 1))
		docs[i] = collection.Document{ID: fmt.Sprint("d", from+i), Dim: dim, Metadata: []byte(fmt.Sprintf(`{"n":%d}`, from+i))}
		for range 2 * dim {
			docs[i].Vectors = append(docs[i].Vectors, float32(rng.NormFloat64()))
		}
	}
	return docs
}

// found is the document that is most like another one.
func found(t *testing.T, c *Cluster, name string, d collection.Document) string {
	t.Helper()
	of, err := c.Get(name)
	require.NoError(t, err)
	v, err := of.View(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	rs, err := v.Search(t.Context(), []search.Query{{Vectors: d.Vectors, Dim: d.Dim}}, search.Options{K: 1})
	require.NoError(t, err)
	require.Len(t, rs[0].Hits, 1)
	return rs[0].Hits[0].ID
}

// A collection goes through its life on three nodes, of which one ends.
func TestLife(t *testing.T) {
	s := testStore(t)
	grow := func(c *Config) {
		c.Shards, c.Index.Growth = 4, collection.Growth{Flat: 200, Until: 1000, Factor: 2}
	}
	a, b, c := testNode(t, s, "a", grow), testNode(t, s, "b", grow), testNode(t, s, "c", grow)
	await(t, "the nodes know each other", living(a, b, c))
	_, err := a.Declare(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	_, err = b.Declare(t.Context(), "wiki", collection.Config{})
	require.ErrorIs(t, err, collection.ErrExists)
	of, err := b.Get("wiki") // of which it was told, or it asks the store
	require.NoError(t, err)
	_, err = of.View(t.Context())
	require.ErrorIs(t, err, collection.ErrEmpty)

	docs := testDocs(0, 700, 16)
	_, err = of.Update(t.Context(), docs[:50], collection.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "d7", found(t, c, "wiki", docs[7]))
	stage := func() collection.Stage {
		m, err := c.mapOf(t.Context(), "wiki")
		require.NoError(t, err)
		return m.Current.Stage
	}
	require.Equal(t, collection.StageFlat, stage())
	_, err = of.Update(t.Context(), docs[50:300], collection.UpdateOptions{})
	require.NoError(t, err)
	await(t, "the collection is trained", func() bool { return stage() == collection.StagePrecise })
	_, err = of.Update(t.Context(), docs[300:], collection.UpdateOptions{})
	require.NoError(t, err)
	await(t, "the collection is trained for good", func() bool { return stage() == collection.StageFinal })
	require.Equal(t, "d7", found(t, c, "wiki", docs[7]))
	require.Equal(t, "d555", found(t, a, "wiki", docs[555]))
	st, err := of.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 700, st.Documents)
	require.Equal(t, 4, st.Nbits)

	require.NoError(t, c.Close(t.Context()))
	await(t, "others notice that a node has ended", living(a, b))
	require.Equal(t, "d555", found(t, a, "wiki", docs[555]))
	_, err = of.Update(t.Context(), testDocs(1000, 5, 16), collection.UpdateOptions{})
	require.NoError(t, err)

	r, err := of.(collection.Retrainer).Retrain(t.Context())
	require.NoError(t, err)
	require.Equal(t, 705, r.Docs)
	require.Equal(t, "d1002", found(t, a, "wiki", testDocs(1002, 1, 16)[0]))
	require.NoError(t, of.(collection.Verifier).Verify(t.Context()))
	await(t, "all is well", func() bool {
		t.Log(a.Status(t.Context()).Faults)
		return len(a.Status(t.Context()).Faults) == 0
	})

	existed, err := a.Drop(t.Context(), "wiki")
	require.NoError(t, err)
	require.True(t, existed)
	await(t, "another node knows that the collection is gone", func() bool { return len(b.Names()) == 0 })
	_, err = of.Update(t.Context(), docs[:1], collection.UpdateOptions{Replace: true})
	require.ErrorIs(t, err, collection.ErrUnknown)
	_, err = b.Declare(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	_, err = of.Stats(t.Context())
	require.ErrorIs(t, err, collection.ErrUnknown, "it is another collection")
	require.True(t, strings.HasPrefix(a.Place(), "a test"))
}

// A node whose replica has read the log before an entry was put, by a node that did not know it yet, hears of the
// entry when that node gets to know it.
func TestHintsOfNodesThatJoin(t *testing.T) {
	s := testStore(t)
	a := testNode(t, s, "a", func(c *Config) { c.Beat = 2 * time.Second })
	of, err := a.Declare(t.Context(), "wiki", collection.Config{})
	require.NoError(t, err)
	docs := testDocs(0, 2, 4)
	_, err = of.Update(t.Context(), docs[:1], collection.UpdateOptions{})
	require.NoError(t, err)
	b := testNode(t, s, "b", func(c *Config) { c.Beat = time.Hour }) // which a does not know before its next look
	entry := func() uint64 {
		is, err := b.doStatus(t.Context(), &statusAsk{})
		require.NoError(t, err)
		if len(is.Replicas) == 0 || is.Replicas[0].State.Phase != replica.Ready {
			return 0
		}
		return is.Replicas[0].State.Entry
	}
	await(t, "b has read the log", func() bool { b.poke(); return entry() == 1 })
	_, err = of.Update(t.Context(), docs[1:], collection.UpdateOptions{})
	require.NoError(t, err)
	await(t, "b has heard of the second entry", func() bool { return entry() == 2 })
}
