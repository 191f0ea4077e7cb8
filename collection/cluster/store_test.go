package cluster

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage/objects"
)

// careless is a store that ignores the condition of a put, as some services do.
type careless struct{ objects.Store }

func (s careless) Put(ctx context.Context, name string, r io.Reader, _ int64) (time.Time, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return time.Time{}, err
	}
	return s.Replace(ctx, name, body)
}

func TestStoreWithoutConditions(t *testing.T) {
	s := careless{memory.New()}
	_, err := Open(t.Context(),
		Config{Store: s, StoreAddress: "the shelf", Dir: t.TempDir(), Name: "a", Address: "http://127.0.0.1:1"})
	require.ErrorIs(t, err, ErrStore)
	require.ErrorContains(t, err, "the shelf: ")
	left, err := s.List(t.Context(), "probe/", "", 0)
	require.NoError(t, err)
	require.Empty(t, left)
}
