package collection_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/storage"
)

// What was changed goes before what was wrong, and an unknown outcome before the reason.
func TestKindsOfErrors(t *testing.T) {
	document := &collection.DocumentError{Document: 1, Token: -1, Err: index.ErrDimension}
	for _, c := range []struct {
		err  error
		kind errkind.Kind
	}{
		{fmt.Errorf("delete: %w", collection.ErrUnknown), errkind.NotFound},
		{document, errkind.BadDimension},
		{&collection.DocumentError{Err: index.ErrNoTokens}, errkind.BadRequest},
		{fmt.Errorf("write: %w", syscall.ENOSPC), errkind.DiskFull},
		{fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, syscall.ENOSPC), errkind.OutcomeUnknown},
		{fmt.Errorf("%w: %w", collection.ErrUnreachable, collection.ErrEmpty), errkind.Unreachable},
		{fmt.Errorf("%w: %w", storage.ErrCorrupt, storage.ErrLocked), errkind.Locked},
		{fmt.Errorf("elsewhere"), errkind.Unknown},
		{nil, errkind.Unknown},
	} {
		require.Equal(t, c.kind, errkind.Of(c.err), "%v", c.err)
	}
}
