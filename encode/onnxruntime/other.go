//go:build noonnxruntime || !(linux || darwin) || !(amd64 || arm64)

package onnxruntime

import (
	"context"
	"fmt"
	"runtime"

	"github.com/plaid-ir/plaid/encode/engine"
)

// BuiltIn reports whether this build has the engine.
const BuiltIn = false

// Model is a graph. This build cannot open graphs.
type Model struct{}

// Open always fails in this build, with [engine.ErrNotBuiltIn].
func Open(string, Options) (*Model, error) {
	return nil, fmt.Errorf("onnxruntime: %w: on %s/%s, or with the tag noonnxruntime",
		engine.ErrNotBuiltIn, runtime.GOOS, runtime.GOARCH)
}

// Dim implements [engine.Engine].
func (*Model) Dim() int { return 0 }

// Chunk implements [engine.Engine].
func (*Model) Chunk() int { return 0 }

// Workers implements [engine.Engine].
func (*Model) Workers() int { return 0 }

// Encode implements [engine.Engine].
func (*Model) Encode(context.Context, []float32, engine.Batch) error { return engine.ErrNotBuiltIn }

// Close implements [engine.Engine].
func (*Model) Close() error { return nil }
