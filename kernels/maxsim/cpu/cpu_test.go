package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu"
)

// TestTiers runs the suite on every backend of this processor: in full on the fastest, and
// in the long form on all. That they give the same bits is what TestTiersSameBits and
// FuzzScore say.
func TestTiers(t *testing.T) {
	fastest, err := maxsim.Select("")
	require.NoError(t, err)
	for _, name := range maxsim.Backends() {
		b, err := maxsim.Select(name)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			maxsimtest.Run(t, b, maxsimtest.Options{Brief: name != fastest.Name() && !effort.Long()})
		})
	}
}
