package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// tuneFlags say what plaid tune looks for.
type tuneFlags struct {
	queries              queryFiles
	o                    search.TuneOptions
	threads              int
	force, dryRun, reset bool
	format               string
}

// portionValue is a number above 0 and at most 1.
type portionValue struct{ p *float64 }

func newPortion(p *float64, def float64) *portionValue {
	*p = def
	return &portionValue{p}
}

func (v *portionValue) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x > 0 && x <= 1) {
		return errors.New("want a number above 0 and at most 1")
	}
	*v.p = x
	return nil
}
func (v *portionValue) String() string { return formatFloat(*v.p) }
func (v *portionValue) Type() string   { return "X" }

func (t *tuneFlags) register(f *pflag.FlagSet) {
	t.queries.register(f)
	f.Var(newPortion(&t.o.Recall, 0.99), "recall", "share of the exhaustive result to find")
	f.VarP(newInts(&t.o.K, 1, 10, 100), "k", "k", "classes of k to tune for; a search uses that of the next larger one")
	f.Uint64Var(&t.o.Seed, "seed", 0, "`N` that decides which half of the queries is held out")
	f.Var(newInt(&t.threads, 1, 0), "threads", "queries searched at a time (0: one a processor)")
	f.BoolVar(&t.force, "force", false, "store the parameters also if the held-out queries do not reach the target")
	f.BoolVar(&t.dryRun, "dry-run", false, "store nothing")
	f.BoolVar(&t.reset, "reset", false, "remove what is stored, and measure nothing")
	f.Var(newChoice(&t.format, "table", "table", "json"), "format", "how to print results")
}

func (a *app) tuneCommand() *cobra.Command {
	var t tuneFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tune INDEX --queries FILE",
		Short: "Find the cheapest search parameters and store them",
		Long: withExitStatus(`
Find, for each k, the cheapest parameters whose searches reach a recall of the
exhaustive result. They are chosen on one half of the queries, where they must
exceed the target by a standard error, and measured on the other half. If that
reaches the target too they are stored in the index, as its defaults: searches
without a filter that name no parameters use them. If it does not, that is said,
nothing is stored unless --force is given, and the command fails.

Queries should be those of users: some hundred, at the least. Cost is measured
time, so let nothing else run. plaid info shows what is stored; additions keep
it, and --reset removes it. Tune anew when the index has grown much.`),
		Example: `  plaid tune docs.plaid --queries queries.npy
  plaid tune docs.plaid --queries queries.npy --recall 0.995 -k 10,100,1000 --dry-run
  plaid tune docs.plaid --reset`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	t.register(f)
	f.BoolVar(&asJSON, "json", false, "the same as --format json, and errors as JSON")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	cmd.MarkFlagsMutuallyExclusive("reset", "queries")
	cmd.MarkFlagsMutuallyExclusive("reset", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("force", "dry-run")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if asJSON {
			t.format = "json"
		}
		if t.reset {
			return a.open(ctx, args[0], true, func(ix *index.Index) error { return ix.SetDefaults(nil) })
		}
		return a.tune(ctx, args[0], &t)
	})
	return cmd
}

// tuneReport is what plaid tune prints.
type tuneReport struct {
	Index   string         `json:"index"`
	Queries int            `json:"queries"`
	HeldOut int            `json:"held_out_queries"`
	Target  float64        `json:"target"`
	Classes []search.Tuned `json:"classes"`
	Stored  bool           `json:"stored"`
}

var errUnconfirmed = errors.New("the queries held out do not reach the target")

func (a *app) tune(ctx context.Context, path string, t *tuneFlags) error {
	t.o.Progress = a.progress()
	var tuning *search.Tuning
	var state storage.State
	var generation uint64
	rep := tuneReport{Index: path}
	// The long part needs no lock that keeps others out.
	err := a.measure(ctx, path, &t.queries, func(snap *index.Snapshot, set *querySet) (err error) {
		state, generation = snap.State(), snap.Generation()
		rep.Queries = len(set.qs)
		tuning, err = search.NewAt(snap, t.threads).Tune(ctx, set.qs, t.o)
		return err
	})
	if err != nil {
		return err
	}
	rep.HeldOut, rep.Target, rep.Classes = len(tuning.HeldOut), tuning.Target, tuning.Classes
	keep, verdict := t.verdict(tuning.Confirmed())
	if keep {
		err := a.open(ctx, path, true, func(ix *index.Index) error {
			return store(ix, tuning.Defaults(state, a.now()), state, generation)
		})
		if err != nil {
			return err
		}
		rep.Stored = true
	}
	var text []byte
	if t.format == "json" {
		if text, err = encodeJSON(rep); err != nil {
			return err
		}
	} else {
		text = rep.table()
	}
	return errors.Join(a.print(text), verdict)
}

// verdict says whether to store what was found, and with which error to end.
func (t *tuneFlags) verdict(confirmed bool) (keep bool, err error) {
	switch {
	case confirmed || t.force:
		return !t.dryRun, nil
	case t.dryRun:
		return false, errUnconfirmed
	}
	return false, fmt.Errorf("%w: nothing is stored; more queries or a higher --recall may help, --force stores nevertheless", errUnconfirmed)
}

// store refuses to give parameters to an index that is not the one they were
// found on.
func store(ix *index.Index, d *storage.Defaults, state storage.State, generation uint64) (err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	now := snap.State()
	same := snap.Generation() == generation && now.Docs == state.Docs && now.Live == state.Live && now.Tokens == state.Tokens
	if err := snap.Close(); err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("%s was changed while it was tuned: nothing is stored", ix.Path())
	}
	return ix.SetDefaults(d)
}

func (r *tuneReport) table() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: recall %s of exhaustive search, tuned on %s, checked on %d held out\n\n", r.Index, formatFloat(r.Target),
		countNoun(r.Queries-r.HeldOut, "query", "queries"), r.HeldOut)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "k\tprobes\tapprox\texact\ttuned on\theld out\tms\tuntuned: held out\tms\ttried\t\n")
	for _, c := range r.Classes {
		verdict := "confirmed"
		if !c.Confirmed {
			verdict = "NOT CONFIRMED"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%.4f\t%.4f\t%.3f\t%.4f\t%.3f\t%d\t  %s\n", c.K, derivedOr(c.Probes), derivedOr(c.Approx), derivedOr(c.Exact), c.Tuned.Recall,
			c.HeldOut.Recall, milliseconds(c.HeldOut.Cost), c.Derived.Recall, milliseconds(c.Derived.Cost), len(c.Trials), verdict)
	}
	_ = w.Flush() // to memory
	b.WriteString("\n· derived for each query; ms: mean time of a query held out\n")
	if r.Stored {
		b.WriteString("stored as the defaults of the index\n")
	}
	return b.Bytes()
}

// derivedOr is a parameter, with a dot for what is derived.
func derivedOr(n int) string {
	if n == 0 {
		return "·"
	}
	return strconv.Itoa(n)
}

// defaultsText is the part of plaid info on stored parameters.
func defaultsText(line func(name, format string, args ...any), d *storage.Defaults, docs uint32) {
	if d == nil {
		return
	}
	grown := ""
	if docs != d.Docs {
		grown = fmt.Sprintf(" of %s then", plural(d.Docs, "document"))
	}
	line("tuned", "%s%s", d.Time.Format("2006-01-02 15:04:05 MST"), grown)
	for _, c := range d.Classes {
		not := ""
		if !c.Confirmed() {
			not = ", NOT CONFIRMED"
		}
		setting := search.Setting{Probes: c.Probes, Approx: c.Approx, Exact: c.Exact}
		line(fmt.Sprintf("  k ≤ %d", c.K), "%v; recall %.4f of %s held out, %s wanted%s", setting, c.HeldOut, countNoun(c.Queries, "query", "queries"), formatFloat(c.Target), not)
	}
}
