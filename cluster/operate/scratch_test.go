package operate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/operate"
)

const scratchIn = "PLAID_TEST_SCRATCH"

func TestMain(m *testing.M) {
	if dir := os.Getenv(scratchIn); dir != "" {
		path, _, err := operate.Scratch(dir)
		if err != nil {
			panic(err)
		}
		if err := os.WriteFile(filepath.Join(path, "half"), nil, 0o600); err != nil {
			panic(err)
		}
		os.Exit(9) // as if it were killed
	}
	os.Exit(m.Run())
}

// Files that a process was making when it was killed are gone with the next one that makes some
// in the same folder; those of a process that lives are not, nor anything else there.
func TestScratch(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no locks of folders")
	}
	dir := t.TempDir()
	own := filepath.Join(dir, "plaid-own")
	require.NoError(t, os.Mkdir(own, 0o755))
	living, remove, err := operate.Scratch(dir)
	require.NoError(t, err)
	info, err := os.Stat(living)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	entries := func() int {
		all, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(all)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), scratchIn+"="+dir)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit)
	require.Equal(t, 9, exit.ExitCode())
	require.Equal(t, 3, entries())
	_, removeOther, err := operate.Scratch(dir)
	require.NoError(t, err)
	require.Equal(t, 3, entries(), "that of the dead process is gone")
	require.NoError(t, removeOther())
	require.DirExists(t, living)
	require.NoError(t, remove())
	require.DirExists(t, own)
	require.Equal(t, 1, entries())

	// A link of somebody else leads nowhere.
	elsewhere := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "x"), filepath.Join(dir, "plaid-cluster-scratch")))
	path, remove, err := operate.Scratch(dir)
	require.NoError(t, err)
	require.Equal(t, dir, filepath.Dir(path))
	require.NoError(t, remove())
	require.Equal(t, 2, entries())
}
