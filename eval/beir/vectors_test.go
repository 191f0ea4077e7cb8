package beir

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors.sh makes of a folder of texts what Run and the other engines' programs read, and goes on
// with what is there. (Fetching a collection is not tried: tests need no network.)
func TestVectorsScript(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("not -short, and not on Windows: encodes texts, in a shell of POSIX")
	}
	dir := t.TempDir()
	plaid, out := filepath.Join(dir, "plaid"), filepath.Join(dir, "out")
	text, err := exec.Command("go", "build", "-o", plaid, "../../cmd/plaid").CombinedOutput()
	require.NoError(t, err, "%s", text)
	make := func(collection string) (string, error) {
		cmd := exec.Command("bash", "vectors.sh", collection, filepath.Join("..", "..", "examples", "quickstart", "colbert-nano"), out, "--precision", "int8")
		cmd.Env = append(os.Environ(), "PLAID="+plaid)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	said, err := make(sample)
	require.NoError(t, err, said)
	require.Contains(t, said, "46 documents, 24 queries")

	r, err := Run(t.Context(), out, folder(t, filepath.Join(out, "vectors")), Options{})
	require.NoError(t, err)
	require.Equal(t, 46, r.Docs)
	require.Equal(t, 24, r.Queries)

	exact, err := os.ReadFile(filepath.Join(out, "vectors", "exact-top100.tsv"))
	require.NoError(t, err)
	require.Equal(t, 24*46, strings.Count(string(exact), "\n"))
	require.Regexp(t, `^\d+\t\d+\t1\t\d+\.\d+\n`, string(exact))

	before, err := os.Stat(filepath.Join(out, "vectors", "docs.npy"))
	require.NoError(t, err)
	said, err = make(sample)
	require.NoError(t, err, said)
	after, err := os.Stat(filepath.Join(out, "vectors", "docs.npy"))
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime(), "vectors that are there are not made anew")

	out = filepath.Join(dir, "other")
	said, err = make("nosuch")
	require.Error(t, err)
	require.Contains(t, said, "nosuch is neither a folder nor one of")
}
