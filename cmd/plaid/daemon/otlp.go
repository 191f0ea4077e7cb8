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

// otlpProtocol is the only protocol that spans are sent by.
const otlpProtocol = "http/protobuf"

// OpenTracing sets up tracing as the variables of OpenTelemetry in the environment describe it. It
// returns nil if they ask for none. attributes distinguish this process from others of the same
// service. The caller shuts the tracing down.
//
// The exporter reads its variables itself and only logs those that it cannot use, so OpenTracing
// checks them first.
func OpenTracing(
	ctx context.Context, version string, attributes ...attribute.KeyValue,
) (*sdktrace.TracerProvider, error) {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, nil
	}
	name, endpoint := tracingVariable("ENDPOINT")
	if endpoint == "" {
		return nil, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w: %s: %q is not an http or https URL", ErrConfig, name, endpoint)
	}
	if name, p := tracingVariable("PROTOCOL"); p != "" && p != otlpProtocol {
		return nil, fmt.Errorf("%w: %s is %q; spans are sent by %s only", ErrConfig, name, p, otlpProtocol)
	}
	if name, ms := tracingVariable("TIMEOUT"); ms != "" {
		if n, err := strconv.Atoi(ms); err != nil || n <= 0 {
			return nil, fmt.Errorf("%w: %s: %q is not a number of milliseconds", ErrConfig, name, ms)
		}
	}
	name, headers := tracingVariable("HEADERS")
	if _, err := url.PathUnescape(headers); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, name, err)
	}
	attributes = append(attributes, attribute.String("service.name", "plaid"),
		attribute.String("service.version", version))
	process, err := resource.New(ctx, resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrConfig, err)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: tracing: %w", ErrConfig, err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(process)), nil
}

// tracingVariable returns the name and the value of a variable of the exporter: the one for traces
// or, if that is not set, the one for all signals.
func tracingVariable(suffix string) (name, value string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		if name = prefix + suffix; os.Getenv(name) != "" {
			return name, os.Getenv(name)
		}
	}
	return name, ""
}
