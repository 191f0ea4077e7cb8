package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval"
)

// compareFlags say how runs are compared. Without judgements only rankings are.
type compareFlags struct {
	flags.Judging
	tests  eval.CompareOptions
	family string
	agree  eval.AgreementOptions
	shown  int
	format flags.Format
	plot   string // a file
}

// compared is a run against the first one.
type compared struct {
	name      string                  // the path
	queries   int                     // that means and tests run over
	measures  []eval.SystemComparison // none without judgements
	agreement *eval.Agreement
}

func (a *app) compareCommand() *cobra.Command {
	var c compareFlags
	cmd := &cobra.Command{
		Use:   "compare RUN RUN… [--qrels FILE]",
		Short: "Say how runs differ, and whether chance explains it",
		Long: `
Compare each run with the first one: how alike they rank (overlap of the first k,
rank-biased overlap, Kendall's tau-b) and, with --qrels, what each measure gives,
the mean difference with its interval by bootstrap, wins, ties and losses by
query, and the p of three paired two-sided tests: Student's t, Fisher's
randomisation and the bootstrap. Differences are those of the run less the first.
Resampling repeats to the bit for the same --seed.

Several tests make a false positive likely, so each p is also given after Holm's
correction: over all runs and measures, or, where one measure was decided on
beforehand, with --holm runs over the runs of each measure.

The queries that differ most are those of the first measure, or without
judgements those whose rankings agree least. Formats: table is for reading; tsv
has the columns run, measure, statistic, value; json is one object, with the
queries of every measure.`,
		Example: `  plaid compare exhaustive.trec pruned.trec
  plaid compare bm25.run plaid.run plaid-1bit.run --qrels scifact
  plaid compare exhaustive.trec pruned.trec --qrels scifact --svg difference.svg
  plaid compare a.run b.run --qrels qrels.trec --measures nDCG@10 --samples 100000 --seed 7 --json`,
		Args: takes("RUN", "RUN", "RUN…"),
	}
	f := cmd.Flags()
	c.Judging.Register(f)
	f.Uint64Var(&c.tests.Seed, "seed", 0, "`N` that resampling starts from")
	f.Var(flags.Int(&c.tests.Samples, 10_000, 1), "samples", "random samples of a test")
	f.Var(flags.Share(&c.tests.Confidence, 0.95), "confidence", "share that the interval of a difference covers")
	f.Var(flags.Choice(&c.family, "all", "all", "runs"), "holm", "what Holm's correction is over: all runs and measures, or the runs of each measure")
	f.VarP(flags.Int(&c.agree.K, 10, 1), "depth", "k", "depth of the overlap")
	f.Var(flags.Share(&c.agree.P, 0.9), "rbo-p", "persistence of rank-biased overlap; the mean depth is 1/(1−X)")
	f.Var(flags.Int(&c.shown, 5, 0), "queries-shown", "how many of the queries that differ most to list")
	f.StringVar(&c.plot, "svg", "", "draw how much better each query fares, or without judgements how alike its rankings are, into `FILE`")
	c.format.Register(cmd, "the comparison", "table", "tsv", "json")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		for _, name := range []string{"split", "measures", "average", "samples", "seed", "confidence", "holm"} {
			if c.Qrels == "" && cmd.Flags().Changed(name) {
				return flags.Usagef("--%s goes with --qrels", name)
			}
		}
		err := a.compare(ctx, &c, args)
		if errors.Is(err, eval.ErrParameter) {
			return flags.UsageError{Err: err} // samples that do not suffice for the confidence
		}
		return err
	})
	return cmd
}

func (a *app) compare(ctx context.Context, c *compareFlags, paths []string) error {
	if err := a.checkOutput("svg", c.plot); err != nil {
		return err
	}
	qrels, err := c.LoadIfGiven(ctx)
	if err != nil {
		return err
	}
	runs, err := a.loadRuns(ctx, paths)
	if err != nil {
		return err
	}
	others, err := c.agreements(ctx, paths, runs)
	if err != nil {
		return err
	}
	var results []judged
	if qrels != nil {
		if results, err = a.judge(ctx, &c.Judging, qrels, paths, runs); err != nil {
			return err
		}
		if err := c.significance(ctx, results, others); err != nil {
			return err
		}
	}
	if c.plot != "" {
		if err := a.writePlot(ctx, c, paths, others); err != nil {
			return err
		}
	}
	text, err := c.render(paths[0], results, others)
	if err != nil {
		return err
	}
	return a.print(text)
}

// agreements compares the rankings of all but the first run with those of the first.
func (c *compareFlags) agreements(ctx context.Context, paths []string, runs []*eval.Run) ([]compared, error) {
	c.agree.Ties, c.agree.ExcludeSelf = c.Ties, c.ExcludeSelf
	others := make([]compared, len(runs)-1)
	for i, run := range runs[1:] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		agreement, err := eval.Agree(run, runs[0], c.agree)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", paths[0], err)
		}
		if agreement.Shared() == 0 {
			return nil, fmt.Errorf("%s and %s have no query in common", paths[0], paths[i+1])
		}
		others[i] = compared{name: paths[i+1], agreement: agreement}
	}
	return others, nil
}

// significance tests the measures of all but the first run against the first.
func (c *compareFlags) significance(ctx context.Context, results []judged, others []compared) error {
	systems := make([]*eval.Result, len(others))
	for i := range others {
		systems[i] = results[i+1].Result
	}
	c.tests.Average, c.tests.Differing, c.tests.AcrossMeasures = c.Average, c.shown, c.family == "all"
	if c.shown == 0 {
		c.tests.Differing = -1
	}
	all, err := eval.CompareAll(ctx, results[0].Result, systems, c.tests)
	if err != nil {
		return err
	}
	for _, m := range all {
		for i, s := range m.Systems {
			others[i].queries = len(s.Queries)
			others[i].measures = append(others[i].measures, s)
		}
	}
	return nil
}

// render prints the comparisons of runs with the first one, the baseline.
func (c *compareFlags) render(baseline string, results []judged, others []compared) ([]byte, error) {
	switch c.format.Word() {
	case "json":
		return out.Typed("compare", c.object(baseline, others))
	case "tsv":
		return c.tsv(others), nil
	}
	return c.table(baseline, results, others), nil
}

// table has the means of all runs, then a part for each run but the first.
func (c *compareFlags) table(baseline string, results []judged, others []compared) []byte {
	var b bytes.Buffer
	if results != nil {
		meansTable(&b, &c.Judging, results)
		b.WriteByte('\n')
	}
	for i, o := range others {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s against %s\n\n", out.Path(o.name), out.Path(baseline))
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
		tests := len(c.Measures) * len(others)
		over := "all runs and measures"
		if c.family == "runs" {
			tests, over = len(others), "the runs of a measure"
		}
		fmt.Fprintf(&b, "\n%s Holm over %s (%s), seed %d.\n", meansRules(&c.Judging), over, out.Plural(tests, "test", "tests"), c.tests.Seed)
	}
	return b.Bytes()
}

func (c *compareFlags) differences(b *bytes.Buffer, measures []eval.SystemComparison) {
	t := out.Table{Left: 1}
	interval := out.Float(100*c.tests.Confidence) + "% INTERVAL"
	t.Line("MEASURE", "FIRST", "RUN", "DIFFERENCE", interval, "WINS", "TIES", "LOSSES")
	for _, m := range measures {
		t.Line(m.Measure.String(), out.Fixed(m.MeanB), out.Fixed(m.MeanA), signed(m.Difference),
			signed(m.Bootstrap.Low)+" to "+signed(m.Bootstrap.High),
			fmt.Sprint(m.Wins), fmt.Sprint(m.Ties), fmt.Sprint(m.Losses))
	}
	t.Print(b)
}

func pValues(b *bytes.Buffer, measures []eval.SystemComparison) {
	t := out.Table{Left: 1}
	t.Line("P", "T-TEST", "HOLM", "RANDOMISATION", "HOLM", "BOOTSTRAP", "HOLM")
	for _, m := range measures {
		t.Line(m.Measure.String(), chance(m.TTest.P), chance(m.HolmTTest),
			chance(m.Randomisation.P), chance(m.HolmRandomisation), chance(m.Bootstrap.P), chance(m.HolmBootstrap))
	}
	t.Print(b)
}

// differing lists the queries that differ most.
func differing(b *bytes.Buffer, m eval.SystemComparison) {
	if len(m.Differing) == 0 {
		return
	}
	t := out.Table{Left: 1}
	t.Line("QUERY", m.Measure.String()+": FIRST", "RUN", "DIFFERENCE")
	for _, q := range m.Differing {
		t.Line(out.ID(q.Query), out.Fixed(q.B), out.Fixed(q.A), signed(q.Difference))
	}
	t.Print(b)
	b.WriteByte('\n')
}

func agreementText(b *bytes.Buffer, a *eval.Agreement) {
	fmt.Fprintf(b, "Rankings over %s: overlap@%d %.4f, RBO %.4f (p = %v)", out.Queries(len(a.Queries)),
		a.K, a.Overlap, a.RBO, a.P)
	if a.TauQueries > 0 {
		fmt.Fprintf(b, ", tau %.4f (%s)", a.Tau, out.Queries(a.TauQueries))
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
	t := out.Table{Left: 1}
	t.Line("QUERY", fmt.Sprintf("OVERLAP@%d", a.K), "RBO", "TAU")
	for _, q := range least {
		tau := "-"
		if q.TauOK {
			tau = out.Fixed(q.Tau)
		}
		t.Line(out.ID(q.Query), out.Fixed(q.Overlap), out.Fixed(q.RBO), tau)
	}
	b.WriteByte('\n')
	t.Print(b)
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
	return out.Fixed(p)
}

// tsv has a line for each number: run, measure, statistic, value.
func (c *compareFlags) tsv(others []compared) []byte {
	var b bytes.Buffer
	for _, o := range others {
		line := func(measure, statistic string, value float64) {
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", out.Field(o.name), measure, statistic, out.Float(value))
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

type compareJSON struct {
	First       string            `json:"first"`
	Ties        string            `json:"ties"`
	ExcludeSelf bool              `json:"exclude_self"`
	Judged      *judgedJSON       `json:"judged,omitempty"` // with judgements
	Runs        []comparedRunJSON `json:"runs"`
}

type judgedJSON struct {
	Qrels      string  `json:"qrels"`
	Average    string  `json:"average"`
	Queries    int     `json:"queries"`
	Seed       uint64  `json:"seed"`
	Samples    int     `json:"samples"`
	Confidence float64 `json:"confidence"`
	Holm       string  `json:"holm"`
}

type comparedRunJSON struct {
	Run       string           `json:"run"`
	Measures  []differenceJSON `json:"measures,omitempty"`
	Agreement agreementJSON    `json:"agreement"`
}

type differenceJSON struct {
	Measure    string     `json:"measure"`
	First      float64    `json:"first"`
	Run        float64    `json:"run"`
	Difference float64    `json:"difference"`
	Interval   [2]float64 `json:"interval"`
	Wins       int        `json:"wins"`
	Ties       int        `json:"ties"`
	Losses     int        `json:"losses"`

	TTest         testJSON `json:"t_test"`
	Randomisation testJSON `json:"randomisation"`
	Bootstrap     testJSON `json:"bootstrap"`

	Differing []pairJSON `json:"differing"`
}

type testJSON struct {
	T     *float64 `json:"t,omitempty"` // absent if infinite
	Exact bool     `json:"exact,omitempty"`
	P     float64  `json:"p"`
	Holm  float64  `json:"p_holm"`
}

type pairJSON struct {
	Query      string  `json:"query"`
	First      float64 `json:"first"`
	Run        float64 `json:"run"`
	Difference float64 `json:"difference"`
}

type agreementJSON struct {
	Queries    int         `json:"queries"` // of the first run
	Missing    int         `json:"missing"`
	Unmatched  int         `json:"unmatched"`
	Depth      int         `json:"depth"`
	Overlap    float64     `json:"overlap"`
	P          float64     `json:"rbo_p"`
	RBO        float64     `json:"rbo"`
	Tau        *float64    `json:"tau"` // null where undefined
	TauQueries int         `json:"tau_queries"`
	Least      []alikeJSON `json:"least"`
}

type alikeJSON struct {
	Query   string   `json:"query"`
	InRun   bool     `json:"in_run"`
	Overlap float64  `json:"overlap"`
	RBO     float64  `json:"rbo"`
	Tau     *float64 `json:"tau"`
}

func (c *compareFlags) object(baseline string, others []compared) compareJSON {
	x := compareJSON{First: baseline, Ties: c.Ties.String(), ExcludeSelf: c.ExcludeSelf}
	if c.Qrels != "" {
		x.Judged = &judgedJSON{c.Qrels, c.Average.String(), others[0].queries, c.tests.Seed, c.tests.Samples, c.tests.Confidence, c.family}
	}
	for _, o := range others {
		run := comparedRunJSON{Run: o.name, Agreement: agreementObject(o.agreement, c.shown)}
		for _, m := range o.measures {
			run.Measures = append(run.Measures, differenceObject(m))
		}
		x.Runs = append(x.Runs, run)
	}
	return x
}

func differenceObject(m eval.SystemComparison) differenceJSON {
	x := differenceJSON{
		Measure: m.Measure.String(), First: m.MeanB, Run: m.MeanA, Difference: m.Difference,
		Interval: [2]float64{m.Bootstrap.Low, m.Bootstrap.High},
		Wins:     m.Wins, Ties: m.Ties, Losses: m.Losses,
		TTest:         testJSON{P: m.TTest.P, Holm: m.HolmTTest},
		Randomisation: testJSON{Exact: m.Randomisation.Exact, P: m.Randomisation.P, Holm: m.HolmRandomisation},
		Bootstrap:     testJSON{P: m.Bootstrap.P, Holm: m.HolmBootstrap},
		Differing:     []pairJSON{},
	}
	if !math.IsInf(m.TTest.T, 0) {
		x.TTest.T = &m.TTest.T
	}
	for _, q := range m.Differing {
		x.Differing = append(x.Differing, pairJSON{q.Query, q.B, q.A, q.Difference})
	}
	return x
}

func agreementObject(a *eval.Agreement, shown int) agreementJSON {
	x := agreementJSON{
		Queries: len(a.Queries), Missing: len(a.Queries) - a.Shared(), Unmatched: a.Unmatched,
		Depth: a.K, Overlap: a.Overlap, P: a.P, RBO: a.RBO, TauQueries: a.TauQueries, Least: []alikeJSON{},
	}
	if a.TauQueries > 0 {
		x.Tau = &a.Tau
	}
	for _, q := range a.Least(shown) {
		y := alikeJSON{Query: q.Query, InRun: q.InRun, Overlap: q.Overlap, RBO: q.RBO}
		if q.TauOK {
			y.Tau = &q.Tau
		}
		x.Least = append(x.Least, y)
	}
	return x
}
