package eval_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
)

// requireLineError fails unless err names a line of the file.
func requireLineError(t *testing.T, err error) {
	t.Helper()
	var at *eval.LineError
	require.ErrorAs(t, err, &at)
	require.Positive(t, at.Line)
	require.Equal(t, "fuzz", at.File)
}

func FuzzReadQrels(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "query-id\tcorpus-id\tscore\r\nq\td\t1\r\n", "q 0 d 1\nq 0 e -1\n", "q\td\t2\nq\td\t3\n",
		"query-id\tcorpus-id\tscore\na b\t\t1\n", "q d 99999999999999999999\n", "\xef\xbb\xbfq d 1", "\x1f\x8b\x08", "q 1\t0\td 1\t1.0\n", "q 1\td\t1\n", "\x28\xb5\x2f\xfd", "\xfd7zXZ\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Add(gzipped(f, "q 0 d 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := eval.ReadQrels(bytes.NewReader(data), "fuzz")
		if err != nil {
			requireLineError(t, err)
			return
		}
		for _, query := range q.Queries() {
			n := 0
			for doc, grade := range q.Judgements(query) {
				require.True(t, query != "" && doc != "")
				require.NoError(t, q.Add(query, doc, grade), "the grade that it has")
				n++
			}
			require.Positive(t, n)
		}
	})
}

func FuzzReadRun(f *testing.F) {
	for _, seed := range []string{
		"", "q Q0 d 1 2.5 tag\nq Q0 e 2 -1e-9 tag\n", "q\td\t1\t22.990512\n", "qid\tdocid\trank\tscore\r\nq\td e\t0\t1\r\n",
		"q Q0 d 1 nan tag\n", "q Q0 d 1 0x1p-3 tag\n", "a d 1 1\nb d 1 1\na d 2 0\n", "q\td\t1\nq\te\t2\n", "qid\tpid\trank\nq\td e\t1\n", "q\td e\t1\t2\n", "q d 1 7.038531e-26\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		run, err := eval.ReadRun(bytes.NewReader(data), "fuzz")
		if err != nil {
			requireLineError(t, err)
			return
		}
		var text bytes.Buffer
		if err := eval.TREC.WriteRun(&text, run); err != nil {
			require.ErrorIs(t, err, eval.ErrFormat)
			return
		}
		if bytes.HasPrefix(text.Bytes(), []byte("\x1f\x8b")) || strings.HasPrefix(text.String(), "\xef\xbb\xbf") {
			return // an id that reads as the mark of another format
		}
		back, err := eval.ReadRun(bytes.NewReader(text.Bytes()), "fuzz")
		require.NoError(t, err)
		require.Equal(t, run.Queries(), back.Queries())
		var again bytes.Buffer
		require.NoError(t, eval.TREC.WriteRun(&again, back))
		require.Equal(t, text.String(), again.String())
	})
}

func FuzzParseMeasure(f *testing.F) {
	for _, seed := range append([]string{"", "nDCG(dcg=\"log2\")@5", "AP(rel=2", "@", "(", "P(rel=1,rel=2)@3", "mrr@10"}, someMeasures...) {
		f.Add(seed)
	}
	qrels, run := qrelsOf(f, "q a 1\nq b 0\nq c 3\n"), runOf(f, "q c 1 3\nq b 2 2\nq x 3 1\n")
	f.Fuzz(func(t *testing.T, name string) {
		m, err := eval.ParseMeasure(name)
		if err != nil {
			require.True(t, errors.Is(err, eval.ErrMeasure))
			return
		}
		again, err := eval.ParseMeasure(m.String())
		require.NoError(t, err)
		require.Equal(t, m, again)
		res, err := eval.Evaluate(qrels, run, []eval.Measure{m}, eval.Options{})
		require.NoError(t, err)
		require.True(t, res.Means[0] >= 0 && res.Means[0] <= 1)
	})
}
