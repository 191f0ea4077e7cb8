package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// searchFlags are the parameters of a search.
type searchFlags struct {
	flags        *pflag.FlagSet
	queries      queryFiles
	k            int
	mode         string
	candidates   string
	probes       int
	approx       int
	exact        int
	filter       string
	allowMissing bool
	threads      int
	device       deviceFlags

	run *eval.Run // of mode candidates
}

func (s *searchFlags) register(f *pflag.FlagSet) {
	s.flags = f
	s.queries.register(f)
	f.VarP(newInt(&s.k, 10, 1), "k", "k", "how many documents to return for a query")
	f.Var(newChoice(&s.mode, "pruned", "pruned", "exhaustive", "candidates"), "mode", "score the documents that pruning leaves, all of them, or those of --candidates")
	f.StringVar(&s.candidates, "candidates", "", "TREC run `FILE` with the documents to score for each query; implies --mode candidates")
	f.Var(newInt(&s.probes, 0, 0), "probes", "centroids to probe for a query token (0: by k)")
	f.Var(newInt(&s.approx, 0, 0), "approx", "documents that get an approximate score at most (0: by k)")
	f.Var(newInt(&s.exact, 0, 0), "exact", "documents that get an exact score at most, at least k (0: by k)")
	f.StringVar(&s.filter, "filter", "", "`FILE` with one id a line: return no other documents; an empty file lets none through")
	f.BoolVar(&s.allowMissing, "allow-missing", false, "pass over ids of --filter and --candidates that are not in the index")
	f.Var(newInt(&s.threads, 0, 0), "threads", "goroutines (0: one a processor)")
	s.device.register(f)
	s.device.registerMemory(f)
}

// options reads the files that the flags name.
func (s *searchFlags) options() (search.Options, error) {
	o := search.Options{K: s.k, Probes: s.probes, Approx: s.approx, Exact: s.exact, AllowMissing: s.allowMissing}
	if s.candidates != "" {
		if !s.flags.Changed("mode") {
			s.mode = search.Candidates.String()
		}
		if s.mode != search.Candidates.String() {
			return o, usagef("--candidates goes with --mode candidates, not with --mode %s", s.mode)
		}
	}
	var err error
	if o.Mode, err = search.ParseMode(s.mode); err != nil {
		return o, err
	}
	if o.Mode == search.Candidates {
		if s.candidates == "" {
			return o, usagef("--mode candidates needs --candidates")
		}
		if s.run, err = eval.LoadRun(s.candidates); err != nil {
			return o, err
		}
	}
	if s.filter != "" {
		ids, err := readIDs(s.filter)
		if err != nil {
			return o, err
		}
		o.Filter = &search.Filter{IDs: ids, AllowMissing: s.allowMissing}
	}
	return o, nil
}

// forQuery completes the options for one query.
func (s *searchFlags) forQuery(o search.Options, id string) search.Options {
	if s.run != nil {
		o.Candidates = []string{}
		for _, h := range s.run.Hits(id) {
			o.Candidates = append(o.Candidates, h.Doc)
		}
	}
	return o
}

// warnAbsent says which queries have no candidates.
func (s *searchFlags) warnAbsent(a *app, queries vectors.Source) {
	if s.run == nil {
		return
	}
	absent, example := 0, ""
	for i := range queries.Len() {
		if id := queries.ID(i); !s.run.Has(id) {
			if absent++; absent == 1 {
				example = id
			}
		}
	}
	switch {
	case absent == 1:
		a.warn("query %q is not in %s: it has no candidates", example, s.candidates)
	case absent > 1:
		a.warn("%d queries (%q is the first) are not in %s: they have no candidates", absent, example, s.candidates)
	}
}

// checkQueries finds queries that do not fit the index before any is answered.
func checkQueries(path string, queries vectors.Source, snap *index.Snapshot) error {
	if d := queries.Dim(); d != 0 && d != snap.Dim() {
		return fmt.Errorf("%s: %w: queries have %d, %s has %d", path, index.ErrDimension, d, snap.Path(), snap.Dim())
	}
	for i := range queries.Len() {
		if queries.Rows(i) == 0 {
			return fmt.Errorf("%s: query %q: %w: it has no tokens", path, queries.ID(i), search.ErrQuery)
		}
	}
	return nil
}

// readQueries reads the queries from lo to hi (exclusive).
func readQueries(ctx context.Context, src vectors.Source, lo, hi int) (qs []search.Query, ids []string, err error) {
	for d, err := range src.Docs(ctx, lo, hi) {
		if err != nil {
			return nil, nil, err
		}
		qs = append(qs, search.Query{Vectors: append([]float32(nil), d.Tokens...), Dim: src.Dim()})
		ids = append(ids, d.ID)
	}
	return qs, ids, nil
}
