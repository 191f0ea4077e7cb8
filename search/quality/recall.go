// Package quality judges searches: what pruning and compression lose, and which
// settings cost least.
//
//	[MeasureRecall]       what a search misses of the exhaustive result, and where
//	[MeasureCompression]  what exhaustive search over stored vectors misses of exact MaxSim
//	[Sweep]               time against recall over settings
//	[Tune]                the cheapest setting that reaches a recall
//	[SelfCheck]           what an index can tell of that without queries
//	[Sampler]             what the questions of users find, one by one in the background
//
// They measure a searcher as it is, on a device if it searches there. Searchers of a snapshot
// let what is measured together see one content. docs/evaluation.md explains the
// columns of losses.
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

// defaultK is that of search.Options.
const defaultK = 10

// Recall is what pruning loses: how much of the exhaustive result over the
// stored vectors a search returns. What the codec loses is another matter, see
// [Compression].
type Recall struct {
	K       int           `json:"k"`       // documents that were searched for
	Queries []QueryRecall `json:"queries"` // one by one
	Stats   search.Stats  `json:"stats"`   // of the searches that were measured
}

// QueryRecall is one query of [Recall].
type QueryRecall struct {
	// Want is how many documents exhaustive search returns: K, or all there are.
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

// Recall is the share of the exhaustive result that was found; 1 where there is none.
func (q *QueryRecall) Recall() float64 {
	if q.Want == 0 {
		return 1
	}
	return 1 - float64(len(q.Missing))/float64(q.Want)
}

// Mean is the mean recall over the queries; 1 without any.
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

// Wanted is the number of documents of all exhaustive results.
func (r *Recall) Wanted() int {
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

// LossStages are the stages that can lose a document of the exhaustive result, in order;
// [search.StageFiltered] is of mode Candidates. [search.StageOutranked] says that it was
// scored, and that another document has the same score within the error of the fast kernel.
var LossStages = []search.Stage{search.StageFiltered, search.StageProbe, search.StageCut, search.StagePruned, search.StageOutranked}

// Progress hears how far a measurement is; nil: nobody does.
type Progress = func(index.Progress)

func report(p Progress, stage string, done, total int, unit string) {
	if p != nil {
		p(index.Progress{Stage: stage, Done: int64(done), Total: int64(total), Unit: unit})
	}
}

// Reference answers queries exhaustively: the k documents of highest score over
// the stored vectors, each list in order. Its first n are the result for n.
func Reference(ctx context.Context, s search.Searcher, qs []search.Query, k int, progress Progress) ([][]search.Hit, error) {
	return searchExhaustively(ctx, s, qs, search.Options{K: k, Mode: search.Exhaustive}, progress)
}

func searchExhaustively(ctx context.Context, s search.Searcher, qs []search.Query, o search.Options, progress Progress) ([][]search.Hit, error) {
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

func searchInBatches(ctx context.Context, s search.Searcher, qs []search.Query, o search.Options, stage string, progress Progress) ([]search.Result, error) {
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

// shiftQuery makes the number of a failed query count from the first of all batches.
func shiftQuery(err error, offset int) error {
	if q := (*search.QueryError)(nil); errors.As(err, &q) {
		return &search.QueryError{Index: q.Index + offset, Err: q.Err}
	}
	return err
}

// ErrReference: exhaustive results that are not those of the queries.
var ErrReference = errors.New("not the exhaustive results of these queries")

// checkReference fails for a reference that is not of so many queries, or a depth that
// it cannot be cut to.
func checkReference(qs []search.Query, k int, reference [][]search.Hit) error {
	if k < 0 {
		return fmt.Errorf("%w: k = %d; at least 1 is needed", search.ErrOption, k)
	}
	if len(reference) != len(qs) {
		return fmt.Errorf("%w: there are %d lists, and %d queries", ErrReference, len(reference), len(qs))
	}
	return nil
}

// Traced is a searcher that can follow a document through a search: a [search.Engine]
// or a [search.Multi]. What is measured with one should stay as it is meanwhile, as
// with NewAt and NewMultiAt, or At of either.
type Traced interface {
	search.Searcher
	Trace(ctx context.Context, q search.Query, id string, o search.Options) (search.Stage, error)
}

// MeasureRecall searches with the options and
// compares with reference, the exhaustive results of the same queries, and under the
// same filter, to a depth of at least o.K; nil: they are computed.
// For each document that is missing it finds the stage that lost it, by
// searching once more and following the document; this is the larger part of
// the work where much is missing. On a device a document is lost where it is not
// probed, or outranked.
//
// Errors: [ErrReference] if it is not of as many queries, and those of a search.
func MeasureRecall(ctx context.Context, searcher Traced, qs []search.Query, o search.Options, reference [][]search.Hit, progress Progress) (*Recall, error) {
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

// missingHits are the hits of want that got lacks.
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

// shareFound is the share of want that got has; 1 for an empty want.
func shareFound(got, want []search.Hit) float64 {
	if len(want) == 0 {
		return 1
	}
	return 1 - float64(len(missingHits(got, want)))/float64(len(want))
}

// traceMissing finds the stage that lost each missing document.
func (r *Recall) traceMissing(ctx context.Context, searcher Traced, qs []search.Query, o search.Options, progress Progress) error {
	threads, err := threadCount(ctx, searcher)
	if err != nil {
		return err
	}
	var jobs [][2]int // query, number among its missing
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

func threadCount(ctx context.Context, s search.Searcher) (int, error) {
	d, err := s.Describe(ctx)
	return d.Threads, err
}

// What the steps of a search cost, in tokens scored by centroids. They are of one
// processor (docs/lab/search-quality.md) and need not be exact: settings are compared that
// differ in how much they do of each step.
const (
	centroidWork = 60  // a centroid against the tokens of a query
	listWork     = 400 // a posting list that is read
	entryWork    = 10  // a document in it
	exactWork    = 20  // a token scored exactly
	refineWork   = 40  // and in float precision
)

// countedWork is what a query took, on average, in tokens scored by centroids: counted, so
// that it is the same on a busy machine. On a device there is nothing to count, and
// it is the time in nanoseconds.
func countedWork(s *search.Stats, centroids int) float64 {
	n := float64(max(s.Queries, 1))
	if s.Device != nil {
		return float64(s.Times.Total) / n
	}
	byCentroids := s.Plans[search.PlanProbe.String()] + s.Plans[search.PlanScan.String()]
	meanTokens := float64(s.ExactTokens) / float64(max(s.ExactDocs, 1))
	return (float64(byCentroids)*centroidWork*float64(centroids) + listWork*float64(s.Probed) + entryWork*float64(s.Postings) +
		float64(s.ApproxTokens) + exactWork*float64(s.ExactTokens) + refineWork*meanTokens*float64(s.RefinedDocs)) / n
}
