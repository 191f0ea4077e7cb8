package client_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

// brittle is a backend that panics over one vector, as a faulty program might.
type brittle struct{ kernels.Backend }

// poison is that vector: its first component alone is not 0.
func poison() []float32 { return append([]float32{1}, make([]float32, dim-1)...) }

func check(x []float32) {
	for ; len(x) >= dim; x = x[dim:] {
		poisoned := x[0] != 0
		for _, v := range x[1:dim] {
			poisoned = poisoned && v == 0
		}
		if poisoned {
			panic("poison")
		}
	}
}

func (brittle) Name() string { return "brittle" }

func (b brittle) Nearest(ctx context.Context, codes []uint32, scores, centroids, x []float32, dim int) error {
	check(x)
	return b.Backend.Nearest(ctx, codes, scores, centroids, x, dim)
}

func (b brittle) Scorer(c *kernels.Codec) (kernels.Scorer, error) {
	s, err := b.Backend.Scorer(c)
	return brittleScorer{s}, err
}

type brittleScorer struct{ kernels.Scorer }

func (s brittleScorer) NewQuery() kernels.Query { return brittleQuery{s.Scorer.NewQuery()} }

type brittleQuery struct{ kernels.Query }

func (q brittleQuery) Reset(vectors, weights []float32) error {
	check(vectors)
	return q.Query.Reset(vectors, weights)
}

func init() {
	whole, err := kernels.Select("generic")
	if err != nil {
		panic(err)
	}
	kernels.Register(brittle{whole}, -1)
}

// An entry of a log, and a query, over which the program panics end no node: searches go
// on, the panics are counted and told, and a program without the fault goes on with the
// entry.
func TestPanicsAreGuarded(t *testing.T) {
	docs, maker := alive(63, 40)
	c := clustertest.New(t, 0)
	broken := func(cfg *node.Config) { cfg.Backend = "brittle" }
	c.Start("n0", broken)
	c.Start("n1", broken)
	c.Await(func() bool { return len(c.Op.Nodes()) == 2 })
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki", WriteDeadline: 3 * time.Second})
	everything := func() *search.Result {
		r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{K: 100, Mode: search.Exhaustive})
		require.NoError(t, err)
		return r
	}
	panics := func() (n uint64) {
		for _, l := range c.Op.Watcher().Leases() {
			n += l.Counts.Panics
		}
		return n
	}

	// A query ends, and nothing else.
	_, err := f.Search(c.Ctx, search.Query{Vectors: poison()}, search.Options{})
	require.ErrorContains(t, err, "the program has failed")
	require.Len(t, everything().Hits, 40)
	c.Await(func() bool { return panics() > 0 })
	before := panics()

	// So does a change: both replicas stand before the entry, and say so.
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, []vectors.Document{{ID: "poison", Tokens: poison()}}), nil)
	require.ErrorIs(t, err, client.ErrUnacknowledged)
	stand := func(state string) bool {
		n := 0
		for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
			if r.State() == state {
				n++
			}
		}
		return n == 2
	}
	c.Await(func() bool { return stand("without_log") && panics() >= before+2 })
	for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
		assert.Contains(t, r.Log, "the program has failed")
	}
	require.Len(t, everything().Hits, 40)
	page := httptest.NewRecorder()
	figures := server.NewRegistry("", "")
	figures.MustRegister(c.Nodes["n0"])
	figures.Page().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	assert.Contains(t, page.Body.String(), `plaid_node_replicas{state="without_log"} 1`)
	assert.Regexp(t, `plaid_node_panics_total [1-9]`, page.Body.String())
	assert.Contains(t, page.Body.String(), `plaid_node_replica_lag_entries{collection="wiki",generation="1",shard="0"} 1`)

	// A program that is mended has the change.
	for _, name := range []string{"n0", "n1"} {
		c.Stop(name)
		c.Start(name)
	}
	c.Await(func() bool { return stand("ready") })
	require.NoError(t, f.Watcher().Wait(c.Ctx, func() bool {
		for _, r := range f.Watcher().Replicas(c.ID("wiki"), 1, 0) {
			if !r.Ready || r.Applied < 1 {
				return false
			}
		}
		return true
	}))
	require.Len(t, everything().Hits, 41)
	_, err = f.Search(c.Ctx, search.Query{Vectors: poison()}, search.Options{})
	require.NoError(t, err)
}

// Entries that come together with one over which the program panics are carried out and
// acknowledged, as far as they are before it.
func TestEntriesBeforePanic(t *testing.T) {
	docs, _ := alive(64, 45)
	c := clustertest.New(t, 0)
	broken := func(cfg *node.Config) { cfg.Backend = "brittle" }
	c.Start("n0", broken)
	c.Await(func() bool { return len(c.Op.Nodes()) == 1 })
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:40])
	sub, err := c.Connect("asker").SubscribeSync("answers")
	require.NoError(t, err)
	c.Stop("n0")
	poisoned := vectors.Document{ID: "poison", Tokens: poison()}
	for _, d := range []vectors.Document{docs[40], docs[41], poisoned, docs[42]} {
		put(t, c, "answers", &wire.Batch{Op: wire.Add, Dim: dim, Documents: []vectors.Document{d}})
	}
	c.Start("n0", broken)
	for i := range 2 {
		msg, err := sub.NextMsgWithContext(c.Ctx)
		require.NoError(t, err)
		var ack node.Ack
		require.NoError(t, json.Unmarshal(msg.Data, &ack))
		assert.EqualValues(t, i+1, ack.Sequence)
		assert.Equal(t, 1, ack.Added)
		assert.Empty(t, ack.Refused)
	}
	c.Await(func() bool {
		for _, r := range c.Op.Watcher().Replicas(c.ID("wiki"), 1, 0) {
			if r.Applied == 2 && r.Documents == 42 && r.State() == "without_log" {
				return true
			}
		}
		return false
	})
}
