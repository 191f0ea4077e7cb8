package daemon

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// otlp sends spans as OTLP over HTTP (OpenTelemetry protocol 1.11, section OTLP/HTTP), as
// JSON or as protobuf. The exporters of the SDK bring gRPC and a dozen more modules with
// them, for the same result.
type otlp struct {
	url     string
	binary  bool // protobuf instead of JSON
	headers http.Header
	client  *http.Client
}

// The protocols that can be asked for.
const (
	protocolJSON   = "http/json"
	protocolBinary = "http/protobuf"
)

// OpenTracing makes the tracing that the environment asks for, by the variables of
// OpenTelemetry; nil if it asks for none. More attributes say which of several processes it is.
// It has to be shut down.
func OpenTracing(getenv func(string) string, version string, more ...attribute.KeyValue) (*sdktrace.TracerProvider, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if v := getenv(name); v != "" {
				return v
			}
		}
		return ""
	}
	target := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if target == "" {
		if target = getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); target == "" {
			return nil, nil
		}
		target = strings.TrimSuffix(target, "/") + "/v1/traces"
	}
	if getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, nil
	}
	binary := false
	switch p := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p {
	case "", protocolJSON:
	case protocolBinary:
		binary = true
	default:
		return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_PROTOCOL is %q; %s and %s are what is built in", ErrConfig, p, protocolJSON, protocolBinary)
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_ENDPOINT: %q is no URL of http or https", ErrConfig, target)
	}
	e := &otlp{url: target, binary: binary, headers: http.Header{}, client: &http.Client{Timeout: 10 * time.Second}}
	if ms := first("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"); ms != "" {
		n, err := strconv.Atoi(ms)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_TIMEOUT: %q is no number of milliseconds", ErrConfig, ms)
		}
		e.client.Timeout = time.Duration(n) * time.Millisecond
	}
	for pair := range strings.SplitSeq(first("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		name, value, _ := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if value, err = url.PathUnescape(strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_HEADERS: value of %s: %w", ErrConfig, name, err)
		}
		e.headers.Set(name, value)
	}
	more = append(more, attribute.String("service.name", "plaid"), attribute.String("service.version", version))
	about, err := resource.New(context.Background(), resource.WithAttributes(more...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrConfig, err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(about)), nil
}

// The messages of OTLP, as far as they are used. Numbers of 64 bits are strings in
// JSON, and ids are hexadecimal.
type (
	otlpRequest struct {
		Resources []otlpResource `json:"resourceSpans"`
	}
	otlpResource struct {
		Resource struct {
			Attributes []otlpAttribute `json:"attributes"`
		} `json:"resource"`
		Scopes []otlpScope `json:"scopeSpans"`
	}
	otlpScope struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpSpan struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		ParentID   string          `json:"parentSpanId,omitempty"`
		State      string          `json:"traceState,omitempty"`
		Name       string          `json:"name"`
		Kind       trace.SpanKind  `json:"kind"`
		Start      int64           `json:"startTimeUnixNano,string"`
		End        int64           `json:"endTimeUnixNano,string"`
		Attributes []otlpAttribute `json:"attributes,omitempty"`
		Events     []otlpEvent     `json:"events,omitempty"`
		Status     otlpStatus      `json:"status"`
	}
	otlpEvent struct {
		Time       int64           `json:"timeUnixNano,string"`
		Name       string          `json:"name"`
		Attributes []otlpAttribute `json:"attributes,omitempty"`
	}
	otlpStatus struct {
		Code    int    `json:"code,omitempty"` // 1: ok, 2: error
		Message string `json:"message,omitempty"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	// otlpValue has one field that is set.
	otlpValue struct {
		String *string  `json:"stringValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
		Int    *int64   `json:"intValue,omitempty,string"`
		Double *float64 `json:"doubleValue,omitempty"`
	}
)

func otlpAttributes(kvs []attribute.KeyValue) []otlpAttribute {
	var all []otlpAttribute
	for _, kv := range kvs {
		var v otlpValue
		switch kv.Value.Type() {
		case attribute.BOOL:
			v.Bool = new(kv.Value.AsBool())
		case attribute.INT64:
			v.Int = new(kv.Value.AsInt64())
		case attribute.FLOAT64:
			v.Double = new(kv.Value.AsFloat64())
		default:
			v.String = new(kv.Value.String())
		}
		all = append(all, otlpAttribute{string(kv.Key), v})
	}
	return all
}

func otlpSpanOf(s sdktrace.ReadOnlySpan) otlpSpan {
	sc := s.SpanContext()
	trace, span := sc.TraceID(), sc.SpanID()
	out := otlpSpan{
		TraceID: hex.EncodeToString(trace[:]), SpanID: hex.EncodeToString(span[:]), State: sc.TraceState().String(), Name: s.Name(),
		Kind: s.SpanKind(), Start: s.StartTime().UnixNano(), End: s.EndTime().UnixNano(), Attributes: otlpAttributes(s.Attributes()),
	}
	if p := s.Parent(); p.HasSpanID() {
		id := p.SpanID()
		out.ParentID = hex.EncodeToString(id[:])
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, otlpEvent{e.Time.UnixNano(), e.Name, otlpAttributes(e.Attributes)})
	}
	switch s.Status().Code {
	case codes.Ok:
		out.Status.Code = 1
	case codes.Error:
		out.Status = otlpStatus{2, s.Status().Description}
	}
	return out
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *otlp) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	var r otlpResource
	r.Resource.Attributes = otlpAttributes(spans[0].Resource().Attributes()) // one program, one resource
	at := map[string]int{}
	for _, s := range spans {
		name := s.InstrumentationScope().Name
		i, ok := at[name]
		if !ok {
			i = len(r.Scopes)
			at[name] = i
			r.Scopes = append(r.Scopes, otlpScope{})
			r.Scopes[i].Scope.Name = name
		}
		r.Scopes[i].Spans = append(r.Scopes[i].Spans, otlpSpanOf(s))
	}
	all, media := otlpRequest{[]otlpResource{r}}, "application/json"
	text, err := json.Marshal(all)
	if e.binary {
		text, media = all.proto(), "application/x-protobuf"
	}
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	for name, values := range e.headers {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", media)
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("sending spans: %s", resp.Status)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *otlp) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}
