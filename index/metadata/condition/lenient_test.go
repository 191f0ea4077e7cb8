package condition_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// A lenient condition takes fields that nothing has for NULL; the one that it was made
// of still does not.
func TestLenient(t *testing.T) {
	e, err := condition.ParsePlaceholders("year > ? OR nowhere IS NULL")
	require.NoError(t, err)
	c, err := e.Bind(2000)
	require.NoError(t, err)
	none := func(condition.Field) bool { return false }
	l := c.Lenient()
	require.NoError(t, l.Check(none))
	require.ErrorIs(t, c.Check(none), condition.ErrUnknownField)
	require.True(t, l.Match(condition.NewDocument([]byte(`{"year": 1}`), "a", 0)))
	require.Equal(t, c.String(), l.String())
}
