package bus

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Of more logs than a page of their listing has, none is left.
func TestForgetMany(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	conn, err := serve(t, ServerOptions{Name: "n", Listen: "127.0.0.1:0"}).Connect("test")
	require.NoError(t, err)
	defer conn.Close()
	b, err := Setup(ctx, conn, 1, 0)
	require.NoError(t, err)
	const n = 1100
	for s := range n {
		_, err := b.JS.CreateStream(ctx, jetstream.StreamConfig{Name: LogStream("wiki", s), Subjects: []string{LogSubject("wiki", s)}, Storage: jetstream.MemoryStorage})
		require.NoError(t, err)
	}
	require.NoError(t, b.Forget(ctx, "wiki"))
	left := b.JS.StreamNames(ctx, jetstream.WithStreamListSubject(logPrefix+"wiki.*"))
	for name := range left.Name() {
		require.Fail(t, "left", name)
	}
	require.NoError(t, left.Err())
}
