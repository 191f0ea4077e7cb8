package parallel_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/parallel"
)

// TestSpare runs in a process of its own, as it is for all of a process.
func TestSpare(t *testing.T) {
	if os.Getenv("PLAID_TEST_SPARE") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSpare$")
		cmd.Env = append(os.Environ(), "PLAID_TEST_SPARE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	runtime.GOMAXPROCS(3)
	require.Equal(t, 3, parallel.Processors())
	for range 2 {
		parallel.Spare()
		require.Equal(t, 4, runtime.GOMAXPROCS(0))
		require.Equal(t, 3, parallel.Processors())
		require.Equal(t, 3, parallel.Threads(0, 100), "no more compute than before")
	}
	runtime.GOMAXPROCS(1)
	require.Equal(t, 1, parallel.Processors())
}
