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
