package collection_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// What was changed goes before what was wrong, and an unknown outcome before the reason.
func TestKindOf(t *testing.T) {
	document := &collection.DocumentError{Document: 1, Token: -1, Err: index.ErrDimension}
	for _, c := range []struct {
		err  error
		kind collection.Kind
	}{
		{fmt.Errorf("delete: %w", collection.ErrUnknown), collection.KindNotFound},
		{document, collection.KindBadDimension},
		{&collection.DocumentError{Err: index.ErrNoTokens}, collection.KindBadRequest},
		{fmt.Errorf("write: %w", syscall.ENOSPC), collection.KindDiskFull},
		{fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, syscall.ENOSPC), collection.KindOutcomeUnknown},
		{fmt.Errorf("%w: %w", collection.ErrUnreachable, collection.ErrEmpty), collection.KindUnreachable},
		{fmt.Errorf("%w: %w", storage.ErrCorrupt, storage.ErrLocked), collection.KindLocked},
		{fmt.Errorf("elsewhere"), collection.KindUnknown},
		{nil, collection.KindUnknown},
	} {
		require.Equal(t, c.kind, collection.KindOf(c.err), "%v", c.err)
	}
}
