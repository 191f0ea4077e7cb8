package daemon

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// otlpProtocol is the one protocol that spans are sent by.
const otlpProtocol = "http/protobuf"

// OpenTracing makes the tracing that the process's environment asks for by the variables of
// OpenTelemetry; nil means that it asks for none. The attributes in more tell one of several
// processes from the others. The caller shuts the tracing down.
//
// The exporter reads its variables itself and only logs those that it cannot use, so they are
// checked here first.
func OpenTracing(ctx context.Context, version string, attributes ...attribute.KeyValue) (*sdktrace.TracerProvider,
	error) {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, nil
	}
	name, endpoint := tracingVariable("ENDPOINT")
	if endpoint == "" {
		return nil, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w: %s: %q is no URL of http or https", ErrConfig, name, endpoint)
	}
	if name, p := tracingVariable("PROTOCOL"); p != "" && p != otlpProtocol {
		return nil, fmt.Errorf("%w: %s is %q; spans are sent by %s only", ErrConfig, name, p, otlpProtocol)
	}
	if name, ms := tracingVariable("TIMEOUT"); ms != "" {
		if n, err := strconv.Atoi(ms); err != nil || n <= 0 {
			return nil, fmt.Errorf("%w: %s: %q is no number of milliseconds", ErrConfig, name, ms)
		}
	}
	name, headers := tracingVariable("HEADERS")
	if _, err := url.PathUnescape(headers); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, name, err)
	}
	attributes = append(attributes, attribute.String("service.name", "plaid"),
		attribute.String("service.version", version))
	about, err := resource.New(ctx, resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrConfig, err)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: tracing: %w", ErrConfig, err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// tracingVariable returns the name and value of a variable of the exporter: that of traces or,
// without one, that of all signals.
func tracingVariable(suffix string) (name, value string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		if name = prefix + suffix; os.Getenv(name) != "" {
			return name, os.Getenv(name)
		}
	}
	return name, ""
}
