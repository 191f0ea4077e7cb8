package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/kerneltest"
)

func generic(t testing.TB) kernels.Backend {
	t.Helper()
	b, err := kernels.Select("generic")
	require.NoError(t, err)
	return b
}

func TestGeneric(t *testing.T) { kerneltest.Run(t, generic(t)) }

// TestTiers runs the suite on every other backend of this processor.
func TestTiers(t *testing.T) {
	for _, name := range kernels.Backends() {
		if name == "generic" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b, err := kernels.Select(name)
			require.NoError(t, err)
			kerneltest.Run(t, b)
		})
	}
}
