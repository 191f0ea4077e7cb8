package client_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
)

// lines is a buffer that several goroutines write to.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// What a front asks of nodes is a part of the front's trace, on the nodes too, and their logs
// name it; what nodes do by themselves has spans of its own.
func TestTraces(t *testing.T) {
	docs, maker := documents(92, 60)
	seen := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(seen))
	var log lines
	c := clustertest.New(t, 0)
	for _, name := range []string{"n0", "n1"} {
		c.Start(name, func(cfg *node.Config) {
			cfg.Tracing, cfg.Logger = provider, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
	}
	c.Await(func() bool { return len(c.Op.Nodes()) == 2 })
	c.Collection("wiki", operate.CreateOptions{Shards: 2}, dim, docs[:40])
	f := c.Client(client.Config{Collection: "wiki"})
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[40:]), nil)
	require.NoError(t, err)
	_, err = c.Op.Verify(c.Ctx, "wiki")
	require.NoError(t, err)
	_, err = f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(3)}, search.Options{})
	require.NoError(t, err) // that of nobody's trace

	ctx, root := provider.Tracer("test").Start(c.Ctx, "request")
	_, err = f.Search(ctx, search.Query{Vectors: maker.Tokens(3)}, search.Options{K: 5})
	require.NoError(t, err)
	for _, err := range f.Documents(ctx, collection.Selection{IDs: []string{docs[0].ID}}, collection.ReadOptions{}) {
		require.NoError(t, err)
	}
	root.End()
	trace := root.SpanContext().TraceID()
	named := func(name string) (all []tracetest.SpanStub) {
		for _, s := range seen.GetSpans() {
			if s.Name == name && s.SpanContext.TraceID() == trace {
				all = append(all, s)
			}
		}
		return all
	}
	require.Eventually(t, func() bool { return len(named("query")) == 2 && len(named("documents")) == 1 }, clustertest.Patience, 1e6)
	asks := named("ask")
	require.Len(t, asks, 2)
	var on []string
	for _, q := range named("query") {
		require.True(t, slices.ContainsFunc(asks, func(a tracetest.SpanStub) bool { return a.SpanContext.SpanID() == q.Parent.SpanID() }))
		require.True(t, slices.ContainsFunc(named("search"), func(s tracetest.SpanStub) bool { return s.Parent.SpanID() == q.SpanContext.SpanID() }))
		require.Contains(t, q.Attributes, attribute.String("plaid.status", "ok"))
		require.Contains(t, q.Attributes, attribute.String("plaid.collection", c.ID("wiki")))
		for _, a := range q.Attributes {
			if a.Key == "plaid.node" {
				on = append(on, a.Value.AsString())
			}
		}
	}
	assert.ElementsMatch(t, []string{"n0", "n1"}, on)
	for _, name := range []string{"apply", "build", "fetch", "order verify"} {
		require.True(t, slices.ContainsFunc(seen.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name == name }), name)
	}
	told := 0
	for line := range strings.Lines(log.String()) {
		var entry struct {
			Msg     string `json:"msg"`
			Node    string `json:"node"`
			Status  string `json:"status"`
			TraceID string `json:"trace_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		if entry.Msg == "a query" && entry.TraceID == trace.String() {
			require.Equal(t, "ok", entry.Status)
			told++
		}
	}
	assert.Equal(t, 2, told)
}
