package eval_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
)

func TestParseMeasure(t *testing.T) {
	for in, want := range map[string]string{
		"nDCG":                       "nDCG",
		"nDCG@10":                    "nDCG@10",
		" ndcg @ 10 ":                "nDCG@10",
		"nDCG(dcg='log2')@10":        "nDCG@10",
		"nDCG(dcg='exp-log2')@10":    "nDCG(dcg='exp-log2')@10",
		`nDCG( dcg = "exp-log2" )@5`: "nDCG(dcg='exp-log2')@5",
		"nDCG(dcg=exp-log2)":         "nDCG(dcg='exp-log2')",
		"AP":                         "AP",
		"AP()":                       "AP",
		"MAP":                        "AP",
		"AP(rel=2)":                  "AP(rel=2)",
		"AP(rel=1)@100":              "AP@100",
		"MRR@10":                     "RR@10",
		"RR":                         "RR",
		"Recall@100":                 "R@100",
		"R(rel=3)@7":                 "R(rel=3)@7",
		"Precision@10":               "P@10",
		"P(rel=2)@10":                "P(rel=2)@10",
		"Success@5":                  "Success@5",
		"Rprec":                      "Rprec",
		"RPrec(rel=2)":               "Rprec(rel=2)",
		"BPref":                      "Bpref",
		"Judged@10":                  "Judged@10",
		"Hole@10":                    "Hole@10",
	} {
		m, err := eval.ParseMeasure(in)
		require.NoError(t, err, in)
		require.Equal(t, want, m.String(), in)
		again, err := eval.ParseMeasure(want)
		require.NoError(t, err)
		require.Equal(t, m, again)
	}
}

func TestParseMeasureErrors(t *testing.T) {
	for in, msg := range map[string]string{
		"":                        "no such name",
		"nDGC@10":                 "no such name; known are nDCG, AP",
		"nDCG@":                   "cutoff",
		"nDCG@0":                  "cutoff",
		"nDCG@-1":                 "cutoff",
		"nDCG@+1":                 "cutoff",
		"nDCG@ten":                `"ten" is not an integer from 1`,
		"nDCG@4294967296":         "cutoff",
		"nDCG@10@5":               "no such name",
		"nDCG(rel=2)@10":          `nDCG has no parameter "rel"`,
		"nDCG(dcg='ln')":          "want 'log2' or 'exp-log2'",
		"nDCG(dcg='exp-log2'@10":  "not closed",
		"nDCG(dcg='exp-log2')x@1": "not closed",
		"AP(rel=0)":               "rel",
		"AP(rel=-1)":              "rel",
		"AP(rel)":                 `parameter "rel" has no value`,
		"AP(rel=1,rel=2)":         "twice",
		"AP(rel=1,)":              "no value",
		"AP(dcg='log2')":          `no parameter "dcg"`,
		"P":                       "it needs a cutoff, as in P@10",
		"R(rel=2)":                "it needs a cutoff",
		"Success":                 "it needs a cutoff",
		"Judged":                  "it needs a cutoff",
		"Hole":                    "it needs a cutoff",
		"Judged(rel=2)@10":        `no parameter "rel"`,
		"Rprec@10":                "Rprec has no cutoff",
		"Bpref@10":                "Bpref has no cutoff",
	} {
		m, err := eval.ParseMeasure(in)
		require.ErrorIs(t, err, eval.ErrMeasure, in)
		require.ErrorContains(t, err, msg, in)
		require.Zero(t, m)
	}
	_, err := eval.ParseMeasures("AP", "nope")
	require.ErrorContains(t, err, `bad measure "nope"`)
}

func TestParseMeasureList(t *testing.T) {
	for in, want := range map[string][]string{
		"nDCG@10":                                {"nDCG@10"},
		"nDCG@10,AP,RR":                          {"nDCG@10", "AP", "RR"},
		" MAP , P( rel = 2 )@10\tR@100,":         {"AP", "P(rel=2)@10", "R@100"},
		"nDCG(dcg='exp-log2')@10 nDCG(dcg=log2)": {"nDCG(dcg='exp-log2')@10", "nDCG"},
	} {
		got, err := eval.ParseMeasureList(in)
		require.NoError(t, err, in)
		require.Equal(t, parse(t, want...), got, in)
	}
	for in, msg := range map[string]string{
		"":                  "has none",
		" , ":               "has none",
		"AP,nope":           `bad measure "nope"`,
		"AP,MAP":            `"AP": it is given twice`,
		"P(rel=1)@5,P@5":    `"P@5": it is given twice`,
		"P(rel=1,rel=2)@5":  "rel is given twice",
		"AP(rel=2,RR":       "not closed",
		"AP)),RR,nDCG@10@1": "bad measure",
	} {
		_, err := eval.ParseMeasureList(in)
		require.ErrorIs(t, err, eval.ErrMeasure, in)
		require.ErrorContains(t, err, msg, in)
	}
}

func TestMeasureNames(t *testing.T) {
	_, err := eval.ParseMeasure("nosuch")
	_, known, ok := strings.Cut(err.Error(), "known are ")
	require.True(t, ok, err)
	for name := range strings.SplitSeq(known, ", ") {
		if m, err := eval.ParseMeasure(name); err == nil {
			require.Zero(t, m.Cutoff())
			require.Equal(t, name, m.String())
			continue
		}
		m, err := eval.ParseMeasure(name + "@10")
		require.NoError(t, err)
		require.Equal(t, 10, m.Cutoff())
	}
	require.Empty(t, eval.Measure{}.String())
}
