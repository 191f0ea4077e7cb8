package flags

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/internal/files"
)

// Judging holds the flags for judgements and for how runs are evaluated against them.
type Judging struct {
	Qrels    string
	Measures []eval.Measure
	eval.Options
	split string
}

// Register adds the flags to f.
func (e *Judging) Register(f *pflag.FlagSet) {
	f.StringVar(&e.Qrels, "qrels", "", "`FILE` of judgements: BEIR or TREC columns, plain, .gz, .zst or .xz; or "+
		"the folder of a BEIR collection")
	f.StringVar(&e.split, "split", "", "`NAME` of the judgements in a folder: qrels/NAME.tsv (default test)")
	f.Var(Measures(&e.Measures), "measures", "measures to compute, by the names of ir_measures")
	f.Var(Enum(&e.Ties, eval.TiesTREC, eval.TiesTREC10, eval.TiesRank), "ties",
		"order of hits: by score, float32 (trec) or float64 (trec10), equal ones by id from the last; or by the "+
			"rank column")
	f.Var(Enum(&e.Average, eval.AverageJudged, eval.AverageEvaluated, eval.AverageRelevant), "average",
		"mean over all judged queries, a missing one counting 0; over those also in the run; or over all with a "+
			"relevant document")
	ExcludeSelf(f, &e.ExcludeSelf)
}

// RegisterOptional adds the flags of a command that works without judgements and computes one more
// measure with them.
func (e *Judging) RegisterOptional(f *pflag.FlagSet, measure string) {
	f.StringVar(&e.Qrels, "qrels", "", "`FILE` of judgements, or the folder of a BEIR collection: adds "+measure)
	f.StringVar(&e.split, "split", "", "`NAME` of the judgements in a folder: qrels/NAME.tsv (default test)")
	f.BoolVar(&e.ExcludeSelf, "exclude-self", false,
		"leave hits with the id of their query out of "+measure+" (ArguAna, Quora)")
}

// ExcludeSelf adds the flag for collections whose queries are documents themselves.
func ExcludeSelf(f *pflag.FlagSet, p *bool) {
	f.BoolVar(p, "exclude-self", false, "leave out hits with the id of their query (ArguAna, Quora)")
}

// Load reads the judgements. It returns a [UsageError] if --qrels is missing.
func (e *Judging) Load(ctx context.Context) (*eval.Qrels, error) {
	if e.Qrels == "" {
		return nil, Usagef("--qrels is missing")
	}
	info, err := os.Stat(e.Qrels)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return eval.LoadSplit(e.Qrels, cmp.Or(e.split, "test"))
	case e.split != "":
		return nil, Usagef("--split is for a folder, and %s is a file", e.Qrels)
	}
	return files.Parse(ctx, e.Qrels, eval.ReadQrels)
}

// LoadIfGiven reads the judgements, or returns nil without --qrels.
func (e *Judging) LoadIfGiven(ctx context.Context) (*eval.Qrels, error) {
	switch {
	case e.Qrels != "":
		return e.Load(ctx)
	case e.split != "":
		return nil, Usagef("--split goes with --qrels")
	}
	return nil, nil
}
