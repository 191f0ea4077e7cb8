package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/wire"
)

// attributes of a span about a replica or about shards of a collection.
func (n *Node) attributes(collection string, generation uint64, shards ...int) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.String("plaid.node", n.c.Name), attribute.String("plaid.collection", collection),
		attribute.Int64("plaid.generation", int64(generation)), attribute.IntSlice("plaid.shards", shards))
}

// heard starts the span of a message, a part of the trace of whoever has sent it.
func (n *Node) heard(ctx context.Context, msg *nats.Msg, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	return n.tracer.Start(bus.TraceOf(ctx, msg), name, append(o, trace.WithSpanKind(trace.SpanKindServer))...)
}

// ended ends a span with what became of its work.
func ended(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// answered ends the span of a query, and notes the query in the log, where all is logged.
func (n *Node) answered(j *job, a *wire.Answer) {
	j.span.SetAttributes(attribute.String("plaid.status", a.Status.String()), attribute.Int64("plaid.queue_us", a.Queued.Microseconds()),
		attribute.Int("plaid.waiting", a.Waiting), attribute.Int("plaid.k", j.q.K), attribute.Int("plaid.hits", len(a.Hits)),
		attribute.Int64("plaid.exact_docs", a.Stats.ExactDocs))
	if a.Status == wire.Failed {
		j.span.SetStatus(codes.Error, a.Text)
	}
	j.span.End()
	if !n.log.Enabled(j.ctx, slog.LevelDebug) {
		return
	}
	shards := make([]int, len(j.q.Shards))
	for i, s := range j.q.Shards {
		shards[i] = s.Shard
	}
	attrs := []slog.Attr{
		slog.String("collection", j.q.Collection), slog.Uint64("generation", j.q.Generation), slog.Any("shards", shards), slog.String("status", a.Status.String()),
		slog.Duration("queued", a.Queued), slog.Duration("took", time.Since(j.came)), slog.Int("hits", len(a.Hits)),
	}
	if s := j.span.SpanContext(); s.IsValid() {
		attrs = append(attrs, slog.String("trace_id", s.TraceID().String()))
	}
	n.log.LogAttrs(j.ctx, slog.LevelDebug, "a query", attrs...)
}
