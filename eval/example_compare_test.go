package eval_test

import (
	"context"
	"fmt"
	"log"

	"github.com/plaid-ir/plaid/eval"
)

// mustEvaluate takes, for each query, the rank of its one relevant document.
func mustEvaluate(ranks ...int) *eval.Result {
	qrels, run := new(eval.Qrels), new(eval.Run)
	for i, rank := range ranks {
		query := fmt.Sprintf("q%d", i+1)
		if err := qrels.Add(query, "d0", 1); err != nil {
			log.Fatal(err)
		}
		for r := 1; r < rank; r++ {
			if err := run.Add(query, eval.Hit{Doc: fmt.Sprintf("d%d", r), Score: float64(-r)}); err != nil {
				log.Fatal(err)
			}
		}
		if err := run.Add(query, eval.Hit{Doc: "d0", Score: float64(-rank)}); err != nil {
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
