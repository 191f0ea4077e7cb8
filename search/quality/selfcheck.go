package quality

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// SelfCheckOptions of [SelfCheck].
type SelfCheckOptions struct {
	// Questions is how many are made. 0 means as many as determine the recall to 0.001, up to 512, or
	// fewer if they would take more than a tenth of the time of a build on one processor.
	Questions int
	// OnDevice means that a device built the index. That takes so little time that only a quarter of
	// the questions, but at least 64, are made.
	OnDevice bool
	// Seed selects the documents that questions are made from.
	Seed uint64
	// Progress, where set, is called with the progress of the check.
	Progress Progress
}

const (
	// wantedError is the standard error of a recall at which the check stops making questions.
	wantedError = 0.001
	// questionBlock is how many questions are made between two decisions whether they are enough.
	questionBlock = 64
	// maxQuestions and minQuestions limit how many are made. minOnDevice is the minimum after a
	// build by a device.
	maxQuestions, minQuestions, minOnDevice = 512, 20, 64
	// referenceDocs is how many documents, the best by centroids, the reference scores.
	referenceDocs = 8192
	// maxBuildShare is the share of the time of a build that its check may take.
	maxBuildShare = 0.1
)

// effortLadder has the efforts in the order in which they are tried.
var effortLadder = []float64{1, math.Sqrt2, 2, 2 * math.Sqrt2, 4}

// SelfCheck estimates the recall of searches with derived budgets. It makes questions from the
// documents of the index itself: each has a few words, with noise, that a document shares with
// similar ones, and tokens that repeat these words. If searches find too little of the exhaustive
// result (0.995 of it minus a standard error, or 0.7 for one question), it multiplies the budgets
// ([search.Options.Effort]) until they find enough. The result is for [index.Index.SetDefaults],
// with [storage.Defaults.Passages] set. It is nil if the index is so small that the check would not
// pay.
//
// Real questions lost as much, within 0.002 (docs/lab/search-quality.md). Still it is an estimate,
// and it does not measure relevance. [Tune] with real queries is more precise, and finds cheaper
// settings, too. The reference is exhaustive up to 8,192 documents; of more documents, the best
// 8,192 of a scan are scored exactly.
//
// Errors: [search.ErrOption], and errors of searches.
func SelfCheck(
	ctx context.Context, e *search.Engine, snap *index.Snapshot, o SelfCheckOptions,
) (*storage.Defaults, error) {
	if o.Questions < 0 {
		return nil, fmt.Errorf("%w: %d questions", search.ErrOption, o.Questions)
	}
	limit := o.Questions
	if limit == 0 {
		if limit = affordableQuestions(snap); limit < minQuestions {
			return nil, nil
		}
		if o.OnDevice {
			limit = min(limit, max(limit/4, minOnDevice))
		}
	}
	pinned := e.At(snap)
	check := &selfCheck{searcher: pinned, options: &o, shares: make([][]float64, len(defaultKs))}
	threads, err := threadCount(ctx, e)
	if err != nil {
		return nil, err
	}
	maker := &questionMaker{engine: pinned, snap: snap, dim: snap.Dim(), seed: o.Seed, threads: threads}
	for made := 0; made < limit; made += questionBlock {
		qs, err := maker.makeQuestions(ctx, made, min(made+questionBlock, limit))
		if err != nil {
			return nil, err
		}
		if err := check.addQuestions(ctx, qs); err != nil {
			return nil, err
		}
		report(o.Progress, "self-check", len(check.queries), limit, "questions")
		if o.Questions == 0 && check.isPrecise() {
			break
		}
	}
	if len(check.queries) < min(limit, minQuestions) {
		return nil, nil
	}
	state := snap.State()
	d := &storage.Defaults{
		Docs:     state.Documents(),
		Tokens:   state.LiveTokens,
		Time:     time.Now().UTC().Truncate(time.Second),
		Version:  index.Version(),
		Passages: true,
	}
	for i := range defaultKs {
		class, err := check.findEffort(ctx, i)
		if err != nil {
			return nil, err
		}
		d.Classes = append(d.Classes, class)
	}
	return d, nil
}

// selfCheck has the questions so far, and what searches found.
type selfCheck struct {
	searcher  search.Searcher
	options   *SelfCheckOptions
	queries   []search.Query
	reference [][]search.Hit
	shares    [][]float64 // for each class, the shares found with the first effort
}

// addQuestions computes the reference of questions, and searches for them with the first effort.
func (c *selfCheck) addQuestions(ctx context.Context, qs []search.Query) error {
	referenceOptions := Setting{Scan: true, Exact: referenceDocs}.Options(slices.Max(defaultKs))
	reference, err := searchExhaustively(ctx, c.searcher, qs, referenceOptions, nil)
	if err != nil {
		return err
	}
	for i, k := range defaultKs {
		shares, err := c.measureShares(ctx, qs, reference, k, effortLadder[0])
		if err != nil {
			return err
		}
		c.shares[i] = append(c.shares[i], shares...)
	}
	c.queries, c.reference = append(c.queries, qs...), append(c.reference, reference...)
	return nil
}

// measureShares returns the share of each reference that searches with an effort find.
func (c *selfCheck) measureShares(
	ctx context.Context, qs []search.Query, reference [][]search.Hit, k int, effort float64,
) ([]float64, error) {
	results, err := c.searcher.SearchBatch(ctx, qs, Setting{Effort: effort}.Options(k))
	if err != nil {
		return nil, err
	}
	return sharesFound(results, reference, k), nil
}

// isPrecise reports whether the recall of every class is known to wantedError.
func (c *selfCheck) isPrecise() bool {
	for i, k := range defaultKs {
		if summarizeShares(k, c.shares[i]).Error > wantedError {
			return false
		}
	}
	return true
}

// maxRemaining is the share of the missing documents that a further step of effort may still miss
// to be worth its time.
const maxRemaining = 0.8

// findEffort finds the effort of one class.
func (c *selfCheck) findEffort(ctx context.Context, i int) (storage.DefaultClass, error) {
	k, shares := defaultKs[i], c.shares[i]
	class := storage.DefaultClass{
		K:           k,
		Target:      defaultRecall,
		WorstTarget: worstTargetFor(defaultRecall),
		Queries:     len(c.queries),
	}
	for step, effort := range effortLadder {
		if step > 0 {
			var err error
			if shares, err = c.measureShares(ctx, c.queries, c.reference, k, effort); err != nil {
				return class, err
			}
		}
		f := summarizeShares(k, shares)
		if step > 0 && 1-f.Recall > maxRemaining*(1-class.Recall) && f.Worst <= class.Worst {
			break // larger budgets do not find the missing documents
		}
		class.Effort, class.Recall, class.HeldOut = effort, f.Recall, f.Recall
		class.Worst, class.Error = f.Worst, f.Error
		report(c.options.Progress, fmt.Sprintf("self-check, k = %d", k), step+1, 0, "efforts")
		if f.Recall-f.Error >= class.Target && f.Worst >= class.WorstTarget {
			break
		}
	}
	return class, nil
}

// affordableQuestions returns how many questions take at most maxBuildShare of the time of a build,
// on one processor. A build compares each of its tokens, and five times those of the sample, with
// all centroids, at 0.5·10¹² operations a second. A question scores a token by centroids in 0.5 ns
// and exactly in 16 ns. The searches that make it and that are measured take about 2.5 times as
// much again.
func affordableQuestions(snap *index.Snapshot) int {
	h, state := snap.Header(), snap.State()
	if state.Live == 0 {
		return 0
	}
	tokens := float64(state.LiveTokens)
	exact := tokens * min(referenceDocs/float64(state.Live), 1)
	build := 2 * float64(h.Centroids) * float64(h.Dim) * (tokens + 5*float64(h.Build.SampleRows)) / 0.5e12
	question := 3.5 * (0.5e-9*tokens + 16e-9*exact)
	return int(min(maxBuildShare*build/max(question, 1e-9), maxQuestions))
}
