package python_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/internal/testing/sources"
)

// The adapters to frameworks pass the tests that these have for all, and type checks; the
// blocks of docs/python.md run.
func TestFrameworks(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs Python packages")
	}
	sources.Watch(t, "..")
	python := pyenv.Python(t, "tests/frameworks/requirements.txt")
	binary := filepath.Join(t.TempDir(), "plaid")
	out, err := exec.Command("go", "build", "-o", binary, "../cmd/plaid").CombinedOutput()
	require.NoError(t, err, string(out))
	said, err := pyenv.Run([]string{"PLAID_BINARY=" + binary, "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1"}, python,
		"-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "tests/frameworks")
	require.NoError(t, err, said)
	t.Log(said)
	checker := pyenv.Python(t, "tests/requirements.txt")
	said, err = pyenv.Run(nil, checker, "-m", "pyright", "-p", "tests/frameworks/pyright.json", "--pythonpath", python)
	require.NoError(t, err, said)
}
