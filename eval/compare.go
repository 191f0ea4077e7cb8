package eval

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// CompareOptions of [Compare] and [CompareAll]. The zero value is good for most
// uses; a field that is 0 has the default it names.
type CompareOptions struct {
	// Average names the queries to compare over. [AverageEvaluated] asks for two
	// runs with the same judged queries.
	Average    Average
	Epsilon    float64 // greatest difference that is a tie; 0 is 10⁻⁹
	Differing  int     // most queries in Comparison.Differing; 0 is 10, negative is none
	Samples    int     // of [RandomisationTest] and [PairedBootstrap]; 0 is 10,000
	Confidence float64 // of [PairedBootstrap]; 0 is 0.95
	Seed       uint64  // of [RandomisationTest] and [PairedBootstrap]
	// AcrossMeasures makes [CompareAll] correct for the number of measures as
	// well as for that of systems.
	AcrossMeasures bool
}

func (o CompareOptions) withDefaults() (CompareOptions, error) {
	o.Epsilon = cmp.Or(o.Epsilon, 1e-9)
	o.Differing = cmp.Or(o.Differing, 10)
	o.Samples = cmp.Or(o.Samples, 10_000)
	o.Confidence = cmp.Or(o.Confidence, 0.95)
	if !(o.Epsilon > 0) || math.IsInf(o.Epsilon, 0) {
		return o, badParameter("epsilon is %v: want a finite number above 0", o.Epsilon)
	}
	return o, checkBootstrap(o.Samples, o.Confidence)
}

// Comparison is how two results differ in one measure over the same queries.
// Differences are those of a less b.
type Comparison struct {
	Measure Measure
	Average Average
	Queries []PairedQuery // in the order of a

	MeanA, MeanB float64
	Difference   float64 // mean of the differences
	// Queries where a is better, neither, and b: differences above epsilon, within
	// it, and below −epsilon.
	Wins, Ties, Losses int
	// Differing are the queries that differ most, the greatest difference first
	// and those of Queries' order where equal; ties are left out.
	Differing []PairedQuery

	TTest         TTest
	Randomisation Randomisation
	Bootstrap     Bootstrap
}

// PairedQuery is one query in two results.
type PairedQuery struct {
	Query      string
	A, B       float64
	Difference float64 // A − B
}

// Compare pairs the values of a measure in two results query by query and tests the
// mean difference. measure is an index into a.Measures; in b the same measure may
// have another place. Nothing depends on chance but through opts.Seed.
//
// Both results must come from the same judgements: a query that only one of them
// has, or whose number of relevant documents differs, wraps [ErrUnpaired], fewer
// than 2 queries [ErrTooFewPairs], a measure that one lacks [ErrMeasure], an option
// or a value out of range [ErrParameter], and a query listed twice [ErrDuplicate].
func Compare(a, b *Result, measure int, opts CompareOptions) (*Comparison, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if a == nil || b == nil {
		return nil, badParameter("a result is nil")
	}
	if measure < 0 || measure >= len(a.Measures) {
		return nil, fmt.Errorf("%w: index %d of %d", ErrMeasure, measure, len(a.Measures))
	}
	m := a.Measures[measure]
	inB := slices.Index(b.Measures, m)
	if inB < 0 {
		return nil, fmt.Errorf("%w: the second result has no %v", ErrMeasure, m)
	}
	pairs, err := pairQueries(a, b, measure, inB, opts.Average)
	if err != nil {
		return nil, fmt.Errorf("comparing %v: %w", m, err)
	}
	c := &Comparison{Measure: m, Average: opts.Average, Queries: pairs}
	if err := c.fill(opts); err != nil {
		return nil, fmt.Errorf("comparing %v: %w", m, err)
	}
	return c, nil
}

// pairQueries joins two results over the queries of an average. ia and ib are the
// places of the measure.
func pairQueries(a, b *Result, ia, ib int, average Average) ([]PairedQuery, error) {
	others := make(map[string]*QueryResult, len(b.Queries))
	for i := range b.Queries {
		q := &b.Queries[i]
		if _, ok := others[q.Query]; ok {
			return nil, fmt.Errorf("%w: the second result has query %q twice", ErrDuplicate, clip(q.Query))
		}
		others[q.Query] = q
	}
	pairs := make([]PairedQuery, 0, len(a.Queries))
	seen := make(map[string]struct{}, len(a.Queries))
	for i := range a.Queries {
		qa := &a.Queries[i]
		if _, ok := seen[qa.Query]; ok {
			return nil, fmt.Errorf("%w: the first result has query %q twice", ErrDuplicate, clip(qa.Query))
		}
		seen[qa.Query] = struct{}{}
		qb := others[qa.Query]
		switch {
		case qb == nil:
			return nil, fmt.Errorf("%w: query %q is judged in the first result only", ErrUnpaired, clip(qa.Query))
		case qa.Relevant != qb.Relevant:
			return nil, fmt.Errorf("%w: query %q has %d relevant documents in the first result and %d in the second",
				ErrUnpaired, clip(qa.Query), qa.Relevant, qb.Relevant)
		case qa.Included(average) != qb.Included(average):
			return nil, fmt.Errorf("%w: query %q is in one run only, and the average is over %v queries",
				ErrUnpaired, clip(qa.Query), average)
		case ia >= len(qa.Values) || ib >= len(qb.Values):
			return nil, badParameter("query %q lacks values", clip(qa.Query))
		}
		if qa.Included(average) {
			va, vb := qa.Values[ia], qb.Values[ib]
			pairs = append(pairs, PairedQuery{Query: qa.Query, A: va, B: vb, Difference: va - vb})
		}
	}
	for i := range b.Queries {
		if _, ok := seen[b.Queries[i].Query]; !ok {
			return nil, fmt.Errorf("%w: query %q is judged in the second result only", ErrUnpaired, clip(b.Queries[i].Query))
		}
	}
	return pairs, nil
}

// fill works out everything that follows from Queries.
func (c *Comparison) fill(opts CompareOptions) error {
	a, b := make([]float64, len(c.Queries)), make([]float64, len(c.Queries))
	for i, q := range c.Queries {
		a[i], b[i] = q.A, q.B
	}
	diffs, err := differences(a, b)
	if err != nil {
		return err
	}
	c.MeanA, c.MeanB, c.Difference = meanOf(a), meanOf(b), meanOf(diffs)
	for _, q := range c.Queries {
		switch {
		case q.Difference > opts.Epsilon:
			c.Wins++
		case q.Difference < -opts.Epsilon:
			c.Losses++
		default:
			c.Ties++
			continue
		}
		c.Differing = append(c.Differing, q)
	}
	slices.SortStableFunc(c.Differing, func(x, y PairedQuery) int {
		return cmp.Compare(math.Abs(y.Difference), math.Abs(x.Difference))
	})
	c.Differing = slices.Clone(c.Differing[:min(max(opts.Differing, 0), len(c.Differing))])

	c.TTest = tTest(diffs)
	c.Randomisation = randomise(diffs, opts.Samples, opts.Seed)
	c.Bootstrap = bootstrap(diffs, opts.Samples, opts.Confidence, opts.Seed)
	return nil
}

// MeasureComparison is one measure of [CompareAll].
type MeasureComparison struct {
	Measure Measure
	Systems []SystemComparison // in the order of the systems
}

// SystemComparison is a system against the baseline: A is the system, B the
// baseline.
type SystemComparison struct {
	*Comparison
	// P-values of the three tests after [Holm]'s correction.
	HolmTTest, HolmRandomisation, HolmBootstrap float64
}

// CompareAll compares each system with a baseline in each measure of the baseline.
// The p-values of a test are corrected for the number of systems, measure by
// measure, which is right if one measure was decided on beforehand; with
// opts.AcrossMeasures they are corrected over all systems and measures together. Every
// comparison uses opts.Seed itself, and so does not depend on the others. Errors are
// ctx's and those of [Compare], with the number of the system from 0; no system at
// all wraps [ErrParameter].
func CompareAll(ctx context.Context, baseline *Result, systems []*Result, opts CompareOptions) ([]MeasureComparison, error) {
	if baseline == nil {
		return nil, badParameter("the baseline is nil")
	}
	if len(systems) == 0 {
		return nil, badParameter("no system to compare with the baseline")
	}
	all := make([]MeasureComparison, len(baseline.Measures))
	for i, m := range baseline.Measures {
		all[i] = MeasureComparison{Measure: m, Systems: make([]SystemComparison, len(systems))}
		for j, system := range systems {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("comparing %v: %w", m, err)
			}
			if system == nil {
				return nil, badParameter("system %d is nil", j)
			}
			place := slices.Index(system.Measures, m)
			if place < 0 {
				return nil, fmt.Errorf("system %d: %w: it has no %v", j, ErrMeasure, m)
			}
			c, err := Compare(system, baseline, place, opts)
			if err != nil {
				return nil, fmt.Errorf("system %d: %w", j, err)
			}
			all[i].Systems[j].Comparison = c
		}
	}
	families := [][]MeasureComparison{all}
	if !opts.AcrossMeasures {
		families = slices.Collect(slices.Chunk(all, 1))
	}
	for _, family := range families {
		if err := correct(family); err != nil {
			return nil, fmt.Errorf("correcting for several tests: %w", err)
		}
	}
	return all, nil
}

// correct fills in the p-values after Holm over all comparisons of a family.
func correct(family []MeasureComparison) error {
	var systems []*SystemComparison
	for i := range family {
		for j := range family[i].Systems {
			systems = append(systems, &family[i].Systems[j])
		}
	}
	for _, test := range []struct {
		raw  func(*Comparison) float64
		into func(*SystemComparison) *float64
	}{
		{func(c *Comparison) float64 { return c.TTest.P }, func(s *SystemComparison) *float64 { return &s.HolmTTest }},
		{func(c *Comparison) float64 { return c.Randomisation.P }, func(s *SystemComparison) *float64 { return &s.HolmRandomisation }},
		{func(c *Comparison) float64 { return c.Bootstrap.P }, func(s *SystemComparison) *float64 { return &s.HolmBootstrap }},
	} {
		ps := make([]float64, len(systems))
		for j, s := range systems {
			ps[j] = test.raw(s.Comparison)
		}
		adjusted, err := Holm(ps)
		if err != nil {
			return err
		}
		for j, p := range adjusted {
			*test.into(systems[j]) = p
		}
	}
	return nil
}
