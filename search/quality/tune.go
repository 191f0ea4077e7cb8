package quality

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// TuneOptions of [Tune].
type TuneOptions struct {
	// Recall is the target for the mean recall, above 0 and at most 1. 0 means 0.995.
	Recall float64
	// Worst is the target for the recall of each query, at most 1. 0 means a value that fits Recall:
	// 0.7 for 0.995.
	Worst float64
	// K are the classes of k to tune for. An empty list means 10 and 100.
	K []int
	// Progress, where set, is called with the number of settings tried.
	Progress Progress
}

// defaultRecall and defaultKs are the defaults of options.
const defaultRecall = 0.995

var defaultKs = []int{10, 100}

// worstTargetFor returns the recall of the worst query that fits a mean recall.
func worstTargetFor(recall float64) float64 { return max(1-float64(60*(1-recall)), 0) }

// Tuning is the result of [Tune].
type Tuning struct {
	Target      float64 `json:"target"`       // the target for the mean recall
	WorstTarget float64 `json:"worst_target"` // the target for the recall of each query
	// TunedOn and HeldOut are the indexes of the queries in each half.
	TunedOn []int   `json:"-"`
	HeldOut []int   `json:"-"`
	Classes []Tuned `json:"classes"` // by ascending K
}

// Tuned is the setting that was found for one k.
type Tuned struct {
	K int `json:"k"` // for searches of up to K documents
	Setting
	// Tuned and HeldOut measure the setting on the two halves, Derived measures derived parameters on
	// the half held out.
	Tuned   Trial `json:"tuned"`
	HeldOut Trial `json:"held_out"`
	Derived Trial `json:"derived_held_out"`
	// Margin is by how much Tuned.Recall had to exceed the target: the standard error of the
	// difference between the halves.
	Margin float64 `json:"margin"`
	// Confirmed means that the queries held out reach the target, and the worst of them its target.
	Confirmed bool `json:"confirmed"`
	// Trials are all settings that were tried, in order.
	Trials []Trial `json:"trials"`
}

// Trial is the measurement of one setting with some queries.
type Trial struct {
	Setting
	Recall float64 `json:"recall"` // the mean share of the exhaustive result that was found
	// Worst is the share for the worst query, Error the standard error of Recall, both as in [MeasuredRecall].
	Worst float64 `json:"worst"`
	Error float64 `json:"standard_error"`
	// Work is the average work of a query, by which settings are compared. It is computed from
	// counts, in tokens scored by centroids; a token scored exactly counts as twenty of them. On a
	// device it is the time in nanoseconds.
	Work float64 `json:"work"`
	// Cost is the mean over the queries of their fastest times. It is for information only.
	Cost time.Duration `json:"cost_ns"`
}

// Confirmed reports whether every class was confirmed.
func (t *Tuning) Confirmed() bool {
	return !slices.ContainsFunc(t.Classes, func(c Tuned) bool { return !c.Confirmed })
}

// Defaults returns the record to store with an index of this state by [index.Index.SetDefaults].
func (t *Tuning) Defaults(s storage.State, now time.Time) *storage.Defaults {
	d := &storage.Defaults{
		Docs:    s.Documents(),
		Tokens:  s.LiveTokens,
		Time:    now.UTC().Truncate(time.Second),
		Version: index.Version(),
	}
	for _, c := range t.Classes {
		d.Classes = append(d.Classes, storage.DefaultClass{
			K:           c.K,
			Probes:      c.Probes,
			Approx:      c.Approx,
			Exact:       c.Exact,
			Scan:        c.Scan,
			Target:      t.Target,
			WorstTarget: t.WorstTarget,
			Recall:      c.Tuned.Recall,
			HeldOut:     c.HeldOut.Recall,
			Worst:       c.HeldOut.Worst,
			Error:       c.HeldOut.Error,
			Queries:     len(t.HeldOut),
		})
	}
	return d
}

// Tune looks for the cheapest setting that reaches a recall, in the mean and for the worst query.
// It tunes on one random half of the queries, and measures the setting on the other half. The work
// of a setting is computed from counts, so a busy machine does not change the result. Among
// settings of similar work the one with the best recall wins. Derived parameters stay unless a
// setting is clearly cheaper.
//
// The best of many settings looks better on the queries that selected it than it is. So a setting
// has to exceed the target by one standard error of the difference between the halves, √2·s/√n. A
// setting that misses nothing needs no margin.
//
// On a device Tune tunes the searches of that device, where only Probes has an effect; but only
// searches on the processor use stored [Tuning.Defaults].
//
// Errors: [search.ErrQuery] for fewer than 4 queries, [search.ErrOption], and errors of searches.
func Tune(
	ctx context.Context, e *search.Engine, snap *index.Snapshot, qs []search.Query, o TuneOptions,
) (*Tuning, error) {
	if o.Recall == 0 {
		o.Recall = defaultRecall
	}
	if !(o.Recall > 0 && o.Recall <= 1) {
		return nil, fmt.Errorf("%w: a recall of %g; above 0 and at most 1 is possible", search.ErrOption, o.Recall)
	}
	if o.Worst == 0 {
		o.Worst = worstTargetFor(o.Recall)
	}
	if !(o.Worst >= 0 && o.Worst <= 1) {
		return nil, fmt.Errorf("%w: a recall of %g for the worst query; 0 to 1 is possible", search.ErrOption, o.Worst)
	}
	if len(o.K) == 0 {
		o.K = defaultKs
	}
	ks := slices.Compact(slices.Sorted(slices.Values(o.K)))
	if ks[0] < 1 {
		return nil, fmt.Errorf("%w: k = %d; at least 1 is needed", search.ErrOption, ks[0])
	}
	if len(qs) < 4 {
		return nil, fmt.Errorf("%w: %d queries; tuning needs at least 4", search.ErrQuery, len(qs))
	}
	engine := e.At(snap)
	reference, err := Reference(ctx, engine, qs, ks[len(ks)-1], o.Progress)
	if err != nil {
		return nil, err
	}
	t := &Tuning{Target: o.Recall, WorstTarget: o.Worst}
	order := rand.New(rand.NewPCG(0, 0)).Perm(len(qs))
	t.TunedOn, t.HeldOut = order[:(len(qs)+1)/2], order[(len(qs)+1)/2:]
	slices.Sort(t.TunedOn)
	slices.Sort(t.HeldOut)
	for _, k := range ks {
		u := newTuner(engine, snap, k, o.Recall, o.Worst, o.Progress)
		u.useQueries(qs, reference, t.TunedOn)
		c, err := u.tuneClass(ctx)
		if err != nil {
			return nil, err
		}
		u.useQueries(qs, reference, t.HeldOut)
		if c.HeldOut, err = u.measure(ctx, c.Setting, finalRepeats); err != nil {
			return nil, err
		}
		if c.Derived, err = u.measure(ctx, Setting{}, finalRepeats); err != nil {
			return nil, err
		}
		c.Confirmed = c.HeldOut.Recall >= o.Recall && c.HeldOut.Worst >= o.Worst
		t.Classes = append(t.Classes, *c)
	}
	return t, nil
}

// tuner looks for the setting of one k.
type tuner struct {
	engine   *search.Engine
	snap     *index.Snapshot
	k        int
	target   float64
	worst    float64
	progress Progress

	queries         []search.Query
	reference       [][]search.Hit
	tried           map[Setting]Trial
	trials          []Trial
	stats           search.Stats // of the last measurement
	workBeforeExact float64      // of a query, with the last number of probes that was tried
}

// newTuner returns a tuner for one k. target and worst are the targets for the mean recall and for
// the worst query.
func newTuner(engine *search.Engine, snap *index.Snapshot, k int, target, worst float64, progress Progress) *tuner {
	return &tuner{
		engine:   engine,
		snap:     snap,
		k:        k,
		target:   target,
		worst:    worst,
		progress: progress,
		tried:    map[Setting]Trial{},
	}
}

// useQueries selects the queries to measure with, by their indexes. nil selects all.
func (u *tuner) useQueries(qs []search.Query, reference [][]search.Hit, indexes []int) {
	u.queries, u.reference = nil, nil
	for i, q := range qs {
		if indexes == nil || slices.Contains(indexes, i) {
			u.queries = append(u.queries, q)
			u.reference = append(u.reference, reference[i][:min(u.k, len(reference[i]))])
		}
	}
}

// measure searches all queries, several times for a better estimate of the time.
func (u *tuner) measure(ctx context.Context, s Setting, repeats int) (Trial, error) {
	t := Trial{Setting: s}
	fastest := make([]time.Duration, len(u.queries))
	for pass := range repeats {
		results, err := u.engine.SearchBatch(ctx, u.queries, s.Options(u.k))
		if err != nil {
			return t, err
		}
		if pass == 0 {
			u.stats = search.Stats{}
		}
		for i, r := range results {
			if d := r.Stats.Times.Total; pass == 0 || d < fastest[i] {
				fastest[i] = d
			}
			if pass == 0 {
				u.stats.Add(r.Stats)
			}
		}
		if pass == 0 {
			f := summarizeShares(u.k, sharesFound(results, u.reference, u.k))
			t.Recall, t.Worst, t.Error = f.Recall, f.Worst, f.Error
		}
	}
	for _, d := range fastest {
		t.Cost += d / time.Duration(len(fastest))
	}
	t.Work = countedWork(&u.stats, u.snap.Header().Centroids)
	return t, nil
}

// measureOnce measures a setting, or returns its earlier trial.
func (u *tuner) measureOnce(ctx context.Context, s Setting) (Trial, error) {
	if t, ok := u.tried[s]; ok {
		return t, nil
	}
	t, err := u.measure(ctx, s, 1)
	if err != nil {
		return t, err
	}
	u.tried[s] = t
	u.trials = append(u.trials, t)
	report(u.progress, fmt.Sprintf("tuning k = %d", u.k), len(u.trials), 0, "settings")
	return t, nil
}

// margin returns by how much the recall of a trial must exceed the target.
func (u *tuner) margin(t Trial) float64 {
	if t.Recall == 1 {
		return 0
	}
	return math.Sqrt2 * t.Error
}

// reaches reports whether a trial reaches both targets.
func (u *tuner) reaches(t Trial) bool { return t.Recall-u.margin(t) >= u.target && t.Worst >= u.worst }

const (
	finalRepeats    = 3    // passes for the reported times
	nearBest        = 1.05 // times the least work: up to this, recall decides
	worthwhileEqual = 0.95 // of the work of derived parameters: up to this, a setting with equal recall replaces them
	worthwhileWorse = 0.8  // the same for a setting with lower recall
)

var (
	tuneProbes = []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}
	// tuneExact are exact budgets in units of k.
	tuneExact = []float64{1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64}
)

// tuneClass tries settings and returns the best.
func (u *tuner) tuneClass(ctx context.Context) (*Tuned, error) {
	docs, centroids := u.snap.Len(), u.snap.Header().Centroids
	if _, err := u.measureOnce(ctx, Setting{}); err != nil {
		return nil, err
	}
	if docs <= max(1<<16, 64*u.k) { // for more documents a scan costs too much
		if err := u.tryExactBudgets(ctx, Setting{Scan: true}, docs); err != nil {
			return nil, err
		}
	}
	for _, p := range tuneProbes {
		if p >= centroids {
			break
		}
		if err := u.tryExactBudgets(ctx, Setting{Probes: p}, docs); err != nil {
			return nil, err
		}
		// The work before exact scores only grows with more probes.
		if best, ok := u.cheapest(); ok && u.workBeforeExact > best.Work {
			break
		}
	}
	if best, ok := u.cheapest(); ok {
		if err := u.tryApproxBudgets(ctx, best); err != nil {
			return nil, err
		}
	} else if _, err := u.measureOnce(ctx, Setting{Exact: max(docs, u.k)}); err != nil { // this finds everything
		return nil, err
	}
	return u.selectBest(ctx)
}

// tryExactBudgets tries exact budgets with a number of probes: the derived one, and by bisection
// the smallest that reaches the target. If none does because candidates are cut, it tries again
// without cutting.
func (u *tuner) tryExactBudgets(ctx context.Context, s Setting, docs int) error {
	var budgets []int
	for _, f := range tuneExact {
		if n := int(math.Ceil(f * float64(u.k))); n < docs {
			budgets = append(budgets, n)
		}
	}
	if len(budgets) == 0 {
		return nil
	}
	if _, err := u.measureOnce(ctx, s); err != nil {
		return err
	}
	withoutExact := u.stats
	withoutExact.ExactTokens, withoutExact.RefinedDocs = 0, 0
	u.workBeforeExact = countedWork(&withoutExact, u.snap.Header().Centroids)
	s.Exact = budgets[len(budgets)-1]
	t, err := u.measureOnce(ctx, s)
	if err == nil && !u.reaches(t) && u.candidatesWereCut() {
		s.Approx = docs
		t, err = u.measureOnce(ctx, s)
	}
	if err != nil || !u.reaches(t) {
		return err
	}
	lo, hi := 0, len(budgets)-1 // the budget at hi reaches the target
	for lo < hi {
		mid := (lo + hi) / 2
		s.Exact = budgets[mid]
		if t, err = u.measureOnce(ctx, s); err != nil {
			return err
		}
		if u.reaches(t) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return nil
}

// candidatesWereCut reports whether some candidates had no approximate score in the last
// measurement.
func (u *tuner) candidatesWereCut() bool {
	return u.stats.Plans[search.PlanProbe.String()] > 0 && u.stats.ApproxDocs < u.stats.Candidates
}

// tryApproxBudgets tries smaller approximate budgets with the best setting, as long as they save
// work.
func (u *tuner) tryApproxBudgets(ctx context.Context, t Trial) error {
	if _, err := u.measure(ctx, t.Setting, 1); err != nil {
		return err
	}
	if u.stats.Plans[search.PlanProbe.String()] == 0 {
		return nil
	}
	budget := int(u.stats.ApproxDocs) / max(u.stats.Queries, 1) / 2
	for minBudget := max(t.Exact, 2*u.k); budget > minBudget; budget /= 2 {
		s := t.Setting
		s.Approx = budget
		next, err := u.measureOnce(ctx, s)
		if err != nil {
			return err
		}
		if !u.reaches(next) || next.Work >= t.Work {
			return nil
		}
		t = next
	}
	return nil
}

// cheapest returns the cheapest trial that reaches the target.
func (u *tuner) cheapest() (best Trial, ok bool) {
	for _, t := range u.trials {
		if u.reaches(t) && (!ok || t.Work < best.Work) {
			best, ok = t, true
		}
	}
	return best, ok
}

// selectBest selects among the trials that reach the target.
func (u *tuner) selectBest(ctx context.Context) (*Tuned, error) {
	best, _ := u.cheapest()
	leastWork := best.Work
	for _, t := range u.trials {
		isBetter := t.Recall > best.Recall || t.Recall == best.Recall && t.Work < best.Work
		if u.reaches(t) && t.Work <= nearBest*leastWork && isBetter {
			best = t
		}
	}
	if t := u.tried[Setting{}]; u.reaches(t) && best.Setting != t.Setting {
		maxWorkShare := worthwhileEqual
		if best.Recall < t.Recall {
			maxWorkShare = worthwhileWorse
		}
		if best.Work > maxWorkShare*t.Work {
			best = t
		}
	}
	t, err := u.measure(ctx, best.Setting, finalRepeats)
	if err != nil {
		return nil, err
	}
	return &Tuned{K: u.k, Setting: t.Setting, Tuned: t, Margin: u.margin(t), Trials: u.trials}, nil
}
