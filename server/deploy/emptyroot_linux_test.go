package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/sources"
)

// The program that the image has, built as the Dockerfile says.
func TestStartsInAnEmptyRoot(t *testing.T) {
	switch {
	case !effort.Long():
		t.Skip("builds the program")
	case os.Geteuid() != 0:
		t.Skip("changing the root needs root")
	}
	sources.Watch(t, "../..")
	line := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 go build (.*) -o /out/plaid \./cmd/plaid$`).FindStringSubmatch(read(t, "Dockerfile"))
	require.NotNil(t, line)
	program := filepath.Join(t.TempDir(), "plaid")
	build := exec.Command("sh", "-c", "go build "+line[1]+` -o "$0" ../../cmd/plaid`, program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	firstMinute(t, program)
}

// firstMinute runs a program in a root with nothing else, as nobody: it indexes the sample,
// searches it, and serves.
func firstMinute(t *testing.T, program string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("changing the root needs root")
	}
	root, err := os.MkdirTemp("", "plaid-root-") // every folder above can be passed through by nobody
	require.NoError(t, err)
	defer os.RemoveAll(root)
	require.NoError(t, os.Chmod(root, 0o755))
	bytes, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "plaid"), bytes, 0o755))
	for _, dir := range []string{"data", "tmp"} { // what the image has
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o700))
		require.NoError(t, os.Chown(filepath.Join(root, dir), 65532, 65532))
	}
	require.NoError(t, os.CopyFS(filepath.Join(root, "sample"), os.DirFS("../../docs/examples/quickstart")))
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "sample"), func(path string, d os.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755))
	}))
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command("/plaid", args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		cmd.Dir, cmd.Env = "/", []string{}
		return cmd
	}
	run := func(args ...string) string {
		t.Helper()
		var said strings.Builder
		cmd := inside(args...)
		cmd.Stderr = &said
		out, err := cmd.Output()
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("the root cannot be changed here: %v", err)
		}
		require.NoError(t, err, "%s: %s", strings.Join(args, " "), said.String())
		return string(out)
	}
	require.Contains(t, run("version"), "plaid")
	const sample, model = "/sample/scifact-sample/", "/sample/colbert-nano"
	run("index", "/data/sample.plaid", "--text", sample+"corpus.jsonl", "--model", model)
	require.Contains(t, run("search", "/data/sample.plaid", "do proteins outside the cell serve as nutrients?", "-k", "3"), "8460275")
	require.Contains(t, run("verify", "/data/sample.plaid"), "sound")

	cmd := inside("serve", "--data", "/data", "--listen", "unix:/data/socket")
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := make([]byte, 4096)
	n, err := log.Read(said) // until it serves, or ends
	require.NoError(t, err)
	require.Contains(t, string(said[:n]), "serving")
	run("serve", "--data", "/data", "--listen", "unix:/data/socket", "--ready")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}
