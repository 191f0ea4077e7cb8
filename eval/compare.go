package eval

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// CompareOptions are the options of [Compare] and [CompareAll]. The zero value suits most uses.
type CompareOptions struct {
	// Average selects the queries to compare over. [AverageEvaluated] requires two runs with the same
	// judged queries.
	Average Average
	Samples int    // of [RandomisationTest]. 0 means 10,000
	Seed    uint64 // of [RandomisationTest]
}

// tieTolerance is the greatest difference between two values of a query that counts as a tie.
const tieTolerance = 1e-9

// Comparison is the difference between two results in one measure over the same queries: a minus b.
type Comparison struct {
	Measure    Measure `json:"-"`
	MeanA      float64 `json:"-"`
	MeanB      float64 `json:"-"`
	Difference float64 `json:"difference"` // mean over the queries
	Wins       int     `json:"wins"`       // queries where a is better
	Ties       int     `json:"ties"`
	Losses     int     `json:"losses"` // queries where b is better
	Randomisation
	// Holm is P after the correction by [Holm]. [Compare] makes one test, so there it equals P.
	Holm float64 `json:"p_holm"`
}

// Compare pairs the values of a measure in two results query by query and tests the mean
// difference. measure is an index in a.Measures; b may have the same measure at another index. The
// result is deterministic for a given opts.Seed.
//
// Both results must come from the same judgements. A query that only one of them has, or whose
// number of relevant documents differs, wraps [ErrUnpaired]. Fewer than 2 queries wrap
// [ErrTooFewPairs], a measure that one lacks [ErrMeasure], an option or a value out of range
// [ErrParameter], and a query listed twice [ErrDuplicate].
func Compare(a, b *Result, measure int, opts CompareOptions) (*Comparison, error) {
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
	valuesA, valuesB, err := pairQueries(a, b, measure, inB, opts.Average)
	if err != nil {
		return nil, fmt.Errorf("comparing %v: %w", m, err)
	}
	c := &Comparison{Measure: m}
	if c.Randomisation, err = RandomisationTest(valuesA, valuesB, cmp.Or(opts.Samples, 10_000), opts.Seed); err != nil {
		return nil, fmt.Errorf("comparing %v: %w", m, err)
	}
	c.Holm, c.MeanA, c.MeanB = c.P, mean(valuesA), mean(valuesB)
	diffs, err := differences(valuesA, valuesB)
	if err != nil {
		return nil, fmt.Errorf("comparing %v: %w", m, err)
	}
	c.Difference = mean(diffs)
	for _, d := range diffs {
		switch {
		case d > tieTolerance:
			c.Wins++
		case d < -tieTolerance:
			c.Losses++
		default:
			c.Ties++
		}
	}
	return c, nil
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// pairQueries returns the values of the queries of an average in two results, pair by pair. ia and
// ib are the indexes of the measure.
func pairQueries(a, b *Result, ia, ib int, average Average) (valuesA, valuesB []float64, err error) {
	inB := make(map[string]*QueryResult, len(b.Queries))
	for i := range b.Queries {
		q := &b.Queries[i]
		if _, ok := inB[q.Query]; ok {
			return nil, nil, fmt.Errorf("%w: the second result has query %q twice", ErrDuplicate, shorten(q.Query))
		}
		inB[q.Query] = q
	}
	seen := make(map[string]struct{}, len(a.Queries))
	for i := range a.Queries {
		qa := &a.Queries[i]
		if _, ok := seen[qa.Query]; ok {
			return nil, nil, fmt.Errorf("%w: the first result has query %q twice", ErrDuplicate, shorten(qa.Query))
		}
		seen[qa.Query] = struct{}{}
		qb := inB[qa.Query]
		switch {
		case qb == nil:
			return nil, nil, fmt.Errorf("%w: query %q is judged in the first result only",
				ErrUnpaired, shorten(qa.Query))
		case qa.Relevant != qb.Relevant:
			return nil, nil, fmt.Errorf(
				"%w: query %q has %d relevant documents in the first result and %d in the second",
				ErrUnpaired, shorten(qa.Query), qa.Relevant, qb.Relevant)
		case qa.Included(average) != qb.Included(average):
			return nil, nil, fmt.Errorf("%w: query %q is in one run only, and the average is over %v queries",
				ErrUnpaired, shorten(qa.Query), average)
		case ia >= len(qa.Values) || ib >= len(qb.Values):
			return nil, nil, badParameter("query %q lacks values", shorten(qa.Query))
		}
		if qa.Included(average) {
			valuesA, valuesB = append(valuesA, qa.Values[ia]), append(valuesB, qb.Values[ib])
		}
	}
	for i := range b.Queries {
		if _, ok := seen[b.Queries[i].Query]; !ok {
			return nil, nil, fmt.Errorf("%w: query %q is judged in the second result only",
				ErrUnpaired, shorten(b.Queries[i].Query))
		}
	}
	return valuesA, valuesB, nil
}

// CompareAll compares each system with a baseline in each measure of the baseline. The result has a
// list for each system, in the order of the measures. P-values are corrected over all of them by
// [Holm]. Every comparison uses opts.Seed itself, and so does not depend on the others. It returns
// the error of ctx, or of [Compare] with the number of the system from 0. Without systems it
// returns [ErrParameter].
func CompareAll(ctx context.Context, baseline *Result, systems []*Result, opts CompareOptions) ([][]Comparison, error) {
	if baseline == nil {
		return nil, badParameter("the baseline is nil")
	}
	if len(systems) == 0 {
		return nil, badParameter("no system to compare with the baseline")
	}
	comparisons := make([][]Comparison, len(systems))
	var ps []float64
	for i, system := range systems {
		for _, m := range baseline.Measures {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("comparing %v: %w", m, err)
			}
			if system == nil {
				return nil, badParameter("system %d is nil", i)
			}
			index := slices.Index(system.Measures, m)
			if index < 0 {
				return nil, fmt.Errorf("system %d: %w: it has no %v", i, ErrMeasure, m)
			}
			c, err := Compare(system, baseline, index, opts)
			if err != nil {
				return nil, fmt.Errorf("system %d: %w", i, err)
			}
			comparisons[i], ps = append(comparisons[i], *c), append(ps, c.P)
		}
	}
	adjusted, err := Holm(ps)
	if err != nil {
		return nil, fmt.Errorf("correcting for several tests: %w", err)
	}
	for i := range comparisons {
		for j := range comparisons[i] {
			comparisons[i][j].Holm = adjusted[i*len(baseline.Measures)+j]
		}
	}
	return comparisons, nil
}
