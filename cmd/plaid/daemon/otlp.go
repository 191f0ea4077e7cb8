package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otlpProtocol is the one protocol that spans are sent by.
const otlpProtocol = "http/protobuf"

// OpenTracing makes the tracing that the environment asks for by the variables of
// OpenTelemetry; nil means that it asks for none. The attributes in more tell one of several
// processes from the others. The caller shuts the tracing down.
func OpenTracing(getenv func(string) string, version string, more ...attribute.KeyValue) (*sdktrace.TracerProvider, error) {
	ctx := context.Background() // nothing waits here
	if getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, nil
	}
	client, err := newOTLPClient(getenv)
	if client == nil || err != nil {
		return nil, err
	}
	more = append(more, attribute.String("service.name", "plaid"), attribute.String("service.version", version))
	about, err := resource.New(ctx, resource.WithAttributes(more...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrConfig, err)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// otlpClient posts spans to a collector as protobuf. The SDK's own client over HTTP, package
// otlptracehttp, links gRPC into the program.
type otlpClient struct {
	url     string
	headers http.Header
	http    http.Client
}

// newOTLPClient reads the variables that the OTLP exporter specification names; without an
// endpoint it returns nil.
func newOTLPClient(getenv func(string) string) (*otlpClient, error) {
	// setting is a variable of traces alone or, without one, of all signals.
	setting := func(name string) string {
		if v := getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
			return v
		}
		return getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	endpoint := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if endpoint == "" {
		if endpoint = getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint == "" {
			return nil, nil
		}
		endpoint = strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	if p := setting("PROTOCOL"); p != "" && p != otlpProtocol {
		return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_PROTOCOL is %q; spans are sent by %s only", ErrConfig, p, otlpProtocol)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_ENDPOINT: %q is no URL of http or https", ErrConfig, endpoint)
	}
	c := &otlpClient{url: endpoint, headers: http.Header{}, http: http.Client{Timeout: 10 * time.Second}}
	if ms := setting("TIMEOUT"); ms != "" {
		n, err := strconv.Atoi(ms)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_TIMEOUT: %q is no number of milliseconds", ErrConfig, ms)
		}
		c.http.Timeout = time.Duration(n) * time.Millisecond
	}
	for pair := range strings.SplitSeq(setting("HEADERS"), ",") {
		name, value, _ := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if value, err = url.PathUnescape(strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_HEADERS: value of %s: %w", ErrConfig, name, err)
		}
		c.headers.Set(name, value)
	}
	c.headers.Set("Content-Type", "application/x-protobuf")
	return c, nil
}

// Start implements otlptrace.Client.
func (c *otlpClient) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *otlpClient) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. TracesData has the wire form of the request,
// ExportTraceServiceRequest, whose package imports gRPC.
func (c *otlpClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = c.headers.Clone()
	answer, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)) // so that the connection can be used again
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("sending spans: %s", answer.Status)
	}
	return nil
}
