package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// kept is a source with a payload for each document but the last.
type kept struct {
	docs   int
	closed bool
}

func (k *kept) Get(ctx context.Context, doc int) ([]byte, error) {
	if doc == k.docs-1 {
		return nil, fmt.Errorf("%w: no row", ErrBroken)
	}
	return fmt.Appendf(nil, `{"row":%d}`, doc), ctx.Err()
}

func (k *kept) Close() error {
	k.closed = true
	return nil
}

// Payloads come from the reader that a program has registered; one without says which has one.
func TestPayloads(t *testing.T) {
	dir := t.TempDir()
	x := &Index{Dir: dir, DocLens: make([]int32, 3), folder: newFolder(dir)}
	put := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	nothing := func() {
		p, err := x.Payloads(t.Context())
		require.NoError(t, err)
		require.Nil(t, p)
	}
	nothing()
	put("metadata.db", "") // without a table
	nothing()
	put("metadata.db-wal", "changes")
	for range 2 {
		_, err := x.Payloads(t.Context())
		require.ErrorIs(t, err, ErrPayloads)
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, dir)
		require.ErrorContains(t, err, "vectors/formats/cmd/plaid")
		require.ErrorContains(t, err, "leave metadata.db out to import the documents without metadata")
		put("metadata.db", "something")
	}

	x = &Index{Dir: dir, DocLens: make([]int32, 3), folder: newFolder(dir)}
	var source *kept
	fault := errors.New("of the reader")
	defer payloadReader.Store(nil)
	RegisterPayloads(func(_ context.Context, path string, docs int, warn func(string)) (PayloadSource, error) {
		if source = nil; fault != nil {
			return nil, fault
		}
		require.Equal(t, filepath.Join(dir, "metadata.db"), path)
		source = &kept{docs: docs}
		warn("odd: 100%")
		return source, nil
	})
	require.Panics(t, func() { RegisterPayloads(nil) })
	_, err := x.Payloads(t.Context())
	require.ErrorIs(t, err, ErrPayloads)
	require.ErrorIs(t, err, fault)
	fault = nil
	p, err := x.Payloads(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"odd: 100%"}, x.Warnings)
	b, err := p.Get(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, `{"row":1}`, string(b))
	_, err = p.Get(t.Context(), 2)
	require.ErrorIs(t, err, ErrPayloads)
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorContains(t, err, "document 2: ")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Get(ended, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrPayloads)
	require.NoError(t, p.Close())
	require.True(t, source.closed)

	require.NoError(t, x.Unchanged())
	put("metadata.db-wal", "more changes")
	require.ErrorIs(t, x.Unchanged(), ErrChanged)
}
