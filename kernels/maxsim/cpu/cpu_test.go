package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu"
	"github.com/plaid-ir/plaid/kernels/maxsim/maxsimtest"
)

// TestTiers runs the suite on every backend of this processor.
func TestTiers(t *testing.T) {
	for _, name := range maxsim.Backends() {
		b, err := maxsim.Select(name)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) { maxsimtest.Run(t, b, maxsimtest.Options{}) })
	}
}
