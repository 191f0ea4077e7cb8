package main

import (
	"bytes"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/eval"
)

// render prints the comparisons of runs with the first one, the baseline.
func (c *compareFlags) render(baseline string, results []judged, others []compared) ([]byte, error) {
	switch c.format {
	case "json":
		return encodeJSON(c.object(baseline, others))
	case "tsv":
		return c.tsv(others), nil
	}
	return c.table(baseline, results, others), nil
}

// table has the means of all runs, then a part for each run but the first.
func (c *compareFlags) table(baseline string, results []judged, others []compared) []byte {
	var b bytes.Buffer
	if results != nil {
		meansTable(&b, &c.evalFlags, results)
		b.WriteByte('\n')
	}
	for i, o := range others {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s against %s\n\n", printable(o.name, pathColumn), printable(baseline, pathColumn))
		if len(o.measures) > 0 {
			c.differences(&b, o.measures)
			b.WriteByte('\n')
			pValues(&b, o.measures)
			b.WriteByte('\n')
			differing(&b, o.measures[0])
		}
		agreementText(&b, o.agreement)
		if len(o.measures) == 0 {
			leastAlike(&b, o.agreement, c.shown)
		}
	}
	if results != nil {
		tests := len(c.measures) * len(others)
		over := "all runs and measures"
		if c.family == "runs" {
			tests, over = len(others), "the runs of a measure"
		}
		fmt.Fprintf(&b, "\n%s Holm over %s (%s), seed %d.\n", c.rules(), over, countNoun(tests, "test", "tests"), c.tests.Seed)
	}
	return b.Bytes()
}

func (c *compareFlags) differences(b *bytes.Buffer, measures []eval.SystemComparison) {
	t := columns{left: 1}
	interval := formatFloat(100*c.tests.Confidence) + "% INTERVAL"
	t.add("MEASURE", "FIRST", "RUN", "DIFFERENCE", interval, "WINS", "TIES", "LOSSES")
	for _, m := range measures {
		t.add(m.Measure.String(), fmt.Sprintf("%.4f", m.MeanB), fmt.Sprintf("%.4f", m.MeanA), signed(m.Difference),
			signed(m.Bootstrap.Low)+" to "+signed(m.Bootstrap.High),
			fmt.Sprint(m.Wins), fmt.Sprint(m.Ties), fmt.Sprint(m.Losses))
	}
	t.write(b)
}

func pValues(b *bytes.Buffer, measures []eval.SystemComparison) {
	t := columns{left: 1}
	t.add("P", "T-TEST", "HOLM", "RANDOMISATION", "HOLM", "BOOTSTRAP", "HOLM")
	for _, m := range measures {
		t.add(m.Measure.String(), chance(m.TTest.P), chance(m.HolmTTest),
			chance(m.Randomisation.P), chance(m.HolmRandomisation), chance(m.Bootstrap.P), chance(m.HolmBootstrap))
	}
	t.write(b)
}

// differing lists the queries that differ most.
func differing(b *bytes.Buffer, m eval.SystemComparison) {
	if len(m.Differing) == 0 {
		return
	}
	t := columns{left: 1}
	t.add("QUERY", m.Measure.String()+": FIRST", "RUN", "DIFFERENCE")
	for _, q := range m.Differing {
		t.add(printable(q.Query, idColumn), fmt.Sprintf("%.4f", q.B), fmt.Sprintf("%.4f", q.A), signed(q.Difference))
	}
	t.write(b)
	b.WriteByte('\n')
}

func agreementText(b *bytes.Buffer, a *eval.Agreement) {
	fmt.Fprintf(b, "Rankings over %s: overlap@%d %.4f, RBO %.4f (p = %v)", countNoun(len(a.Queries), "query", "queries"),
		a.K, a.Overlap, a.RBO, a.P)
	if a.TauQueries > 0 {
		fmt.Fprintf(b, ", tau %.4f (%s)", a.Tau, countNoun(a.TauQueries, "query", "queries"))
	}
	if missing := len(a.Queries) - a.Shared(); missing > 0 {
		fmt.Fprintf(b, "; %d missing from the run", missing)
	}
	if a.Unmatched > 0 {
		fmt.Fprintf(b, "; %d more in the run alone", a.Unmatched)
	}
	b.WriteByte('\n')
}

// leastAlike lists the queries whose rankings agree least.
func leastAlike(b *bytes.Buffer, a *eval.Agreement, n int) {
	least := a.Least(n)
	if len(least) == 0 {
		return
	}
	t := columns{left: 1}
	t.add("QUERY", fmt.Sprintf("OVERLAP@%d", a.K), "RBO", "TAU")
	for _, q := range least {
		tau := "-"
		if q.TauOK {
			tau = fmt.Sprintf("%.4f", q.Tau)
		}
		t.add(printable(q.Query, idColumn), fmt.Sprintf("%.4f", q.Overlap), fmt.Sprintf("%.4f", q.RBO), tau)
	}
	b.WriteByte('\n')
	t.write(b)
}

// signed is a difference as tables show it; 0 and what rounds to it have no sign.
func signed(x float64) string {
	if math.Abs(x) < 0.00005 {
		return "0.0000"
	}
	return fmt.Sprintf("%+.4f", x)
}

// chance is a p as tables show it.
func chance(p float64) string {
	if p < 0.0001 {
		return "<0.0001"
	}
	return fmt.Sprintf("%.4f", p)
}

// tsv has a line for each number: run, measure, statistic, value.
func (c *compareFlags) tsv(others []compared) []byte {
	var b bytes.Buffer
	for _, o := range others {
		line := func(measure, statistic string, value float64) {
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", cell(o.name), measure, statistic, formatFloat(value))
		}
		for _, m := range o.measures {
			for _, s := range []struct {
				name  string
				value float64
			}{
				{"first", m.MeanB}, {"run", m.MeanA}, {"difference", m.Difference},
				{"low", m.Bootstrap.Low}, {"high", m.Bootstrap.High},
				{"wins", float64(m.Wins)}, {"ties", float64(m.Ties)}, {"losses", float64(m.Losses)},
				{"t", m.TTest.T}, {"p_t", m.TTest.P}, {"p_t_holm", m.HolmTTest},
				{"p_randomisation", m.Randomisation.P}, {"p_randomisation_holm", m.HolmRandomisation},
				{"p_bootstrap", m.Bootstrap.P}, {"p_bootstrap_holm", m.HolmBootstrap},
			} {
				line(m.Measure.String(), s.name, s.value)
			}
		}
		a := o.agreement
		line(fmt.Sprintf("overlap@%d", a.K), "mean", a.Overlap)
		line("RBO", "mean", a.RBO)
		if a.TauQueries > 0 {
			line("tau", "mean", a.Tau)
		}
	}
	return b.Bytes()
}
