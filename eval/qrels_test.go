package eval_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
)

func gzipped(t testing.TB, s string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write([]byte(s))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func qrelsOf(t testing.TB, text string) *eval.Qrels {
	t.Helper()
	q, err := eval.ReadQrels(strings.NewReader(text), "test.qrels")
	require.NoError(t, err)
	return q
}

// judgements flattens qrels to "query doc grade" in order.
func judgements(q *eval.Qrels) (all []any) {
	for _, query := range q.Queries() {
		for doc, grade := range q.Judgements(query) {
			all = append(all, [3]any{query, doc, grade})
		}
	}
	return all
}

func TestReadQrelsLayouts(t *testing.T) {
	want := []any{
		[3]any{"10", "d2", 1}, [3]any{"10", "d1", 0}, [3]any{"9", "d1", -1}, [3]any{"9", "x", 3},
	}
	tests := map[string]string{
		"BEIR":                "query-id\tcorpus-id\tscore\n10\td2\t1\n10\td1\t0\n9\td1\t-1\n9\tx\t3\n",
		"BEIR CRLF":           "query-id\tcorpus-id\tscore\r\n10\td2\t1\r\n10\td1\t0\r\n9\td1\t-1\r\n9\tx\t3\r\n",
		"BEIR no last LF":     "query-id\tcorpus-id\tscore\n10\td2\t1\n10\td1\t0\n9\td1\t-1\n9\tx\t3",
		"BEIR byte order":     "\xef\xbb\xbfquery-id\tcorpus-id\tscore\n10\td2\t1\n10\td1\t0\n9\td1\t-1\n9\tx\t3",
		"TREC blanks":         "10 0 d2 1\n10 0 d1 0\n\n9  0\td1   -1\n9 0 x 3\n",
		"TREC tabs":           "10\t0\td2\t1\n10\tQ0\td1\t0\n9\t0\td1\t-1\n9\t0\tx\t3\n",
		"plain":               "10\td2\t1\n10\td1\t0\n9\td1\t-1\n9\tx\t3\n",
		"plain CRLF":          "10\td2\t1\r\n10\td1\t0\r\n \r\n9\td1\t-1\r\n9\tx\t3\r\n",
		"interleaved":         "10\td2\t1\n9\td1\t-1\n10\td1\t0\n9\tx\t3\n",
		"same judgement anew": "10\td2\t1\n10\td1\t0\n10\td2\t1\n9\td1\t-1\n9\tx\t3\n",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			q := qrelsOf(t, text)
			require.Equal(t, []string{"10", "9"}, q.Queries())
			require.Equal(t, want, judgements(q))

			packed, err := eval.ReadQrels(bytes.NewReader(gzipped(t, text)), "test.gz")
			require.NoError(t, err)
			require.Equal(t, want, judgements(packed))
		})
	}
}

func TestReadQrelsIDs(t *testing.T) {
	q := qrelsOf(t, "query-id\tcorpus-id\tscore\na b\t 007 \t1\nä\u00a0ö\t<dbpedia:X>\t2\n")
	require.Equal(t, []any{[3]any{"a b", "007", 1}, [3]any{"ä\u00a0ö", "<dbpedia:X>", 2}}, judgements(q))

	// A no-break space is part of an id, not a separator.
	q = qrelsOf(t, "ä\u00a0ö 0 d 2\n")
	require.Equal(t, []any{[3]any{"ä\u00a0ö", "d", 2}}, judgements(q))
	for range q.Judgements("other") {
		t.Fatal("a query that is not judged has judgements")
	}
	require.Empty(t, judgements(new(eval.Qrels)))
}

func TestReadQrelsErrors(t *testing.T) {
	tests := map[string]struct {
		text string
		want error
		msg  string
	}{
		"grade":         {"q\td\t1\nq\te\tone\n", eval.ErrFormat, `x.tsv:2: malformed line: grade "one" is not an integer`},
		"fraction":      {"q 0 d 1.5\n", eval.ErrFormat, `x.tsv:1: malformed line: grade "1.5" is not an integer`},
		"range":         {"q d 1\nq e 4294967296\n", eval.ErrFormat, `x.tsv:2: malformed line: query "q", document "e": grade 4294967296 is out of range`},
		"columns":       {"\nq\td\n", eval.ErrFormat, "x.tsv:2: malformed line: 2 columns: want 4"},
		"other columns": {"q 0 d 1\nq d 1\n", eval.ErrFormat, "x.tsv:2: malformed line: 3 columns, the lines before have 4"},
		"after header":  {"query-id\tcorpus-id\tscore\nq\t0\td\t1\n", eval.ErrFormat, "x.tsv:2: malformed line: 4 columns, the lines before have 3"},
		"empty id":      {"query-id\tcorpus-id\tscore\r\nq\td\t1\r\nq\t \t1\r\n", eval.ErrFormat, `x.tsv:3: malformed line: query "q": empty document id`},
		"empty query":   {"query-id\tcorpus-id\tscore\n\td\t1\n", eval.ErrFormat, "x.tsv:2: malformed line: empty query id"},
		"two grades":    {"q d 1\nq e 1\nq d 2\n", eval.ErrDuplicate, `x.tsv:3: duplicate judgement: query "q", document "d" has grade 1 and now 2`},
		"second header": {"q d 1\nquery-id\tcorpus-id\tscore\n", eval.ErrFormat, `x.tsv:2: malformed line: grade "score"`},
		"long line":     {"q d 1\n" + strings.Repeat("x", 2<<20), eval.ErrFormat, "x.tsv:2: malformed line: line is too long"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := eval.ReadQrels(strings.NewReader(tt.text), "x.tsv")
			require.ErrorIs(t, err, tt.want)
			require.ErrorContains(t, err, tt.msg)
			var at *eval.LineError
			require.ErrorAs(t, err, &at)
			require.Equal(t, "x.tsv", at.File)
		})
	}
}

func TestReadQrelsDamagedGzip(t *testing.T) {
	var text strings.Builder
	for range 2000 {
		text.WriteString("q d 1\n")
	}
	packed := gzipped(t, text.String())
	for _, cut := range []int{3, 12, len(packed) - 9, len(packed) - 1} {
		_, err := eval.ReadQrels(bytes.NewReader(packed[:cut]), "x.gz")
		var at *eval.LineError
		require.ErrorAs(t, err, &at, "cut at %d", cut)
		require.Positive(t, at.Line)
	}
	packed[len(packed)-8] ^= 1 // its checksum
	_, err := eval.ReadQrels(bytes.NewReader(packed), "x.gz")
	require.ErrorIs(t, err, gzip.ErrChecksum)
}

func TestQrelsAdd(t *testing.T) {
	var q eval.Qrels
	require.NoError(t, q.Add("q", "d", 1))
	require.NoError(t, q.Add("q", "d", 1))
	require.ErrorIs(t, q.Add("q", "d", 0), eval.ErrDuplicate)
	require.ErrorIs(t, q.Add("", "d", 0), eval.ErrFormat)
	require.ErrorIs(t, q.Add("q", "", 0), eval.ErrFormat)
	require.ErrorIs(t, q.Add("q", "e", math.MinInt32), eval.ErrFormat)
	require.NoError(t, q.Add("q", "e", -math.MaxInt32))
	require.Equal(t, 1, q.Len())
	require.True(t, q.Judged("q"))
	require.False(t, q.Judged("r"))
}

func TestLoadQrelsOf(t *testing.T) {
	dir := t.TempDir() // without corpus and queries
	require.NoError(t, os.Mkdir(filepath.Join(dir, "qrels"), 0o755))
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "qrels", name), data, 0o644))
	}
	_, err := eval.LoadSplit(dir, "test")
	require.ErrorIs(t, err, fs.ErrNotExist)
	write("dev.tsv", []byte("query-id\tcorpus-id\tscore\r\nq 1\td\t1\r\n"))
	write("train.tsv.gz", gzipped(t, "q d 1\nr d 1\n"))
	write("notes.txt", nil)

	for split, queries := range map[string][]string{"dev": {"q 1"}, "train": {"q", "r"}} {
		q, err := eval.LoadSplit(dir, split)
		require.NoError(t, err)
		require.Equal(t, queries, q.Queries())
	}
	_, err = eval.LoadSplit(dir, "test")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "test.tsv")
	require.ErrorContains(t, err, "there is dev, train")
	for _, split := range []string{"", "../dev", `a\b`, ".."} {
		_, err = eval.LoadSplit(dir, split)
		require.ErrorContains(t, err, "is not the name of a file in qrels", split)
	}
	write("dev.tsv", []byte("q d 1\nq d 2\n"))
	_, err = eval.LoadSplit(dir, "dev")
	require.ErrorIs(t, err, eval.ErrDuplicate)
	require.ErrorContains(t, err, "dev.tsv:2: ")
}

func TestLoadQrels(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "test.tsv")
	require.NoError(t, os.WriteFile(path, []byte("q d x\n"), 0o644))
	_, err := eval.LoadQrels(path)
	require.ErrorContains(t, err, path+":1: ")

	_, err = eval.LoadQrels(filepath.Join(dir, "none"))
	require.True(t, errors.Is(err, fs.ErrNotExist), "%v", err)
	_, err = eval.LoadQrels(dir)
	require.ErrorContains(t, err, "is a folder")
	if info, err := os.Stat("/dev/zero"); err == nil && !info.Mode().IsRegular() { // reading it would not end
		_, err = eval.LoadQrels("/dev/zero")
		require.ErrorContains(t, err, "is a device")
	}
}
