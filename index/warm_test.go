package index

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"
)

// Warming up reads everything: whatever is damaged is found, and nothing else happens.
func TestWarm(t *testing.T) {
	small(t)
	ctx := context.Background()
	path := newPath(t)
	build(t, path, 8, corpus(60, 5, 8, 3), nil)
	var calls atomic.Int64
	reading(t, path, func(s *Snapshot) {
		require.NoError(t, s.Warm(ctx, 2, func(p Progress) { calls.Add(1) }))
		require.EqualValues(t, s.Chunks()+s.Segments(), calls.Load())
		require.NoError(t, s.Warm(ctx, 0, nil))
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, s.Warm(canceled, 1, nil), context.Canceled)
	})
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	found := 0
	for at := 2 * os.Getpagesize(); at < len(data); at += 97 {
		bad := filepath.Join(filepath.Dir(path), "bad.plaid")
		damaged := append([]byte{}, data...)
		damaged[at] ^= 4
		require.NoError(t, os.WriteFile(bad, damaged, 0o600))
		ix, err := Open(ctx, bad, nil)
		if err != nil {
			continue
		}
		s, err := ix.Snapshot()
		require.NoError(t, err)
		if warm := s.Warm(ctx, 1, nil); warm != nil {
			require.ErrorIs(t, warm, storage.ErrCorrupt)
			require.Error(t, s.Verify(ctx))
			found++
		}
		require.NoError(t, s.Close())
		require.NoError(t, ix.Close())
	}
	require.Positive(t, found)
}
