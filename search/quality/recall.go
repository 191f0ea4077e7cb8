// Package quality measures searches: the losses by pruning and compression, and the settings that
// cost least.
//
//	[MeasureRecall]       finds documents of the exhaustive result that a search misses, and the stage that lost them
//	[MeasureCompression]  compares exhaustive search over stored vectors with exact MaxSim
//	[Sweep]               measures time and recall of many settings
//	[Tune]                finds the cheapest setting that reaches a recall
//	[SelfCheck]           estimates the recall of an index without queries
//	[Sampler]             measures the recall of users' queries in the background
//
// They measure a searcher where it searches, also on a device. Use searchers of one snapshot so
// that all measurements see the same documents. docs/evaluation.md explains the columns of losses.
package quality

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/search"
)

// defaultK is the default of search.Options.K.
const defaultK = 10

// Recall is the loss by pruning: how much of the exhaustive result over the stored vectors a search
// returns. [Compression] is the loss by the codec.
type Recall struct {
	K       int           `json:"k"`       // documents requested
	Queries []QueryRecall `json:"queries"` // in the order of the queries
	Stats   search.Stats  `json:"stats"`   // of the measured searches
}

// QueryRecall is one query of [Recall].
type QueryRecall struct {
	// Want is how many documents exhaustive search returns: K, or all.
	Want    int       `json:"want"`
	Missing []Missing `json:"missing"` // in the exhaustive order
}

// Missing is a document of the exhaustive result that the search did not return.
type Missing struct {
	ID      string  `json:"id"`
	Ordinal uint32  `json:"ordinal"`
	Rank    int     `json:"rank"` // in the exhaustive result, from 1
	Score   float32 `json:"score"`
	// Stage is where the search lost it.
	Stage search.Stage `json:"stage"`
}

// Recall returns the share of the exhaustive result that was found, or 1 if that is empty.
func (q *QueryRecall) Recall() float64 {
	if q.Want == 0 {
		return 1
	}
	return 1 - float64(len(q.Missing))/float64(q.Want)
}

// Mean returns the mean recall of the queries, or 1 if there are no queries.
func (r *Recall) Mean() float64 {
	if len(r.Queries) == 0 {
		return 1
	}
	sum := 0.0
	for i := range r.Queries {
		sum += r.Queries[i].Recall()
	}
	return sum / float64(len(r.Queries))
}

// ExhaustiveHits returns the number of documents in all exhaustive results.
func (r *Recall) ExhaustiveHits() int {
	n := 0
	for _, q := range r.Queries {
		n += q.Want
	}
	return n
}

// Lost counts the missing documents by the stage that lost them.
func (r *Recall) Lost() map[search.Stage]int {
	lost := map[search.Stage]int{}
	for _, q := range r.Queries {
		for _, m := range q.Missing {
			lost[m.Stage]++
		}
	}
	return lost
}

// LossStages are the stages that can lose a document of the exhaustive result, in order.
// [search.StageFiltered] occurs in mode Candidates only. [search.StageOutranked] means that the
// document was scored, and another one has the same score within the error of the fast kernel.
var LossStages = []search.Stage{
	search.StageFiltered, search.StageProbe, search.StageCut, search.StagePruned, search.StageOutranked,
}

// Progress is called with the progress of a measurement. It may be nil.
type Progress = func(index.Progress)

func report(p Progress, stage string, done, total int, unit string) {
	if p != nil {
		p(index.Progress{Stage: stage, Done: int64(done), Total: int64(total), Unit: unit})
	}
}

// Reference answers queries exhaustively: with the k documents of highest score over the stored
// vectors, in order. The first n of a list are the result for n.
func Reference(
	ctx context.Context, s search.Searcher, qs []search.Query, k int, progress Progress,
) ([][]search.Hit, error) {
	return searchExhaustively(ctx, s, qs, search.Options{K: k, Mode: search.Exhaustive}, progress)
}

// searchExhaustively returns the hits of queries with options, and reports progress.
func searchExhaustively(
	ctx context.Context, s search.Searcher, qs []search.Query, o search.Options, progress Progress,
) ([][]search.Hit, error) {
	results, err := searchInBatches(ctx, s, qs, o, "exhaustive search", progress)
	if err != nil {
		return nil, err
	}
	lists := make([][]search.Hit, len(results))
	for i, r := range results {
		lists[i] = r.Hits
	}
	return lists, nil
}

// progressBatch is how many queries are searched between two reports.
const progressBatch = 32

// searchInBatches answers queries and reports progress after each batch.
func searchInBatches(
	ctx context.Context, s search.Searcher, qs []search.Query, o search.Options, stage string, progress Progress,
) ([]search.Result, error) {
	results := make([]search.Result, 0, len(qs))
	for batch := range slices.Chunk(qs, progressBatch) {
		answers, err := s.SearchBatch(ctx, batch, o)
		if err != nil {
			return nil, shiftQuery(err, len(results))
		}
		results = append(results, answers...)
		report(progress, stage, len(results), len(qs), "queries")
	}
	return results, nil
}

// shiftQuery adds offset to the number of a failed query, so that it counts from the first batch.
func shiftQuery(err error, offset int) error {
	if q := (*search.QueryError)(nil); errors.As(err, &q) {
		return &search.QueryError{Index: q.Index + offset, Err: q.Err}
	}
	return err
}

// ErrReference reports exhaustive results that do not belong to the queries.
var ErrReference = errors.New("not the exhaustive results of these queries")

// checkReference returns an error if the reference has another number of queries, or k is negative.
func checkReference(qs []search.Query, k int, reference [][]search.Hit) error {
	if k < 0 {
		return fmt.Errorf("%w: k = %d; at least 1 is needed", search.ErrOption, k)
	}
	if len(reference) != len(qs) {
		return fmt.Errorf("%w: there are %d lists, and %d queries", ErrReference, len(reference), len(qs))
	}
	return nil
}

// Traced is a searcher that can trace a document through a search: a [search.Engine] or a
// [search.Multi]. Use one of a fixed snapshot (NewAt, NewMultiAt or At), so that the index does not
// change during a measurement.
type Traced interface {
	search.Searcher
	Trace(ctx context.Context, q search.Query, id string, o search.Options) (search.Stage, error)
}

// MeasureRecall searches with the options and compares the hits with reference, the exhaustive
// results of the same queries under the same filter, to a depth of at least o.K. A nil reference is
// computed.
//
// For each missing document it repeats the search, and traces the document to the stage that lost
// it. That takes most of the time if many are missing. A device loses documents at
// [search.StageProbe] or [search.StageOutranked].
//
// It returns [ErrReference] if the reference has another number of queries, and errors of searches.
func MeasureRecall(
	ctx context.Context, searcher Traced, qs []search.Query, o search.Options,
	reference [][]search.Hit, progress Progress,
) (*Recall, error) {
	if o.K == 0 {
		o.K = defaultK
	}
	if reference == nil {
		exhaustive := search.Options{K: o.K, Mode: search.Exhaustive, Filter: o.Filter}
		var err error
		if reference, err = searchExhaustively(ctx, searcher, qs, exhaustive, progress); err != nil {
			return nil, err
		}
	}
	if err := checkReference(qs, o.K, reference); err != nil {
		return nil, err
	}
	results, err := searchInBatches(ctx, searcher, qs, o, "search", progress)
	if err != nil {
		return nil, err
	}
	recall := &Recall{K: o.K, Queries: make([]QueryRecall, len(qs))}
	for i := range qs {
		recall.Stats.Add(results[i].Stats)
		want := reference[i][:min(o.K, len(reference[i]))]
		recall.Queries[i].Want = len(want)
		recall.Queries[i].Missing = missingHits(results[i].Hits, want)
	}
	return recall, recall.traceMissing(ctx, searcher, qs, o, progress)
}

// missingHits returns the hits of want that got lacks.
func missingHits(got, want []search.Hit) []Missing {
	returned := make(map[string]struct{}, len(got))
	for _, h := range got {
		returned[h.ID] = struct{}{}
	}
	missing := []Missing{}
	for i, h := range want {
		if _, ok := returned[h.ID]; !ok {
			missing = append(missing, Missing{ID: h.ID, Ordinal: h.Ordinal, Rank: i + 1, Score: h.Score})
		}
	}
	return missing
}

// shareFound returns the share of want that got has, or 1 if want is empty.
func shareFound(got, want []search.Hit) float64 {
	if len(want) == 0 {
		return 1
	}
	return 1 - float64(len(missingHits(got, want)))/float64(len(want))
}

// traceMissing finds the stage that lost each missing document.
func (r *Recall) traceMissing(
	ctx context.Context, searcher Traced, qs []search.Query, o search.Options, progress Progress,
) error {
	threads, err := threadCount(ctx, searcher)
	if err != nil {
		return err
	}
	var jobs [][2]int // index of the query, and of the document in its Missing
	for i, q := range r.Queries {
		for j := range q.Missing {
			jobs = append(jobs, [2]int{i, j})
		}
	}
	done := 0
	for batch := range slices.Chunk(jobs, progressBatch) {
		err := parallel.Do(ctx, len(batch), threads, func(n int) (err error) {
			i, j := batch[n][0], batch[n][1]
			m := &r.Queries[i].Missing[j]
			if m.Stage, err = searcher.Trace(ctx, qs[i], m.ID, o); err != nil {
				return &search.QueryError{Index: i, Err: err}
			}
			return nil
		})
		if err != nil {
			return err
		}
		done += len(batch)
		report(progress, "missing documents", done, len(jobs), "documents")
	}
	return nil
}

// threadCount returns the number of threads of a searcher.
func threadCount(ctx context.Context, s search.Searcher) (int, error) {
	d, err := s.Describe(ctx)
	return d.Threads, err
}

// Costs of the steps of a search, in tokens scored by centroids. They were measured on one processor
// (docs/lab/search-quality.md). They need not be exact: they serve to compare settings that differ in
// the amount of each step.
const (
	centroidWork = 60  // a centroid against the tokens of a query
	listWork     = 400 // a posting list that is read
	entryWork    = 10  // a document in it
	exactWork    = 20  // a token scored exactly
	refineWork   = 40  // a token scored in float precision
)

// countedWork returns the average work of a query in tokens scored by centroids. It is computed
// from counts, so that a busy machine does not change it. On a device there are no counts, and it
// is the time in nanoseconds.
func countedWork(s *search.Stats, centroids int) float64 {
	n := float64(max(s.Queries, 1))
	if s.Device != nil {
		return float64(s.Times.Total) / n
	}
	byCentroids := s.Plans[search.PlanProbe.String()] + s.Plans[search.PlanScan.String()]
	meanTokens := float64(s.ExactTokens) / float64(max(s.ExactDocs, 1))
	return (float64(byCentroids)*centroidWork*float64(centroids) +
		listWork*float64(s.Probed) + entryWork*float64(s.Postings) + float64(s.ApproxTokens) +
		exactWork*float64(s.ExactTokens) + refineWork*meanTokens*float64(s.RefinedDocs)) / n
}
