package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// tuneFlags holds the flags of plaid tune.
type tuneFlags struct {
	queries              flags.Queries
	options              quality.TuneOptions
	threads              int
	force, dryRun, reset bool
	format               flags.Format
	device               flags.Device
}

func (t *tuneFlags) register(f *pflag.FlagSet) {
	t.queries.Register(f)
	f.Var(flags.Portion(&t.options.Recall, 0.995), "recall", "share of the exhaustive result to find")
	f.Var(flags.Weight(&t.options.Worst, 0), "worst",
		"share of it to find for the worst query (0: derived from --recall, 0.7 for 0.995)")
	f.VarP(flags.Ints(&t.options.K, 1, 10, 100), "k", "k",
		"classes of k to tune for; a search uses the next larger class")
	f.Var(flags.Int(&t.threads, 1, 0), "threads", "queries searched at a time (0: one a processor)")
	t.device.RegisterEncoding(f)
	f.BoolVar(&t.force, "force", false, "store the parameters even if the held-out queries do not reach the target")
	f.BoolVar(&t.dryRun, "dry-run", false, "store nothing")
	f.BoolVar(&t.reset, "reset", false, "only remove the stored parameters")
}

func (a *app) tuneCommand() *cobra.Command {
	var t tuneFlags
	cmd := &cobra.Command{
		Use:   "tune INDEX {--questions FILE | --queries FILE | --reset}",
		Short: "Find the cheapest search parameters and store them",
		Long: `
Find, for each k, the cheapest parameters whose searches reach the target recall of the
exhaustive result, in the mean and for the worst query. They are chosen on one half of
the queries, where they must exceed the target by a standard error, and measured on the
other half. If they reach the target there, too, they are stored in the index as its
defaults, which searches without a filter use unless flags set parameters. Otherwise the
command fails, and nothing is stored unless --force is given.

Use at least a few hundred queries of your users. The cost of a setting is counted, not
timed, so that a busy machine does not change the result. Among settings of similar
cost, the one with the best recall wins; parameters that are derived for each query stay
unless another setting is clearly cheaper. plaid info shows the stored parameters; plaid
add keeps them, and --reset removes them. Tune again when the index has grown a lot.`,
		Example: `  plaid tune docs.plaid --queries queries.npy
  plaid tune docs.plaid --queries queries.npy --recall 0.995 -k 10,100,1000 --dry-run
  plaid tune docs.plaid --reset`,
		Args: namedArgs("INDEX"),
	}
	f := cmd.Flags()
	t.register(f)
	t.format.Register(cmd, "results", "table", "json")
	cmd.MarkFlagsMutuallyExclusive("reset", "queries")
	cmd.MarkFlagsMutuallyExclusive("reset", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("force", "dry-run")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		if t.reset {
			return a.resetDefaults(ctx, args[0], &t.format)
		}
		return a.tuneIndex(ctx, args[0], &t)
	})
	return cmd
}

// resetDefaults removes the search parameters that are stored in an index.
func (a *app) resetDefaults(ctx context.Context, path string, format *flags.Format) error {
	return a.open(ctx, path, true, func(ix *index.Index) error {
		snap, err := ix.Snapshot()
		if err != nil {
			return err
		}
		before, err := snap.Defaults()
		if err := errors.Join(err, snap.Close()); err != nil {
			return err
		}
		if err := ix.SetDefaults(nil); err != nil {
			return err
		}
		return a.reportFormatted(format, struct {
			Index string `json:"index"`
			Reset bool   `json:"reset"`
		}{path, before != nil}, func() []byte {
			text := ": the stored parameters are removed\n"
			if before == nil {
				text = " had no stored parameters\n"
			}
			return []byte(out.Escaped(path + text))
		})
	})
}

// tuneReport is what plaid tune prints.
type tuneReport struct {
	Index   string          `json:"index"`
	Queries int             `json:"queries"`
	HeldOut int             `json:"held_out_queries"`
	Target  float64         `json:"target"`
	Worst   float64         `json:"worst_target"`
	Classes []quality.Tuned `json:"classes"`
	Stored  bool            `json:"stored"`
}

var errUnconfirmed = errors.New("the queries held out do not reach the target")

// tuneIndex finds the cheapest search parameters of an index and stores them.
func (a *app) tuneIndex(ctx context.Context, path string, t *tuneFlags) error {
	t.options.Progress = a.progress()
	var tuning *quality.Tuning
	var state storage.State
	var generation uint64
	if err := checkSingleFile(path); err != nil {
		return err
	}
	rep := tuneReport{Index: path}
	// Measure while the index is open for reading only, so that others can use it.
	err := a.openForMeasuring(ctx, &indexNames{}, path, &t.queries, t.threads, &t.device, nil,
		func(e searcher, target *searchTarget, set *querySet) (err error) {
			engine := e.(*search.Engine) // the searcher of a single file
			snap := target.snap
			state, generation = snap.State(), snap.Generation()
			rep.Queries = len(set.queries)
			tuning, err = quality.Tune(ctx, engine, snap, set.queries, t.options)
			return err
		})
	if err != nil {
		return err
	}
	rep.HeldOut, rep.Classes = len(tuning.HeldOut), tuning.Classes
	rep.Target, rep.Worst = tuning.Target, tuning.WorstTarget
	store, targetErr := t.decideStoring(tuning.Confirmed())
	if store {
		err := a.open(ctx, path, true, func(ix *index.Index) error {
			return storeDefaults(ix, tuning.Defaults(state, a.now()), state, generation)
		})
		if err != nil {
			return err
		}
		rep.Stored = true
	}
	return errors.Join(a.reportFormatted(&t.format, rep, rep.textTable), targetErr)
}

// decideStoring decides whether the parameters are stored. It returns an error if the target was not
// reached.
func (t *tuneFlags) decideStoring(confirmed bool) (store bool, err error) {
	switch {
	case confirmed || t.force:
		return !t.dryRun, nil
	case t.dryRun:
		return false, errUnconfirmed
	}
	return false, fmt.Errorf("%w, so nothing is stored. Give more queries (a few hundred), lower the target "+
		"(--recall %s, --worst), leave out the k that failed (-k), or store the parameters anyway (--force); "+
		"until then, searches derive theirs", errUnconfirmed, out.Float(lowerTarget(t.options.Recall)))
}

// lowerTarget returns a recall to try after one that was not reached: the distance to 1 is doubled.
func lowerTarget(recall float64) float64 {
	return math.Round((1-2*(1-recall))*1e4) / 1e4
}

// storeDefaults stores search parameters, unless the index has changed since they were measured.
func storeDefaults(ix *index.Index, d *storage.Defaults, measuredState storage.State,
	measuredGeneration uint64) (err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	state := snap.State()
	same := snap.Generation() == measuredGeneration && state.Docs == measuredState.Docs &&
		state.Live == measuredState.Live && state.Tokens == measuredState.Tokens
	if err := snap.Close(); err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("%s was changed while it was tuned: nothing is stored", ix.Path())
	}
	return ix.SetDefaults(d)
}

// textTable formats the report for reading.
func (r *tuneReport) textTable() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: recall %s of exhaustive search, %.4g for the worst query, tuned on %s, checked on %d "+
		"held out\n\n",
		r.Index, out.Float(r.Target), r.Worst, out.Queries(r.Queries-r.HeldOut), r.HeldOut)
	t := out.Table{Indent: 2}
	t.Line("k", "probes", "approx", "exact", "tuned on", "held out", "worst", "work", "ms", "untuned: held out",
		"work", "ms", "tried")
	for _, c := range r.Classes {
		verdict := "confirmed"
		if !c.Confirmed {
			verdict = "NOT CONFIRMED"
		}
		ms := func(d time.Duration) string { return fmt.Sprintf("%.3f", out.Milliseconds(d)) }
		t.Line(strconv.Itoa(c.K), probesText(c.Setting), parameterText(c.Approx), parameterText(c.Exact),
			out.FourDecimals(c.Tuned.Recall),
			out.FourDecimals(c.HeldOut.Recall), fmt.Sprintf("%.2f", c.HeldOut.Worst), out.Rate(c.HeldOut.Work),
			ms(c.HeldOut.Cost), out.FourDecimals(c.Derived.Recall), out.Rate(c.Derived.Work), ms(c.Derived.Cost),
			strconv.Itoa(len(c.Trials)))
		t.Remark(verdict)
	}
	t.Print(&b)
	b.WriteString("\n· derived for each query; scan: no probing; work: counted, in tokens scored by centroids; " +
		"ms: mean time of a query held out\n")
	if r.Stored {
		b.WriteString("stored as the defaults of the index\n")
	}
	return b.Bytes()
}

// probesText formats the number of probes of a setting.
func probesText(s quality.Setting) string {
	if s.Scan {
		return "scan"
	}
	return parameterText(s.Probes)
}

// parameterText formats a parameter, with a dot for one that is derived.
func parameterText(n int) string {
	if n == 0 {
		return "·"
	}
	return strconv.Itoa(n)
}

// defaultsText describes the stored search parameters, for plaid info.
func defaultsText(line func(name, format string, args ...any), d *storage.Defaults, docs uint32) {
	if d == nil {
		return
	}
	grown := ""
	if docs != d.Docs {
		grown = fmt.Sprintf(" of %s then", out.Plural(d.Docs, "document"))
	}
	method := "tuned"
	if d.Passages {
		method = "checked"
	}
	line(method, "%s%s", d.Time.Format("2006-01-02 15:04:05 MST"), grown)
	for _, c := range d.Classes {
		line(fmt.Sprintf("  k ≤ %d", c.K), "%v; %s", settingFromDefaults(c), quality.DescribeClass(c, d.Passages))
	}
}

const noCheckHelp = "do not measure the recall of searches with questions made from the documents"

// checkRecall calls selfCheck for a command whose own work is done: an error is only a warning.
func (a *app) checkRecall(ctx context.Context, path string, threads int, o quality.SelfCheckOptions) *storage.Defaults {
	d, err := a.selfCheck(ctx, path, threads, o)
	if err != nil {
		a.printWarning("the index is complete, but the recall of its searches was not measured: %v", err)
	}
	return d
}

// selfCheck measures the recall of an index whose codec was just trained. It stores the recall, and
// the parameters that searches need to reach it.
func (a *app) selfCheck(
	ctx context.Context, path string, threads int, o quality.SelfCheckOptions,
) (d *storage.Defaults, err error) {
	o.Progress = a.progress()
	var state storage.State
	var generation uint64
	err = a.openSnapshot(ctx, path, func(snap *index.Snapshot) (err error) {
		state, generation = snap.State(), snap.Generation()
		e, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: threads})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		d, err = quality.SelfCheck(ctx, e, snap, o)
		return err
	})
	if err != nil || d == nil {
		return nil, err
	}
	d.Time = a.now().UTC().Truncate(time.Second)
	return d, a.open(ctx, path, true, func(ix *index.Index) error { return storeDefaults(ix, d, state, generation) })
}

// checkedLines writes the recall that was measured, if it was.
func checkedLines(b *bytes.Buffer, d *storage.Defaults) {
	if d == nil {
		return
	}
	for _, c := range d.Classes {
		setting := ""
		if c.Effort != 0 && c.Effort != 1 {
			setting = quality.Setting{Effort: c.Effort}.String() + "; "
		}
		fmt.Fprintf(b, "k ≤ %d: %s%s\n", c.K, setting, quality.DescribeClass(c, d.Passages))
	}
}
