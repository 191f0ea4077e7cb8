package search

import (
	"context"
	"errors"
	"slices"

	"github.com/plaid-ir/plaid/index"
)

// Recall is what pruning loses: how much of the exhaustive result over the
// stored vectors a search returns. What the codec loses is another matter, see
// [Compression].
type Recall struct {
	K       int           `json:"k"`
	Queries []QueryRecall `json:"queries"`
	Stats   Stats         `json:"stats"` // of the searches that were measured
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
	Stage Stage `json:"stage"`
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
func (r *Recall) Lost() map[Stage]int {
	lost := map[Stage]int{}
	for _, q := range r.Queries {
		for _, m := range q.Missing {
			lost[m.Stage]++
		}
	}
	return lost
}

// LossStages are the stages that can lose a document of the exhaustive result,
// in order; [StageFiltered] is of mode Candidates. [StageOutrun] says that it was scored, and that another document has
// the same score within the error of the fast kernel.
var LossStages = []Stage{StageFiltered, StageProbe, StageCut, StagePruned, StageOutrun}

// Reference answers queries exhaustively: the k documents of highest score over
// the stored vectors, each list in order. Its first n are the result for n.
// progress, which may be nil, hears how many queries are done.
func (e *Engine) Reference(ctx context.Context, qs []Query, k int, progress func(index.Progress)) ([][]Hit, error) {
	return e.exhaustive(ctx, qs, Options{K: k, Mode: Exhaustive}, progress)
}

func (e *Engine) exhaustive(ctx context.Context, qs []Query, o Options, progress func(index.Progress)) ([][]Hit, error) {
	results, err := e.inBatches(ctx, qs, o, "exhaustive search", progress)
	if err != nil {
		return nil, err
	}
	lists := make([][]Hit, len(results))
	for i, r := range results {
		lists[i] = r.Hits
	}
	return lists, nil
}

// progressBatch is how many queries are searched between two reports.
const progressBatch = 32

func (e *Engine) inBatches(ctx context.Context, qs []Query, o Options, stage string, progress func(index.Progress)) ([]Result, error) {
	results := make([]Result, 0, len(qs))
	for batch := range slices.Chunk(qs, progressBatch) {
		part, err := e.SearchBatch(ctx, batch, o)
		if err != nil {
			return nil, shiftQuery(err, len(results))
		}
		results = append(results, part...)
		if progress != nil {
			progress(index.Progress{Stage: stage, Done: int64(len(results)), Total: int64(len(qs)), Unit: "queries"})
		}
	}
	return results, nil
}

// shiftQuery makes the number of a failed query count from the first of all batches.
func shiftQuery(err error, lo int) error {
	if q := (*QueryError)(nil); errors.As(err, &q) {
		return &QueryError{Index: q.Index + lo, Err: q.Err}
	}
	return err
}

// Recall searches with the options and compares with reference, the exhaustive
// results of the same queries, and under the same filter, to a depth of at least
// o.K; nil: they are computed.
// For each document that is missing it finds the stage that lost it, by
// searching once more and following the document; this is the larger part of
// the work where much is missing.
func (e *Engine) Recall(ctx context.Context, qs []Query, o Options, reference [][]Hit, progress func(index.Progress)) (*Recall, error) {
	at, done, err := e.hold()
	if err != nil {
		return nil, err
	}
	defer done()
	if o.K == 0 {
		o.K = defaultK
	}
	if reference == nil {
		every := Options{K: o.K, Mode: Exhaustive, Filter: o.Filter}
		if reference, err = at.exhaustive(ctx, qs, every, progress); err != nil {
			return nil, err
		}
	}
	results, err := at.inBatches(ctx, qs, o, "search", progress)
	if err != nil {
		return nil, err
	}
	r := &Recall{K: o.K, Queries: make([]QueryRecall, len(qs))}
	for i := range qs {
		r.Stats.Add(results[i].Stats)
		want := reference[i][:min(o.K, len(reference[i]))]
		r.Queries[i].Want = len(want)
		r.Queries[i].Missing = absent(results[i].Hits, want)
	}
	return r, at.blame(ctx, qs, o, r, progress)
}

// absent are the hits of want that got lacks.
func absent(got, want []Hit) []Missing {
	have := make(map[uint32]struct{}, len(got))
	for _, h := range got {
		have[h.Ordinal] = struct{}{}
	}
	missing := []Missing{}
	for i, h := range want {
		if _, ok := have[h.Ordinal]; !ok {
			missing = append(missing, Missing{ID: h.ID, Ordinal: h.Ordinal, Rank: i + 1, Score: h.Score})
		}
	}
	return missing
}

// found is the share of want that got has; 1 for an empty want.
func found(got, want []Hit) float64 {
	if len(want) == 0 {
		return 1
	}
	return 1 - float64(len(absent(got, want)))/float64(len(want))
}

// blame finds the stage that lost each missing document.
func (e *Engine) blame(ctx context.Context, qs []Query, o Options, r *Recall, progress func(index.Progress)) error {
	var jobs [][2]int // query, number among its missing
	for i, q := range r.Queries {
		for j := range q.Missing {
			jobs = append(jobs, [2]int{i, j})
		}
	}
	done := 0
	for part := range slices.Chunk(jobs, progressBatch) {
		err := parallel(ctx, e.pinned.Path(), e.threads, len(part), func(n int) error {
			i, j := part[n][0], part[n][1]
			m := &r.Queries[i].Missing[j]
			t := &trace{ordinal: m.Ordinal}
			if _, err := e.one(ctx, e.pinned, qs[i], o, 1, t); err != nil {
				return &QueryError{Index: i, Err: err}
			}
			m.Stage = t.stage
			return nil
		})
		if err != nil {
			return err
		}
		done += len(part)
		if progress != nil {
			progress(index.Progress{Stage: "missing documents", Done: int64(done), Total: int64(len(jobs)), Unit: "documents"})
		}
	}
	return nil
}

// hold returns an engine for one snapshot, so that what is measured together
// sees one content.
func (e *Engine) hold() (*Engine, func(), error) {
	if e.pinned != nil {
		return e, func() {}, nil
	}
	snap, done, err := e.snapshot()
	if err != nil {
		return nil, nil, err
	}
	return NewAt(snap, e.threads), done, nil
}
