package eval_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
)

// Runs of MS MARCO have three columns; the first rank is the best.
func TestReadRunOfRanks(t *testing.T) {
	for _, text := range []string{
		"7\tb\t1\n7\ta\t2\n8\tc\t1\n", "7 b 1\r\n7 a 2\r\n\r\n8 c 1", "\ufeffqid\tpid\trank\n7\tb\t1\n7\ta\t2\n8\tc\t1\n",
	} {
		r, err := eval.ReadRun(strings.NewReader(text), "x.run")
		require.NoError(t, err, text)
		require.Equal(t, []string{"7", "8"}, r.Queries())
		for _, ties := range []eval.Ties{eval.TiesTREC, eval.TiesTREC10, eval.TiesRank} {
			ranked := r.Ranked("7", ties)
			require.Equal(t, []string{"b", "a"}, []string{ranked[0].Doc, ranked[1].Doc})
		}
	}
	for text, says := range map[string]string{
		"q d 1.5\n": `rank "1.5" is not an integer`, "q d 99999999\n": "rank 99999999 is beyond 16777216",
		"q d 1\nq d 2\n": "retrieves document", "q d\n": "2 columns: want 6 (query, Q0, document, rank, score, tag), 4",
	} {
		_, err := eval.ReadRun(strings.NewReader(text), "x.run")
		require.ErrorContains(t, err, says)
	}
}

// Ids with blanks are read where tabs alone make columns, and what could be read in two ways is refused.
func TestBlanksInIDs(t *testing.T) {
	q, err := eval.ReadQrels(strings.NewReader("q 1\t0\tdoc a\t1.0\nq 1\t0\tb\t-1\n"), "x")
	require.NoError(t, err)
	require.Equal(t, []string{"q 1"}, q.Queries())
	require.Equal(t, map[string]int{"doc a": 1, "b": -1}, maps.Collect(q.Judgements("q 1")))
	_, err = eval.ReadRun(strings.NewReader("q 1\td 1\t1\t0.5\n"), "x")
	require.ErrorIs(t, err, eval.ErrFormat)
	require.ErrorContains(t, err, "x:1: malformed line: 4 columns if tabs part them, and 6 if white space does")
	require.ErrorContains(t, err, "(query-id, corpus-id, rank, score)")
	_, err = eval.ReadQrels(strings.NewReader("q1\tdoc a\t1\n"), "x")
	require.ErrorContains(t, err, "3 columns if tabs part them, and 4 if white space does")
	q, err = eval.ReadQrels(strings.NewReader("query-id\tcorpus-id\tscore\n\"q1\t\"doc a\"\t1\n"), "x")
	require.NoError(t, err)
	require.Equal(t, map[string]int{`"doc a"`: 1}, maps.Collect(q.Judgements(`"q1`)), "a quotation mark is a character")
	for grade, good := range map[string]bool{"1.0": true, "2.000": true, "1.5": false, "1.": false, ".0": false, "1e0": false, "1.0.0": false} {
		_, err := eval.ReadQrels(strings.NewReader("q 0 d "+grade+"\n"), "x")
		require.Equal(t, good, err == nil, grade)
	}
}

// A run with a header and tabs has ids with blanks, and is read again as it was.
func TestWriteRunTSV(t *testing.T) {
	var run eval.Run
	require.NoError(t, run.Add("q 1", eval.ScoredDocument{Doc: "doc a", Score: 0.5, Rank: 1}, eval.ScoredDocument{Doc: "b", Score: 0.25, Rank: 2}))
	var b bytes.Buffer
	require.NoError(t, eval.TSV.WriteRun(&b, &run))
	require.Equal(t, "query-id\tdoc-id\trank\tscore\nq 1\tdoc a\t1\t0.5\nq 1\tb\t2\t0.25\n", b.String())
	back, err := eval.ReadRun(&b, "x")
	require.NoError(t, err)
	require.Equal(t, run.Hits("q 1"), back.Hits("q 1"))
	require.ErrorContains(t, eval.TREC.WriteRun(&b, &run), `query id "q 1" has white space, which separates the columns of a TREC run`)
	for id, good := range map[string]bool{"a b": true, "a\tb": false, " a": false, "a\n": false, "ä\u00a0b": true} {
		require.Equal(t, good, eval.TSV.CheckID("document", id) == nil, "%q", id)
		require.Equal(t, good && id != "a b", eval.TREC.CheckID("document", id) == nil, "%q", id)
	}
}

func TestReadPackedRun(t *testing.T) {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	_, err = z.Write([]byte("q Q0 d 1 2.5 t\n"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	r, err := eval.ReadRun(bytes.NewReader(b.Bytes()), "x")
	require.NoError(t, err)
	require.Equal(t, "d", r.Hits("q")[0].Doc)
	_, err = eval.ReadRun(bytes.NewReader(b.Bytes()[:b.Len()-3]), "x.zst")
	require.ErrorContains(t, err, "bad compressed data: zstd: is cut short")
}
