package compressed

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The constants of this package are those of the header.
func TestConstantsAreThoseOfTheHeader(t *testing.T) {
	header, err := os.ReadFile("../../src/plaid.cuh")
	require.NoError(t, err)
	for name, want := range map[string]int{"kTile": tileTokens, "kColumns": columns, "kScanThreads": scanThreads, "kWideThreads": wideThreads} {
		require.Regexp(t, fmt.Sprintf(`constexpr int %s = %d;`, name, want), string(header))
	}
}
