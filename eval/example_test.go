package eval_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/plaid-ir/plaid/eval"
)

func ExampleEvaluate() {
	qrels, err := eval.ReadQrels(strings.NewReader("q1 0 d1 2\nq1 0 d2 1\nq2 0 d3 1\n"), "test.qrels")
	if err != nil {
		log.Fatal(err)
	}
	run, err := eval.ReadRun(strings.NewReader("q1 Q0 d2 1 9.5 demo\nq1 Q0 d1 2 9.0 demo\n"), "demo.run")
	if err != nil {
		log.Fatal(err)
	}
	measures, err := eval.ParseMeasures("nDCG@10", "P(rel=2)@2", "MRR@10")
	if err != nil {
		log.Fatal(err)
	}
	res, err := eval.Evaluate(qrels, run, measures, eval.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for i, m := range res.Measures {
		fmt.Printf("%-10v %.4f over %d judged queries, %.4f over %d in the run\n", m,
			res.Means[i], res.Count(eval.AverageJudged),
			res.Mean(i, eval.AverageEvaluated), res.Count(eval.AverageEvaluated))
	}
	// Output:
	// nDCG@10    0.4299 over 2 judged queries, 0.8597 over 1 in the run
	// P(rel=2)@2 0.2500 over 2 judged queries, 0.5000 over 1 in the run
	// RR@10      0.5000 over 2 judged queries, 1.0000 over 1 in the run
}

func ExampleParseMeasure() {
	for _, name := range []string{"MAP", "nDCG(dcg='exp-log2')@10", "P(rel=2)@10", "P"} {
		m, err := eval.ParseMeasure(name)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(m)
	}
	// Output:
	// AP
	// nDCG(dcg='exp-log2')@10
	// P(rel=2)@10
	// bad measure "P": it needs a cutoff, as in P@10
}

func ExampleLayout_WriteRun() {
	run := &eval.Run{Tag: "demo"}
	if err := run.Add("q1", eval.ScoredDocument{Doc: "d7", Score: 22.5}, eval.ScoredDocument{Doc: "d2", Score: 21.75}); err != nil {
		log.Fatal(err)
	}
	if err := eval.TREC.WriteRun(os.Stdout, run); err != nil {
		log.Fatal(err)
	}
	// Output:
	// q1 Q0 d7 1 22.5 demo
	// q1 Q0 d2 2 21.75 demo
}

// mustEvaluate takes, for each query, the rank of its one relevant document.
func mustEvaluate(ranks ...int) *eval.Result {
	qrels, run := new(eval.Qrels), new(eval.Run)
	for i, rank := range ranks {
		query := fmt.Sprintf("q%d", i+1)
		if err := qrels.Add(query, "d0", 1); err != nil {
			log.Fatal(err)
		}
		for r := 1; r < rank; r++ {
			if err := run.Add(query, eval.ScoredDocument{Doc: fmt.Sprintf("d%d", r), Score: float64(-r)}); err != nil {
				log.Fatal(err)
			}
		}
		if err := run.Add(query, eval.ScoredDocument{Doc: "d0", Score: float64(-rank)}); err != nil {
			log.Fatal(err)
		}
	}
	measures, err := eval.ParseMeasures("RR@10")
	if err != nil {
		log.Fatal(err)
	}
	res, err := eval.Evaluate(qrels, run, measures, eval.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return res
}

func ExampleCompare() {
	a := mustEvaluate(1, 1, 2, 1, 3, 1, 1, 2, 1, 5)
	b := mustEvaluate(1, 2, 4, 1, 3, 2, 5, 1, 1, 10)
	c, err := eval.Compare(a, b, 0, eval.CompareOptions{Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: %.4f and %.4f, difference %+.4f\n", c.Measure, c.MeanA, c.MeanB, c.Difference)
	fmt.Printf("%d wins, %d ties, %d losses\n", c.Wins, c.Ties, c.Losses)
	fmt.Printf("randomisation: p = %.4f, exact: %v\n", c.P, c.Exact)
	// Output:
	// RR@10: 0.7533 and 0.5883, difference +0.1650
	// 5 wins, 4 ties, 1 losses
	// randomisation: p = 0.2188, exact: true
}

func ExampleCompareAll() {
	baseline := mustEvaluate(2, 2, 2, 2, 2, 2, 2, 2)
	systems := []*eval.Result{
		mustEvaluate(1, 1, 1, 1, 1, 1, 1, 1),
		mustEvaluate(1, 1, 1, 1, 1, 1, 2, 3),
	}
	all, err := eval.CompareAll(context.Background(), baseline, systems, eval.CompareOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for i, measures := range all {
		for _, c := range measures {
			fmt.Printf("%v, system %d: %+.4f, p = %.4f, after Holm %.4f\n", c.Measure, i, c.Difference, c.P, c.Holm)
		}
	}
	// Output:
	// RR@10, system 0: +0.5000, p = 0.0078, after Holm 0.0156
	// RR@10, system 1: +0.3542, p = 0.0312, after Holm 0.0312
}
