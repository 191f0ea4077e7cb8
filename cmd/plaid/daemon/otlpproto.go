package daemon

import (
	"encoding/hex"
	"math"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// The same messages in their binary form: http/protobuf is what operators usually ask for,
// and some receivers take nothing else. The numbers of fields are those of
// opentelemetry/proto/trace/v1/trace.proto and of what that imports.

func protoMessage(b []byte, field protowire.Number, inner []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), inner)
}

// protoText leaves an empty text out, as proto3 does.
func protoText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func protoHex(b []byte, field protowire.Number, id string) []byte {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) == 0 { // ids are hexadecimal
		return b
	}
	return protoMessage(b, field, raw)
}

func protoFixed(b []byte, field protowire.Number, n int64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(n))
}

func protoNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// proto is the ExportTraceServiceRequest.
func (r *otlpRequest) proto() (b []byte) {
	for i := range r.Resources {
		from := &r.Resources[i]
		resource := protoMessage(nil, 1, protoAttributes(nil, 1, from.Resource.Attributes))
		for j := range from.Scopes {
			scope := protoMessage(nil, 1, protoText(nil, 1, from.Scopes[j].Scope.Name))
			for k := range from.Scopes[j].Spans {
				scope = protoMessage(scope, 2, from.Scopes[j].Spans[k].proto())
			}
			resource = protoMessage(resource, 2, scope)
		}
		b = protoMessage(b, 1, resource)
	}
	return b
}

func (s *otlpSpan) proto() (b []byte) {
	b = protoHex(b, 1, s.TraceID)
	b = protoHex(b, 2, s.SpanID)
	b = protoText(b, 3, s.State)
	b = protoHex(b, 4, s.ParentID)
	b = protoText(b, 5, s.Name)
	b = protoNumber(b, 6, uint64(max(s.Kind, trace.SpanKindUnspecified)))
	b = protoFixed(b, 7, s.Start)
	b = protoFixed(b, 8, s.End)
	b = protoAttributes(b, 9, s.Attributes)
	for _, e := range s.Events {
		event := protoText(protoFixed(nil, 1, e.Time), 2, e.Name)
		b = protoMessage(b, 11, protoAttributes(event, 3, e.Attributes))
	}
	return protoMessage(b, 15, protoNumber(protoText(nil, 2, s.Status.Message), 3, uint64(s.Status.Code)))
}

// protoAttributes are KeyValues.
func protoAttributes(b []byte, field protowire.Number, all []otlpAttribute) []byte {
	for i := range all {
		b = protoMessage(b, field, protoMessage(protoText(nil, 1, all[i].Key), 2, all[i].Value.proto()))
	}
	return b
}

// proto is the AnyValue; a field of one of several is there though it is zero.
func (v *otlpValue) proto() []byte {
	switch {
	case v.Bool != nil:
		return protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), protowire.EncodeBool(*v.Bool))
	case v.Int != nil:
		return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(*v.Int))
	case v.Double != nil:
		return protoFixed(nil, 4, int64(math.Float64bits(*v.Double)))
	case v.String != nil:
		return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), *v.String)
	}
	return nil
}
