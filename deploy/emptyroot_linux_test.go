package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program that the image has runs in a root with nothing else, as nobody.
func TestStartsInAnEmptyRoot(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("builds the program")
	case os.Geteuid() != 0:
		t.Skip("changing the root needs root")
	}
	root, err := os.MkdirTemp("", "plaid-root-") // every folder above can be passed through by nobody
	require.NoError(t, err)
	defer os.RemoveAll(root)
	require.NoError(t, os.Chmod(root, 0o755))
	build := exec.Command("go", "build", "-o", filepath.Join(root, "plaid"), "../cmd/plaid")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	data := filepath.Join(root, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Chown(data, 65532, 65532))
	cmd := exec.Command("/plaid", "serve", "--data", "/data", "--listen", "unix:/data/socket")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	cmd.Dir, cmd.Env = "/", []string{}
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	if err := cmd.Start(); err != nil {
		t.Skipf("the root cannot be changed here: %v", err)
	}
	said := make([]byte, 4096)
	n, err := log.Read(said) // until it serves, or ends
	require.NoError(t, err)
	require.Contains(t, string(said[:n]), "serving")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}
