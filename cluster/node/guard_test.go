package node

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"
)

// A panic is an error of its own, wherever it was caught first, and counts once.
func TestGuard(t *testing.T) {
	n := &Node{log: slog.New(slog.DiscardHandler), announce: make(chan struct{}, 1)}
	plain := errors.New("plain")
	inside := fmt.Errorf("entry 7: %w", &storage.PanicError{Path: "s.plaid", Value: "poison"})
	for i, work := range []func() error{
		func() error { panic("poison") },
		func() error { return inside },
		func() error { return n.guard("a change", func() error { return inside }) },
	} {
		err := n.guard("a replica", work)
		require.ErrorIs(t, err, errPanic)
		require.ErrorContains(t, err, "poison")
		require.EqualValues(t, i+1, n.metrics.panics.Load())
	}
	require.Equal(t, plain, n.guard("a change", func() error { return plain }))
	require.NoError(t, n.guard("a change", func() error { return nil }))
	require.EqualValues(t, 3, n.metrics.panics.Load())
}
