package eval_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
)

// trecNames are pytrec_eval's names of our measures. nDCG has no relevance level.
var trecNames = map[string]string{
	"ndcg": "nDCG", "ndcg_cut_5": "nDCG@5", "ndcg_cut_10": "nDCG@10", "ndcg_cut_100": "nDCG@100",
	"map": "AP", "map_cut_10": "AP@10", "recip_rank": "RR",
	"recall_5": "R@5", "recall_10": "R@10", "recall_100": "R@100",
	"P_1": "P@1", "P_5": "P@5", "P_10": "P@10",
	"success_1": "Success@1", "success_5": "Success@5", "success_10": "Success@10",
	"Rprec": "Rprec", "bpref": "Bpref",
}

// atLevel adds rel=level to a name.
func atLevel(name string, level int) string {
	if strings.HasPrefix(name, "nDCG") || level == 1 {
		return name
	}
	family, cutoff, _ := strings.Cut(name, "@")
	family += "(rel=" + strconv.Itoa(level) + ")"
	if cutoff != "" {
		family += "@" + cutoff
	}
	return family
}

// goldenResult evaluates the made-up collection at a relevance level; index maps
// pytrec_eval's names to the columns of the result.
func goldenResult(t *testing.T, level int) (res *eval.Result, index map[string]int) {
	t.Helper()
	qrels, err := eval.LoadQrels(filepath.Join("testdata", "golden", "made-up.qrels.tsv"))
	require.NoError(t, err)
	run, err := eval.LoadRun(filepath.Join("testdata", "golden", "made-up.run.trec"))
	require.NoError(t, err)
	index = make(map[string]int)
	var names []string
	for trec, name := range trecNames {
		index[trec] = len(names)
		names = append(names, atLevel(name, level))
	}
	return evaluate(t, qrels, run, eval.Options{}, names...), index
}

func TestGoldenPerQuery(t *testing.T) {
	for level, file := range map[int]string{1: "made-up.perquery.rel1.tsv", 2: "made-up.perquery.rel2.tsv"} {
		t.Run(file, func(t *testing.T) {
			res, index := goldenResult(t, level)
			rows := make(map[string]eval.QueryResult)
			for _, q := range res.Queries {
				rows[q.Query] = q
			}
			f, err := os.Open(filepath.Join("testdata", "golden", file))
			require.NoError(t, err)
			defer f.Close()
			compared := make(map[string]int)
			for sc := bufio.NewScanner(f); sc.Scan(); {
				cols := strings.Split(sc.Text(), "\t")
				if cols[0] == "query-id" {
					continue
				}
				want, err := strconv.ParseFloat(cols[2], 64)
				require.NoError(t, err)
				q, ok := rows[cols[0]]
				require.True(t, ok, cols[0])
				require.True(t, q.InRun, cols[0])
				var got float64
				i, isMeasure := index[cols[1]]
				switch {
				case isMeasure:
					got = q.Values[i]
				case cols[1] == "num_ret":
					got = float64(q.Retrieved)
				case level != 1: // the other counts are those of level 1
					continue
				case cols[1] == "num_rel":
					got = float64(q.Relevant)
				case cols[1] == "num_rel_ret":
					got = float64(q.RelevantRetrieved)
				default:
					t.Fatalf("golden measure %q is not compared", cols[1])
				}
				require.InDelta(t, want, got, 1e-12, "%s %s", cols[0], cols[1])
				compared[cols[1]]++
			}
			for name := range index {
				require.Equal(t, 33, compared[name], name)
			}
			missing := rows["q4-missing-from-run"]
			require.False(t, missing.InRun)
			require.Equal(t, make([]float64, len(index)), missing.Values)
		})
	}
}

func TestGoldenAverages(t *testing.T) {
	res, index := goldenResult(t, 1)
	data, err := os.ReadFile(filepath.Join("testdata", "golden", "made-up.aggregate.json"))
	require.NoError(t, err)
	var want struct {
		Judged    int                `json:"queries_in_qrels"`
		Relevant  int                `json:"queries_with_a_relevant"`
		Evaluated int                `json:"queries_evaluated_by_pytrec_eval"`
		OverEval  map[string]float64 `json:"mean_over_evaluated"`
		OverRel   map[string]float64 `json:"mean_over_all_with_a_relevant_missing_is_0"`
	}
	require.NoError(t, json.Unmarshal(data, &want))
	require.Equal(t, want.Judged, res.Count(eval.AverageJudged))
	require.Equal(t, want.Relevant, res.Count(eval.AverageRelevant))
	require.Equal(t, want.Evaluated, res.Count(eval.AverageEvaluated))
	require.Equal(t, 1, res.Unjudged)
	for trec, i := range index {
		require.Contains(t, want.OverEval, trec)
		require.InDelta(t, want.OverEval[trec], res.Mean(i, eval.AverageEvaluated), 1e-12, trec)
		require.InDelta(t, want.OverRel[trec], res.Mean(i, eval.AverageRelevant), 1e-12, trec)
	}
}

func TestPublishedNDCG(t *testing.T) {
	for set, want := range map[string]float64{"cranfield": 0.5470, "lotte-500": 0.9687, "scifact-sample": 0.8731} {
		t.Run(set, func(t *testing.T) {
			qrels, err := eval.LoadSplit(realdata.Path(t, "data", set), "test")
			require.NoError(t, err)
			run, err := eval.LoadRun(realdata.Path(t, "data", set, "vectors", "exact-top100.tsv"))
			require.NoError(t, err)
			for _, ties := range []eval.Ties{eval.TiesTREC, eval.TiesRank} {
				res := evaluate(t, qrels, run, eval.Options{Ties: ties}, "nDCG@10")
				require.InDelta(t, want, res.Means[0], 0.00005, ties)
				require.Equal(t, qrels.Len(), res.Count(eval.AverageEvaluated))
			}
		})
	}
}
