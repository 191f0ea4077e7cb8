package eval

import (
	"cmp"
	"fmt"
	"slices"
)

// AgreementOptions of [Agree]. The zero value is trec_eval's order, overlap at 10
// and RBO with p = 0.9.
type AgreementOptions struct {
	Ties Ties
	K    int     // depth of [OverlapAtK]; 0 is 10
	P    float64 // persistence of [RBO]; 0 is 0.9
	// ExcludeSelf drops hits whose document id equals the query id, as in [Options].
	ExcludeSelf bool
}

// Agreement says how alike two runs rank.
type Agreement struct {
	K       int
	P       float64
	Queries []QueryAgreement // every query of the reference, in its order

	Overlap float64 // mean over Queries
	RBO     float64 // mean over Queries
	Tau     float64 // mean over the TauQueries queries where tau is defined; 0 without any

	TauQueries int
	// Unmatched counts the queries of the run that the reference lacks. They take
	// no part in anything.
	Unmatched int
}

// QueryAgreement is one query of an [Agreement].
type QueryAgreement struct {
	Query   string
	InRun   bool // false: missing from the run, which is taken as an empty list
	Overlap float64
	RBO     float64
	Tau     float64
	TauOK   bool // false: tau is undefined and 0
}

// Agree compares the rankings of run with those of reference, query by query:
// [OverlapAtK] of the first K documents, [RBO] of the whole lists and [KendallTau]
// of what they have in common. Retrieve both to the same depth. A reference without
// queries wraps [ErrUnpaired], a K or P out of range [ErrParameter].
func Agree(run, reference *Run, opts AgreementOptions) (*Agreement, error) {
	if opts.K == 0 {
		opts.K = 10
	}
	if opts.P == 0 {
		opts.P = 0.9
	}
	if opts.K < 0 {
		return nil, badParameter("K is %d: want 1 or more", opts.K)
	}
	if err := checkPersistence(opts.P); err != nil {
		return nil, err
	}
	if reference == nil || reference.Len() == 0 {
		return nil, fmt.Errorf("%w: the reference run has no query", ErrUnpaired)
	}
	if run == nil {
		run = new(Run)
	}
	agreement := &Agreement{K: opts.K, P: opts.P, Queries: make([]QueryAgreement, 0, reference.Len())}
	for _, query := range reference.queries {
		q := QueryAgreement{Query: query, InRun: run.Has(query)}
		gotHits, wantHits := run.hits[query], reference.hits[query]
		if opts.ExcludeSelf {
			gotHits, wantHits = withoutSelf(slices.Clone(gotHits), query), withoutSelf(slices.Clone(wantHits), query)
		}
		got, want := opts.Ties.docs(gotHits), opts.Ties.docs(wantHits)
		q.Overlap = OverlapAtK(got, want, opts.K)
		var err error
		if q.RBO, err = RBO(got, want, opts.P); err != nil {
			return nil, err
		}
		q.Tau, q.TauOK = KendallTau(gotHits, wantHits, opts.Ties)
		agreement.add(q)
	}
	for _, query := range run.queries {
		if !reference.Has(query) {
			agreement.Unmatched++
		}
	}
	n := float64(len(agreement.Queries))
	agreement.Overlap /= n
	agreement.RBO /= n
	if agreement.TauQueries > 0 {
		agreement.Tau /= float64(agreement.TauQueries)
	}
	return agreement, nil
}

// add records a query; the means are sums until all are in.
func (a *Agreement) add(q QueryAgreement) {
	a.Queries = append(a.Queries, q)
	a.Overlap += q.Overlap
	a.RBO += q.RBO
	if q.TauOK {
		a.Tau += q.Tau
		a.TauQueries++
	}
}

// Shared returns the number of queries that both runs have.
func (a *Agreement) Shared() int {
	n := 0
	for _, q := range a.Queries {
		if q.InRun {
			n++
		}
	}
	return n
}

// Least returns the n queries that agree least, the lowest overlap first, the lowest
// RBO where that is equal. Queries of full agreement are left out.
func (a *Agreement) Least(n int) []QueryAgreement {
	least := slices.DeleteFunc(slices.Clone(a.Queries), func(q QueryAgreement) bool {
		return q.Overlap >= 1 && q.RBO >= 1
	})
	slices.SortStableFunc(least, func(x, y QueryAgreement) int {
		return cmp.Or(cmp.Compare(x.Overlap, y.Overlap), cmp.Compare(x.RBO, y.RBO))
	})
	return slices.Clip(least[:min(max(n, 0), len(least))])
}
