package eval_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/eval"
)

func runOf(t testing.TB, text string) *eval.Run {
	t.Helper()
	r, err := eval.ReadRun(strings.NewReader(text), "test.run")
	require.NoError(t, err)
	return r
}

func TestReadRunLayouts(t *testing.T) {
	tests := map[string]struct{ text, tag string }{
		"TREC":       {"2 Q0 b 1 1.5 sys\n2 Q0 a 2 -1e-3 sys\n1 Q0 a 1 0 other\n", "sys"},
		"TREC tabs":  {"2\tQ0\tb\t1\t1.5\tsys\r\n2\tQ0\ta\t2\t-0.001\tsys\r\n1\tQ0\ta\t1\t0\tsys\r\n", "sys"},
		"TSV":        {"2\tb\t1\t1.5\n2\ta\t2\t-0.001\n1\ta\t1\t0.000000\n", ""},
		"TSV header": {"query-id\tdoc-id\trank\tscore\r\n2\tb\t1\t1.5\r\n2\ta\t2\t-0.001\r\n1\ta\t1\t0\r\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, data := range [][]byte{[]byte(tt.text), gzipped(t, tt.text)} {
				r, err := eval.ReadRun(bytes.NewReader(data), "test.run")
				require.NoError(t, err)
				require.Equal(t, []string{"2", "1"}, r.Queries())
				require.Equal(t, []eval.ScoredDocument{{Doc: "b", Score: 1.5, Rank: 1}, {Doc: "a", Score: -0.001, Rank: 2}}, r.Hits("2"))
				require.Equal(t, []eval.ScoredDocument{{Doc: "a", Score: 0, Rank: 1}}, r.Hits("1"))
				require.Equal(t, tt.tag, r.Tag)
				require.Equal(t, 2, r.Len())
				require.False(t, r.Has("3"))
			}
		})
	}
}

func TestReadRunErrors(t *testing.T) {
	tests := map[string]struct {
		text string
		want error
		msg  string
	}{
		"columns":     {"q Q0 d 1 2.5\n", eval.ErrFormat, "x.run:1: malformed line: 5 columns: want 6"},
		"changed":     {"q Q0 d 1 2.5 t\nq d 1 2.5\n", eval.ErrFormat, "x.run:2: malformed line: 4 columns, the lines before have 6"},
		"rank":        {"q Q0 d 1 2.5 t\nq Q0 e two 2.5 t\n", eval.ErrFormat, `x.run:2: malformed line: rank "two" is not an integer`},
		"score":       {"q Q0 d 1 high t\n", eval.ErrFormat, `x.run:1: malformed line: score "high" is not a number`},
		"NaN":         {"q Q0 d 1 nan t\n", eval.ErrFormat, `x.run:1: malformed line: query "q", document "d": score NaN is not finite`},
		"infinite":    {"q Q0 d 1 -Inf t\n", eval.ErrFormat, "x.run:1: "},
		"huge":        {"q Q0 d 1 1e999 t\n", eval.ErrFormat, "x.run:1: "},
		"duplicate":   {"q d 1 2\n\nq e 2 1\nq d 3 0\n", eval.ErrDuplicate, `x.run:4: duplicate: query "q" retrieves document "d" twice`},
		"interleaved": {"q d 1 2\nr d 1 2\ns d 1 2\nr e 2 1\nq e 2 1\nr d 3 0\n", eval.ErrDuplicate, `x.run:6: duplicate: query "r"`},
		"after leave": {"q d 1 2\nr d 1 2\ns d 1 2\nq d 2 1\n", eval.ErrDuplicate, `x.run:4: duplicate: query "q"`},
		"empty id":    {"query-id\tdoc-id\trank\tscore\nq\t\t1\t2\n", eval.ErrFormat, `x.run:2: malformed line: query "q": empty document id`},
		"empty query": {"query-id\tdoc-id\trank\tscore\n\td\t1\t2\n", eval.ErrFormat, "x.run:2: malformed line: empty query id"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := eval.ReadRun(strings.NewReader(tt.text), "x.run")
			require.ErrorIs(t, err, tt.want)
			require.ErrorContains(t, err, tt.msg)
			var at *eval.LineError
			require.ErrorAs(t, err, &at)
		})
	}
}

func TestWriteRun(t *testing.T) {
	r := &eval.Run{}
	require.NoError(t, r.Add("2", eval.ScoredDocument{Doc: "b", Score: 0.1, Rank: 7}, eval.ScoredDocument{Doc: "a", Score: 22.125183105, Rank: 3}))
	require.NoError(t, r.Add("none"))
	require.NoError(t, r.Add("1", eval.ScoredDocument{Doc: "z", Score: 1e10}, eval.ScoredDocument{Doc: "y", Score: -3}))
	var buf bytes.Buffer
	require.NoError(t, eval.TREC.WriteRun(&buf, r))
	require.Equal(t, "2 Q0 a 1 22.125183 plaid\n2 Q0 b 2 0.1 plaid\n1 Q0 z 1 1e+10 plaid\n1 Q0 y 2 -3 plaid\n", buf.String())
}

func TestWriteRunErrors(t *testing.T) {
	hit := eval.ScoredDocument{Doc: "d", Score: 1}
	for name, build := range map[string]func(*eval.Run) error{
		"query": func(r *eval.Run) error { return r.Add("a b", hit) },
		"doc":   func(r *eval.Run) error { return r.Add("q", eval.ScoredDocument{Doc: "a\tb", Score: 1}) },
		"score": func(r *eval.Run) error { return r.Add("q", eval.ScoredDocument{Doc: "d", Score: math.MaxFloat64}) },
		"tag":   func(r *eval.Run) error { r.Tag = "my run"; return r.Add("q", hit) },
	} {
		t.Run(name, func(t *testing.T) {
			var r eval.Run
			require.NoError(t, build(&r))
			require.ErrorIs(t, eval.TREC.WriteRun(&bytes.Buffer{}, &r), eval.ErrFormat)
		})
	}
	var r eval.Run
	require.NoError(t, r.Add("q", hit))
	require.ErrorIs(t, eval.TREC.WriteRun(brokenWriter{}, &r), errBroken)
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

// The digits of this float32 are nearest to it, yet the float64 of the same
// digits rounds to its neighbour.
func TestWriteRunDoubleRounding(t *testing.T) {
	const score = float32(0x1.5c87fap-84)
	var r eval.Run
	require.NoError(t, r.Add("q", eval.ScoredDocument{Doc: "d", Score: float64(score)}))
	var buf bytes.Buffer
	require.NoError(t, eval.TREC.WriteRun(&buf, &r))
	back := runOf(t, buf.String())
	require.Equal(t, math.Float32bits(score), math.Float32bits(float32(back.Hits("q")[0].Score)))
}

func TestRunRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r eval.Run
		n := rapid.IntRange(0, 5).Draw(t, "queries")
		id := rapid.StringMatching(`[a-zA-Z0-9äß:/_-]{1,6}`)
		for range n {
			query := id.Draw(t, "query")
			docs := rapid.SliceOfNDistinct(id, 0, 6, rapid.ID).Draw(t, "docs")
			if r.Has(query) {
				continue
			}
			var hits []eval.ScoredDocument
			for i, doc := range docs {
				bits := rapid.Uint32().Draw(t, "score")
				score := math.Float32frombits(bits)
				if score != score || math.IsInf(float64(score), 0) {
					score = 1
				}
				hits = append(hits, eval.ScoredDocument{Doc: doc, Score: float64(score), Rank: i + 1})
			}
			require.NoError(t, r.Add(query, hits...))
		}
		var buf bytes.Buffer
		require.NoError(t, eval.TREC.WriteRun(&buf, &r))
		back, err := eval.ReadRun(&buf, "back")
		require.NoError(t, err)
		for _, query := range r.Queries() {
			want, got := r.Hits(query), back.Hits(query)
			require.Len(t, got, len(want), query)
			for i := range want {
				if want[i].Doc != got[i].Doc || want[i].Rank != got[i].Rank || float32(want[i].Score) != float32(got[i].Score) {
					t.Fatalf("query %q: %+v came back as %+v", query, want[i], got[i])
				}
			}
		}
	})
}
