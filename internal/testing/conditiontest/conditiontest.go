// Package conditiontest makes conditions for tests.
package conditiontest

import (
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Bind parses a condition and binds its placeholders to values.
func Bind(t require.TestingT, text string, params ...any) *condition.Condition {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	e, err := condition.Parse(text)
	require.NoError(t, err)
	c, err := e.Bind(params...)
	require.NoError(t, err)
	return c
}
