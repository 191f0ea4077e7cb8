package beir

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// vectors.sh makes of a folder of texts what Run and the other engines' programs read, and goes on
// with what is there. (Fetching a collection is not tried: tests need no network.)
func TestVectorsScript(t *testing.T) {
	if !effort.Long() || runtime.GOOS == "windows" {
		t.Skip("the long form (PLAID_LONG=1), and not on Windows: encodes texts, in a shell of POSIX")
	}
	dir := t.TempDir()
	plaid, out := filepath.Join(dir, "plaid"), filepath.Join(dir, "out")
	text, err := exec.Command("go", "build", "-o", plaid, "../../cmd/plaid").CombinedOutput()
	require.NoError(t, err, "%s", text)
	make := func(collection string) (string, error) {
		cmd := exec.Command("bash", "vectors.sh", collection, filepath.Join("..", "..", "docs", "examples", "quickstart", "colbert-nano"), out, "--precision", "int8")
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

// msmarco.sh makes of texts in MS MARCO's format an index, runs and a table, and goes on with what
// is there. (The texts themselves are their owners' to give.)
func TestMSMARCOScript(t *testing.T) {
	if !effort.Long() || runtime.GOOS == "windows" {
		t.Skip("the long form (PLAID_LONG=1), and not on Windows: encodes texts, in a shell of POSIX")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	dir := t.TempDir()
	plaid, work := filepath.Join(dir, "plaid"), filepath.Join(dir, "work")
	text, err := exec.Command("go", "build", "-o", plaid, "../../cmd/plaid").CombinedOutput()
	require.NoError(t, err, "%s", text)
	nbits := "2"
	run := func(env ...string) (string, error) {
		cmd := exec.Command("bash", "msmarco.sh", filepath.Join("..", "..", "docs", "examples", "quickstart", "colbert-nano"), work, "--precision", "int8", "--nbits", nbits)
		cmd.Env = append(append(os.Environ(), "PLAID="+plaid), env...)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	said, err := run()
	require.Error(t, err)
	require.Contains(t, said, "has neither collection.tsv nor collectionandqueries.tar.gz")

	require.NoError(t, os.MkdirAll(work, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(work, "collectionandqueries.tar.gz"), []byte("another"), 0o666))
	said, err = run()
	require.Error(t, err)
	require.Contains(t, said, "has the checksum")

	tabbed(t, filepath.Join(sample, "corpus.jsonl"), filepath.Join(work, "collection.tsv"))
	tabbed(t, filepath.Join(sample, "queries.jsonl"), filepath.Join(work, "queries.dev.small.tsv"))
	qrels, err := os.ReadFile(filepath.Join(sample, "qrels", "test.tsv"))
	require.NoError(t, err)
	var judged strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(string(qrels)), "\n")[1:] {
		f := strings.Fields(line)
		judged.WriteString(f[0] + "\t0\t" + f[1] + "\t" + f[2] + "\n")
	}
	require.NoError(t, os.WriteFile(filepath.Join(work, "qrels.dev.small.tsv"), []byte(judged.String()), 0o666))
	said, err = run()
	require.Error(t, err)
	require.Contains(t, said, "lines, not 7437")

	for range 2 {
		said, err = run("ANY=1", "EXHAUSTIVE=5")
		require.NoError(t, err, said)
		require.Regexp(t, `\| plaid, pruned, k = 10 \| \d+\.\d\d \| 0\.[89]\d+ \|  \|  \| (1\.0|0\.9)\d+ \|`, said)
		require.Regexp(t, `\| plaid, pruned, k = 1000 \| \d+\.\d\d \| 0\.[89]\d+ \| 1\.0000 \| 1\.0000 \| 1\.0000 \|`, said)
	}
	require.NotContains(t, said, "trained on", "what is built is not built anew")
	nbits = "4"
	said, err = run("ANY=1", "EXHAUSTIVE=0")
	require.NoError(t, err, said)
	require.Contains(t, said, "at 4 bits", "another index was asked for")
}

// tabbed writes ids and texts of a file of JSON lines as MS MARCO does.
func tabbed(t *testing.T, from, to string) {
	t.Helper()
	lines, err := os.ReadFile(from)
	require.NoError(t, err)
	var b strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(string(lines)), "\n") {
		var d struct {
			ID   string `json:"_id"`
			Text string `json:"text"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &d))
		b.WriteString(d.ID + "\t" + strings.Join(strings.Fields(d.Text), " ") + "\n")
	}
	require.NoError(t, os.WriteFile(to, []byte(b.String()), 0o666))
}
