package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// A client learns whether a change was made when parts of a collection do not answer.
func TestErrorsOfShards(t *testing.T) {
	away := fmt.Errorf("%w: shard 2", collection.ErrUnreachable)
	p := problemFromError(context.Background(), away)
	require.Equal(t, CodeBusy, p.Code)
	require.Positive(t, p.RetryAfter)
	require.Contains(t, p.Message, "shard 2")
	p = problemFromError(context.Background(), fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, away))
	require.Equal(t, CodeOutcomeUnknown, p.Code, "it may have been made")
	require.Equal(t, CodeTooLarge, problemFromError(context.Background(), fmt.Errorf("shard 2: %w", collection.ErrTooLarge)).Code)
	refused := &collection.DocumentError{Document: 4, Token: -1, Err: index.ErrDuplicateID}
	p = problemFromError(context.Background(), &collection.PartialError{Documents: []int{1, 3}, Done: index.Affected{Documents: 2}, Err: refused})
	require.Equal(t, CodeOutcomeUnknown, p.Code, "a bad request would say that nothing was stored")
	require.Contains(t, p.Message, "1, 3")
}
