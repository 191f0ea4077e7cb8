package command

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// trecToIR are trec_eval's names of what the golden files hold.
var trecToIR = map[string]string{
	"ndcg": "nDCG", "ndcg_cut_5": "nDCG@5", "ndcg_cut_10": "nDCG@10", "ndcg_cut_100": "nDCG@100",
	"map": "AP", "map_cut_10": "AP@10", "recip_rank": "RR", "recall_5": "R@5", "recall_10": "R@10", "recall_100": "R@100",
	"P_1": "P@1", "P_5": "P@5", "P_10": "P@10", "success_1": "Success@1", "success_5": "Success@5", "success_10": "Success@10",
	"Rprec": "Rprec", "bpref": "Bpref",
}

// plaid eval prints what trec_eval gives for each query.
func TestEvalPrintsGoldenValues(t *testing.T) {
	golden := filepath.Join("..", "..", "..", "eval", "testdata", "golden")
	want, err := os.Open(filepath.Join(golden, "made-up.perquery.rel1.tsv"))
	require.NoError(t, err)
	defer want.Close()
	var names []string
	for _, name := range trecToIR {
		names = append(names, name)
	}
	code, stdout, stderr := try(t, "eval", "--qrels", filepath.Join(golden, "made-up.qrels.tsv"), "--measures", strings.Join(names, ","),
		"--per-query", "--format", "tsv", filepath.Join(golden, "made-up.run.trec"))
	require.Equal(t, exitOK, code, stderr)
	got := make(map[string]float64)
	for line := range strings.Lines(stdout) {
		cols := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, cols, 3)
		v, err := strconv.ParseFloat(cols[2], 64)
		require.NoError(t, err)
		require.NotContains(t, got, cols[0]+" "+cols[1])
		got[cols[0]+" "+cols[1]] = v
	}
	require.Len(t, got, (34+1)*len(names), "34 judged queries and their mean")
	compared := 0
	for sc := bufio.NewScanner(want); sc.Scan(); {
		cols := strings.Split(sc.Text(), "\t")
		name, ok := trecToIR[cols[1]]
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(cols[2], 64)
		require.NoError(t, err)
		require.Contains(t, got, cols[0]+" "+name)
		require.InDelta(t, v, got[cols[0]+" "+name], 1e-12, "%s of %s", name, cols[0])
		compared++
	}
	require.Equal(t, 33*len(names), compared)
}

func gzipped(t *testing.T, path, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	return path
}

func TestEvalReadsGzip(t *testing.T) {
	dir := t.TempDir()
	run := gzipped(t, filepath.Join(dir, "a.run.gz"), "q Q0 d 1 9 t\n")
	gzipped(t, filepath.Join(dir, "set", "qrels", "test.tsv.gz"), "query-id\tcorpus-id\tscore\r\nq\td\t1\r\n")
	trec := gzipped(t, filepath.Join(dir, "trec.gz"), "q 0 d 1\n")
	for _, qrels := range []string{filepath.Join(dir, "set"), trec} {
		code, stdout, stderr := try(t, "eval", "--qrels", qrels, "--measures", "RR", "--format", "tsv", run)
		require.Equal(t, exitOK, code, stderr)
		require.Equal(t, "all\tRR\t1\n", stdout)
	}
	data, err := os.ReadFile(run)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(run, data[:len(data)-2], 0o644))
	code, stdout, stderr := try(t, "eval", "--qrels", trec, run)
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "a.run.gz:1: ")
}

func TestEvalInterruptedAndUnwritable(t *testing.T) {
	dir := t.TempDir()
	qrels, list := filepath.Join(dir, "qrels"), filepath.Join(dir, "run")
	require.NoError(t, os.WriteFile(qrels, []byte("q 0 d 1\nr 0 d 1\n"), 0o644))
	require.NoError(t, os.WriteFile(list, []byte("q Q0 d 1 9 t\nr Q0 d 1 9 t\n"), 0o644))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"eval", "--qrels", qrels, list},
		{"eval", "--qrels", qrels, list, list},
	} {
		var stdout, stderr bytes.Buffer
		code := run(cancelled, args, streams{out: &stdout, err: &stderr})
		require.Equal(t, exitInterrupted, code, "%v: %s", args, stderr.String())
		require.Empty(t, stdout.String())
		stderr.Reset()
		code = run(t.Context(), args, streams{out: failingWriter{}, err: &stderr})
		require.Equal(t, exitFailed, code)
		require.Contains(t, stderr.String(), "disk full")
	}
}

func TestTablesOfNumbers(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0.0000", 0.00004: "0.0000", -0.00004: "0.0000", 0.00006: "+0.0001", -0.25: "-0.2500", 1: "+1.0000",
	} {
		require.Equal(t, want, signed(in))
	}
	require.Equal(t, "<0.0001", chance(9e-5))
	require.Equal(t, "0.0001", chance(1e-4))
}
