package human_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/human"
)

func TestNearest(t *testing.T) {
	known := []string{"title", "year", "lang", "queries", "top_k"}
	for misspelt, want := range map[string]string{
		"yeer": "year", "YAER": "year", "titel": "title", "querys": "queries", "query": "queries", "topk": "top_k", "lnag": "lang", "colour": "", "": "", "y": "",
		strings.Repeat("year", 10_000): "",
	} {
		require.Equal(t, want, human.Nearest(misspelt, known), misspelt)
	}
	require.Equal(t, 0, human.Distance("a", "A"))
	require.Equal(t, 3, human.Distance("", "abc"))
	require.Equal(t, 1, human.Distance("ab", "ba"))
	require.Empty(t, human.Nearest("x", nil))
	require.Equal(t, []string{"year", "lang", "queries", "title", "top_k"}, human.ByDistance("yeer", known))
}
