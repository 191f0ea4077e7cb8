package bus

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// propagator writes and reads whose part a message is (W3C Trace Context). Programs that do not
// know it pass over the headers.
var propagator = propagation.TraceContext{}

// Request asks a subject, and says which trace it is a part of, if it is one.
func Request(ctx context.Context, conn *nats.Conn, subject string, data []byte) (*nats.Msg, error) {
	msg := &nats.Msg{Subject: subject, Data: data}
	if trace.SpanContextFromContext(ctx).IsValid() {
		msg.Header = nats.Header{}
		propagator.Inject(ctx, propagation.HeaderCarrier(msg.Header))
	}
	return conn.RequestMsgWithContext(ctx, msg)
}

// TraceOf is a context with the trace that a message is a part of.
func TraceOf(ctx context.Context, msg *nats.Msg) context.Context {
	return propagator.Extract(ctx, propagation.HeaderCarrier(msg.Header))
}

// StartSpan starts a span of the trace of a context, if it has one: with whatever records that.
func StartSpan(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	return trace.SpanFromContext(ctx).TracerProvider().Tracer(Scope).Start(ctx, name, o...)
}

// Scope names the spans of this module.
const Scope = "github.com/plaid-ir/plaid/cluster"
