package flags

import (
	"cmp"
	"context"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/vectors"
)

// Search holds the flags of a search.
type Search struct {
	Queries Queries
	Where   Where
	Effort
	Threads int
	Device  Device
	// Candidates is the path of --candidates, a run.
	Candidates string

	k          int
	exhaustive bool
	ids        string
	group      string
	passages   int
	offset     int
	minScore   *float64
	feedback   search.Feedback
	// run is the content of the file of --candidates.
	run *eval.Run
}

// Register adds all flags of a search to f.
func (s *Search) Register(f *pflag.FlagSet) {
	s.RegisterExplained(f)
	f.StringVar(&s.Candidates, "candidates", "",
		"TREC run `FILE`: score the documents that it lists for each query, and no others")
	f.Var(Int(&s.offset, 0, 0), "offset", "number of best documents to skip: with -k 10, an offset of 20 gives the "+
		"third page")
	f.Var(OptionalNumber(&s.minScore), "min-score", "`SCORE`: return no documents that score less")
	var groups []string
	for _, g := range search.Groupings() {
		groups = append(groups, string(g))
	}
	BareChoice(f, &s.group, "group", "return documents, not passages: by their best passage, by the sum of those "+
		"of --passages, or by MaxSim over all their tokens", groups...)
	f.Var(Int(&s.passages, 0, 0), "passages", "passages that --group returns of a document, its best ones (default 3)")
	f.StringArrayVar(&s.feedback.Like, "like", nil,
		"`ID` of a relevant document: move each query towards it; may be repeated")
	f.StringArrayVar(&s.feedback.Unlike, "unlike", nil,
		"`ID` of an irrelevant document: move each query away from it; may be repeated")
	s.Device.RegisterSearching(f)
}

// RegisterExplained adds the flags that an explanation of a search takes, too.
func (s *Search) RegisterExplained(f *pflag.FlagSet) {
	s.Queries.Register(f)
	f.VarP(Int(&s.k, 10, 1), "k", "k", "how many documents to return for a query")
	f.BoolVar(&s.exhaustive, "exhaustive", false, "score all documents, without pruning")
	s.Effort.Register(f)
	f.StringVar(&s.ids, "ids", "", "`FILE` with one id in each line: return no other documents; an empty file "+
		"lets none "+
		"through")
	s.Where.Register(f, "return no other documents")
	Threads(f, &s.Threads, 0)
}

// Options reads the files that the flags name and returns the options of the search. The search
// skips ids that are not in the index, and counts them.
func (s *Search) Options(ctx context.Context) (search.Options, error) {
	o := search.Options{
		K:            s.k,
		Offset:       s.offset,
		MinScore:     s.minScore,
		AllowMissing: true,
		Group:        search.Grouping(s.group),
		Passages:     s.passages,
	}
	if fb := s.feedback; len(fb.Like)+len(fb.Unlike) > 0 {
		o.Feedback = &fb
	}
	switch {
	case s.group == "" && s.passages > 0:
		return o, Usagef("--passages goes with --group")
	case s.group != "" && s.passages == 0:
		o.Passages = search.DefaultPassages
	case s.exhaustive && s.Candidates != "":
		return o, Usagef("--candidates scores the documents of a run, --exhaustive all: give one of them")
	case s.exhaustive && s.Effort != (Effort{}):
		return o, Usagef("--exhaustive scores all documents: --probes, --approx and --exact do not go with it")
	}
	s.Apply(&o)
	var err error
	switch {
	case s.exhaustive:
		o.Mode = search.Exhaustive
	case s.Candidates != "":
		o.Mode = search.Candidates
		if s.run, err = files.Parse(ctx, s.Candidates, eval.ReadRun); err != nil {
			return o, err
		}
	}
	if s.ids != "" {
		ids, err := vectors.ReadIDList(ctx, s.ids)
		if err != nil {
			return o, err
		}
		o.Filter = &search.Filter{IDs: ids, AllowMissing: true}
	}
	c, err := s.Where.Condition()
	if err != nil {
		return o, err
	}
	if c != nil {
		if o.Filter == nil {
			o.Filter = &search.Filter{}
		}
		o.Filter.Where = c
		o.Filter = o.Filter.Prepared()
	}
	return o, nil
}

// Offset returns the number of best documents that are skipped.
func (s *Search) Offset() int { return s.offset }

// RequestBody returns the JSON body of a search that is sent to a service, and the names of the
// flags that a service supports.
func (s *Search) RequestBody() (body map[string]any, supportedFlags []string) {
	mode := search.Pruned
	if s.exhaustive {
		mode = search.Exhaustive
	}
	params := map[string]any{"top_k": s.k, "mode": mode.String()}
	for name, n := range map[string]int{"n_ivf_probe": s.Probes, "n_approximate_scores": s.Approx,
		"n_full_scores": s.Exact} {
		if n > 0 {
			params[name] = n
		}
	}
	if s.offset > 0 {
		params["offset"] = s.offset
	}
	if s.minScore != nil {
		params["min_score"] = *s.minScore
	}
	body = map[string]any{"params": params}
	if text, values := s.Where.Text(); text != "" {
		body["filter_condition"] = text
		if len(values) > 0 {
			body["filter_parameters"] = values
		}
	}
	if s.group != "" {
		body["group"] = s.group
		body["passages"] = cmp.Or(s.passages, search.DefaultPassages)
	}
	if f := s.feedback; len(f.Like)+len(f.Unlike) > 0 {
		body["feedback"] = map[string]any{"documents": 0, "like": append([]string{}, f.Like...),
			"unlike": append([]string{}, f.Unlike...)}
	}
	return body, []string{
		"k", "offset", "min-score", "exhaustive", "probes", "approx", "exact", "where", "param",
		"group", "passages", "like", "unlike", "questions",
	}
}

// ForQuery adds to the options the candidates of the query with this id.
func (s *Search) ForQuery(o search.Options, id string) search.Options {
	if s.run != nil {
		o.Candidates = []string{}
		for _, h := range s.run.Hits(id) {
			o.Candidates = append(o.Candidates, h.Doc)
		}
	}
	return o
}

// PerQuery reports whether the options differ from query to query.
func (s *Search) PerQuery() bool { return s.run != nil }

// CountWithoutCandidates counts the queries that the run of --candidates lacks, and returns the id
// of the first of them.
func (s *Search) CountWithoutCandidates(queries vectors.Source) (n int, first string) {
	if s.run == nil {
		return 0, ""
	}
	for i := range queries.Len() {
		if id := queries.ID(i); !s.run.Has(id) {
			if n++; n == 1 {
				first = id
			}
		}
	}
	return n, first
}

// Where holds the flags of a condition over the metadata of documents.
type Where struct {
	text   string
	params []string
	set    *pflag.FlagSet
}

// Register adds the flags to f; what says in the help what happens to the documents that match.
func (w *Where) Register(f *pflag.FlagSet, effect string) {
	w.set = f
	f.StringVar(&w.text, "where", "", "`CONDITION` over the metadata, such as \"year >= ? AND lang IN (?, "+
		"'en')\"; a list meets a condition if one of its elements does (tags = 'x'): "+effect)
	f.StringArrayVar(&w.params, "param", nil,
		"`VALUE` of the next ? of --where; may be repeated. It is text, which also equals the number it looks like")
}

// Text returns the condition as it was typed, with the values of its question marks.
func (w *Where) Text() (text string, params []string) { return w.text, w.params }

// Condition parses the condition and binds its values. It returns nil without --where.
func (w *Where) Condition() (*condition.Condition, error) {
	if !w.set.Changed("where") {
		if w.params != nil {
			return nil, Usagef("--param goes with --where")
		}
		return nil, nil
	}
	e, err := condition.Parse(w.text)
	if err != nil {
		return nil, Usagef("--where: %w", err)
	}
	params := make([]any, len(w.params))
	for i, p := range w.params {
		params[i] = p
	}
	c, err := e.Bind(params...)
	if err != nil {
		return nil, Usagef("--where: %w", err)
	}
	return c, nil
}

// Effort holds the flags for the budgets of a search, which trade speed for recall. A budget of 0
// is derived from k.
type Effort struct{ Probes, Approx, Exact int }

// Register adds the flags to f.
func (e *Effort) Register(f *pflag.FlagSet) {
	f.Var(Int(&e.Probes, 0, 0), "probes", "centroids to probe for a query token (0: by k)")
	f.Var(Int(&e.Approx, 0, 0), "approx", "maximum number of documents that get an approximate score (0: by k)")
	f.Var(Int(&e.Exact, 0, 0), "exact", "maximum number of documents that get an exact score, at least k (0: by k)")
}

// Apply sets the budgets in the options of a search.
func (e *Effort) Apply(o *search.Options) {
	o.Probes, o.Approx, o.Exact = e.Probes, e.Approx, e.Exact
}

// Efforts holds the flags of [Effort] with lists of values. All their combinations are measured.
type Efforts struct{ probes, approx, exact []int }

// Register adds the flags to f.
func (e *Efforts) Register(f *pflag.FlagSet) {
	f.Var(Ints(&e.probes, 0), "probes", "centroids to probe for a query token, such as 1,2,4,8 (0: derived)")
	f.Var(Ints(&e.approx, 0), "approx", "maximum number of documents that get an approximate score (0: derived)")
	f.Var(Ints(&e.exact, 0), "exact", "maximum number of documents that get an exact score (0: derived)")
}

// Settings returns all combinations, for searches for k documents in an index of some number of
// centroids, or nil if no flag is set.
func (e *Efforts) Settings(k, centroids int) []quality.Setting {
	if e.probes == nil && e.approx == nil && e.exact == nil {
		return nil
	}
	return quality.Grid(k, centroids, e.probes, e.approx, e.exact)
}
