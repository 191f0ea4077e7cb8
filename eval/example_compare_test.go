package eval_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/plaid-ir/plaid/eval"
)

// mustRun and mustEvaluate keep the examples short.
func mustRun(text string) *eval.Run {
	run, err := eval.ReadRun(strings.NewReader(text), "example.run")
	if err != nil {
		log.Fatal(err)
	}
	return run
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

func ExampleAgree() {
	exhaustive := mustRun("q1 d1 1 9.0\nq1 d2 2 8.0\nq1 d3 3 7.0\nq2 d4 1 9.0\nq2 d5 2 8.0\n")
	pruned := mustRun("q1 d2 1 9.0\nq1 d1 2 8.0\nq1 d3 3 7.0\nq2 d4 1 9.0\nq2 d6 2 6.0\n")
	agreement, err := eval.Agree(pruned, exhaustive, eval.AgreementOptions{K: 2, P: 0.8})
	if err != nil {
		log.Fatal(err)
	}
	for _, q := range agreement.Queries {
		fmt.Printf("%s  overlap@2 %.2f  RBO %.3f  tau %.3f %v\n", q.Query, q.Overlap, q.RBO, q.Tau, q.TauOK)
	}
	fmt.Printf("mean: overlap@2 %.2f, RBO %.3f, tau %.3f of %d\n",
		agreement.Overlap, agreement.RBO, agreement.Tau, agreement.TauQueries)
	// Output:
	// q1  overlap@2 1.00  RBO 0.800  tau 0.333 true
	// q2  overlap@2 0.50  RBO 0.600  tau 0.000 false
	// mean: overlap@2 0.75, RBO 0.700, tau 0.333 of 1
}

func ExampleRBO() {
	v, err := eval.RBO([]string{"d1", "d2", "d3"}, []string{"d2", "d1", "d3", "d9"}, 0.9)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f\n", v)
	// Output: 0.9000
}

func ExampleKendallTau() {
	a := []eval.Hit{{Doc: "d1", Score: 9}, {Doc: "d2", Score: 8}, {Doc: "d3", Score: 8}}
	b := []eval.Hit{{Doc: "d1", Score: 5}, {Doc: "d2", Score: 4}, {Doc: "d3", Score: 3}}
	tau, ok := eval.KendallTau(a, b, eval.TiesTREC)
	fmt.Printf("%.4f %v\n", tau, ok)
	// Output: 0.8165 true
}

func ExampleCompare() {
	a := mustEvaluate(1, 1, 2, 1, 3, 1, 1, 2, 1, 5)
	b := mustEvaluate(1, 2, 4, 1, 3, 2, 5, 1, 1, 10)
	c, err := eval.Compare(a, b, 0, eval.CompareOptions{Differing: 2, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: %.4f and %.4f, difference %+.4f\n", c.Measure, c.MeanA, c.MeanB, c.Difference)
	fmt.Printf("%d wins, %d ties, %d losses\n", c.Wins, c.Ties, c.Losses)
	fmt.Printf("t(%d) = %.3f, p = %.4f\n", c.TTest.DF, c.TTest.T, c.TTest.P)
	fmt.Printf("randomisation: p = %.4f, exact: %v\n", c.Randomisation.P, c.Randomisation.Exact)
	fmt.Printf("bootstrap: %.0f%% interval %.3f to %.3f\n", 100*c.Bootstrap.Confidence, c.Bootstrap.Low, c.Bootstrap.High)
	for _, q := range c.Differing {
		fmt.Printf("%s: %.2f and %.2f\n", q.Query, q.A, q.B)
	}
	// Output:
	// RR@10: 0.7533 and 0.5883, difference +0.1650
	// 5 wins, 4 ties, 1 losses
	// t(9) = 1.435, p = 0.1852
	// randomisation: p = 0.2188, exact: true
	// bootstrap: 95% interval -0.050 to 0.385
	// q7: 1.00 and 0.20
	// q2: 1.00 and 0.50
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
	for _, m := range all {
		for i, s := range m.Systems {
			fmt.Printf("%v, system %d: %+.4f, p = %.4f, after Holm %.4f\n",
				m.Measure, i, s.Difference, s.Randomisation.P, s.HolmRandomisation)
		}
	}
	// Output:
	// RR@10, system 0: +0.5000, p = 0.0078, after Holm 0.0156
	// RR@10, system 1: +0.3542, p = 0.0312, after Holm 0.0312
}

func ExampleHolm() {
	adjusted, err := eval.Holm([]float64{0.01, 0.04, 0.03, 0.005})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.3f\n", adjusted)
	// Output: [0.030 0.060 0.060 0.020]
}
