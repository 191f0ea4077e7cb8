package plaid_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/search"
)

// What is found by errors.Is with the names here is what the rooms below return.
func TestKindsOfErrors(t *testing.T) {
	require.ErrorIs(t, search.ErrUnknownID, plaid.ErrNotFound)
	require.ErrorIs(t, search.ErrOption, plaid.ErrOption)
	require.ErrorIs(t, search.ErrClosed, plaid.ErrClosed)
}
