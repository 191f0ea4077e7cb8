package eval_test

import (
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

func ExampleWriteRun() {
	run := &eval.Run{Tag: "demo"}
	if err := run.Add("q1", eval.Hit{Doc: "d7", Score: 22.5}, eval.Hit{Doc: "d2", Score: 21.75}); err != nil {
		log.Fatal(err)
	}
	if err := eval.WriteRun(os.Stdout, run); err != nil {
		log.Fatal(err)
	}
	// Output:
	// q1 Q0 d7 1 22.5 demo
	// q1 Q0 d2 2 21.75 demo
}
