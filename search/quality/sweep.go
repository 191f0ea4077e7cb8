package quality

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/search"
)

// Setting is the parameters that decide how many documents a search looks at. The zero value means
// derived parameters.
type Setting struct {
	// Probes, Approx and Exact are those of [search.Options].
	Probes int `json:"probes"`
	Approx int `json:"approx"`
	Exact  int `json:"exact"`
	// Effort multiplies derived parameters, as in [search.Options]. 0 means 1.
	Effort float64 `json:"effort,omitempty"`
	// Scan computes an approximate score of every document, without probing. Probes is 0 then.
	Scan bool `json:"scan,omitempty"`
	// Exhaustive scores every document. The other fields are 0 then.
	Exhaustive bool `json:"exhaustive,omitempty"`
}

// Options returns the options of a search with this setting. They ignore stored defaults.
func (s Setting) Options(k int) search.Options {
	o := search.Options{K: k, Probes: s.Probes, Approx: s.Approx, Exact: s.Exact, Effort: s.Effort, Derive: true}
	if s.Scan {
		o.Probes = search.AllProbes
	}
	if s.Exhaustive {
		o.Mode = search.Exhaustive
	}
	return o
}

// String returns text like "probes 8, exact 200", without derived parameters.
func (s Setting) String() string {
	var settings []string
	if s.Scan {
		settings = append(settings, "scan")
	}
	for _, x := range []struct {
		name  string
		value int
	}{
		{"probes", s.Probes},
		{"approx", s.Approx},
		{"exact", s.Exact},
	} {
		if x.value > 0 {
			settings = append(settings, fmt.Sprintf("%s %d", x.name, x.value))
		}
	}
	if s.Effort > 0 && s.Effort != 1 {
		settings = append(settings, fmt.Sprintf("effort %.4g", s.Effort))
	}
	switch {
	case s.Exhaustive:
		return "exhaustive"
	case len(settings) == 0:
		return "derived"
	}
	return strings.Join(settings, ", ")
}

// Grid returns every combination of the lists; an empty list stands for 0. It leaves out
// combinations that are equal for searches of k documents with this many centroids.
func Grid(k, centroids int, probes, approx, exact []int) []Setting {
	var grid []Setting
	seen := map[Setting]bool{}
	orZero := func(list []int) []int {
		if len(list) == 0 {
			return []int{0}
		}
		return list
	}
	for _, p := range orZero(probes) {
		for _, a := range orZero(approx) {
			for _, x := range orZero(exact) {
				s := Setting{Probes: min(p, centroids), Approx: a, Exact: x}
				if x > 0 {
					s.Exact = max(x, k)
				}
				if !seen[s] {
					seen[s] = true
					grid = append(grid, s)
				}
			}
		}
	}
	return grid
}

// SweepOptions of [Sweep].
type SweepOptions struct {
	K        int // 0 means 10
	Settings []Setting
	// Repeat is how often all queries are searched. 0 means once.
	Repeat int
	// Judge, where set, rates the results of a setting, for example by nDCG@10.
	Judge func(results []search.Result) (float64, error)
	// Progress, where set, is called with the number of settings that are done.
	Progress Progress
}

// warmup is how many queries are searched with each setting before times are measured.
const warmup = 10

// Point is a setting with its measured cost and recall.
type Point struct {
	Setting
	// Recall is the mean share of the exhaustive result that was found.
	Recall float64 `json:"recall"`
	// Value is the result of Judge. nil means that there was none.
	Value *float64 `json:"value,omitempty"`
	// Latency is that of queries searched one at a time, on all threads of the engine.
	Latency Latency `json:"latency"`
	// QPS is queries a second in one batch of all.
	QPS float64 `json:"queries_per_second"`
	// Pareto means that no other setting is faster, by the median, with at least this recall, or has
	// more recall and is at least as fast.
	Pareto bool `json:"pareto"`
	// Stats is the sum over one pass.
	Stats search.Stats `json:"stats"`
}

// Latency summarizes the times of queries, with percentiles by nearest rank.
type Latency struct {
	Mean time.Duration `json:"mean_ns"` // of all queries
	P50  time.Duration `json:"p50_ns"`  // half of the queries took no longer
	P95  time.Duration `json:"p95_ns"`  // 95 of 100 took no longer
	P99  time.Duration `json:"p99_ns"`  // 99 of 100 took no longer
	Max  time.Duration `json:"max_ns"`  // the slowest query
}

// NewLatency summarizes times, and sorts them.
func NewLatency(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	slices.Sort(times)
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	percentile := func(percent int) time.Duration { return times[max((len(times)*percent+99)/100-1, 0)] }
	return Latency{
		Mean: sum / time.Duration(len(times)),
		P50:  percentile(50),
		P95:  percentile(95),
		P99:  percentile(99),
		Max:  times[len(times)-1],
	}
}

// Sweep measures settings with the same queries, one setting after the other. The index should not
// change meanwhile. reference is as in [MeasureRecall].
func Sweep(
	ctx context.Context, searcher search.Searcher, qs []search.Query, o SweepOptions, reference [][]search.Hit,
) ([]Point, error) {
	if len(qs) == 0 {
		return nil, fmt.Errorf("%w: no queries", search.ErrQuery)
	}
	if o.K == 0 {
		o.K = defaultK
	}
	threads, err := threadCount(ctx, searcher)
	if err != nil {
		return nil, err
	}
	if reference == nil {
		if reference, err = Reference(ctx, searcher, qs, o.K, o.Progress); err != nil {
			return nil, err
		}
	}
	if err := checkReference(qs, o.K, reference); err != nil {
		return nil, err
	}
	points := make([]Point, len(o.Settings))
	for i, s := range o.Settings {
		if points[i], err = measureSetting(ctx, searcher, threads, qs, s, &o, reference); err != nil {
			return nil, fmt.Errorf("%v: %w", s, err)
		}
		report(o.Progress, "sweep", i+1, len(points), "settings")
	}
	markPareto(points)
	return points, nil
}

// measureSetting measures one setting: latency and recall query by query, and then the rate of a batch.
func measureSetting(
	ctx context.Context, s search.Searcher, threads int, qs []search.Query,
	set Setting, o *SweepOptions, reference [][]search.Hit,
) (Point, error) {
	p := Point{Setting: set}
	options := set.Options(o.K)
	for i := range warmup {
		if _, err := s.Search(ctx, qs[i%len(qs)], options); err != nil {
			return p, &search.QueryError{Index: i % len(qs), Err: err}
		}
	}
	results := make([]search.Result, len(qs))
	var times []time.Duration
	var total time.Duration
	for pass := range max(o.Repeat, 1) {
		for i, q := range qs {
			start := time.Now()
			r, err := s.Search(ctx, q, options)
			if err != nil {
				return p, &search.QueryError{Index: i, Err: err}
			}
			d := time.Since(start)
			times = append(times, d)
			total += d
			if pass == 0 {
				results[i] = *r
				p.Stats.Add(r.Stats)
				p.Recall += shareFound(r.Hits, reference[i][:min(o.K, len(reference[i]))])
			}
		}
	}
	p.QPS = float64(len(times)) / total.Seconds()
	p.Latency = NewLatency(times)
	if threads > 1 {
		start := time.Now()
		if _, err := s.SearchBatch(ctx, qs, options); err != nil {
			return p, err
		}
		p.QPS = float64(len(qs)) / time.Since(start).Seconds()
	}
	p.Recall /= float64(len(qs))
	if o.Judge != nil {
		v, err := o.Judge(results)
		if err != nil {
			return p, err
		}
		p.Value = &v
	}
	return p, nil
}

// markPareto sets Pareto of each point, by the median latency and recall.
func markPareto(points []Point) {
	for i := range points {
		p := &points[i]
		p.Pareto = !slices.ContainsFunc(points, func(o Point) bool {
			faster, better := o.Latency.P50 < p.Latency.P50, o.Recall > p.Recall
			return faster && o.Recall >= p.Recall || better && o.Latency.P50 <= p.Latency.P50
		})
	}
}
