package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
)

func TestDeviceCodeIsNamed(t *testing.T) {
	code := kernels.DeviceCode()["cuda"]
	require.Contains(t, code, "plaid_80.cubin")
	require.Contains(t, code, "plaid_80.ptx")
}
