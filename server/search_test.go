package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/search"
)

// The last page is as long as the others, although there are not as many documents: a pruned search
// makes its ranking of blocks of that length.
func TestPagesAreOfOneLength(t *testing.T) {
	k := 10
	for offset, want := range map[int]search.Page{
		0: {K: 10}, 20: {Offset: 20, K: 10}, 24: {Offset: 24, K: 10}, 25: {Offset: 25}, 1 << 40: {Offset: 25},
	} {
		require.Equal(t, want, (&paramsIn{TopK: &k, Offset: offset}).searchPage(25))
	}
	require.Equal(t, search.Page{}, (&paramsIn{TopK: &k}).searchPage(0))
	k = 1 << 40
	require.Equal(t, search.Page{Offset: 3, K: 25}, (&paramsIn{TopK: &k, Offset: 3}).searchPage(25))
}
