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
	// Questions is how many are made; 0: as many as tell the recall to 0.001, up to 512, or fewer
	// where these would take more than a tenth of what a build takes one processor.
	Questions int
	// OnDevice says that a device has built the index, in so little time that a quarter of the
	// questions are made, 64 or more.
	OnDevice bool
	// Seed decides of which documents they are.
	Seed uint64
	// Progress, where set, hears how far the check is.
	Progress Progress
}

const (
	// wantedError is the standard error of a recall from which on no more questions are made.
	wantedError = 0.001
	// questionBlock is how many questions are made before it is decided whether they are enough.
	questionBlock = 64
	// maxQuestions and leastQuestions bound how many there are; leastOnDevice is for a check after
	// a build by a device.
	maxQuestions, minQuestions, minOnDevice = 512, 20, 64
	// referenceDocs is how many documents, best by centroids, the reference scores.
	referenceDocs = 8192
	// maxBuildShare is the part of the time of a build that its check may take.
	maxBuildShare = 0.1
)

// effortLadder is tried from the first on.
var effortLadder = []float64{1, math.Sqrt2, 2, 2 * math.Sqrt2, 4}

// SelfCheck measures what searches with derived budgets find, by questions made from the
// documents of the index itself: each of a few words that a document shares with others that are
// like it, with noise, and of tokens that repeat these. Where searches find too little of
// the exhaustive result (0.995 of it less a standard error, or 0.7 for one question) it multiplies
// the budgets ([search.Options.Effort]) until it is enough. The result is for
// [index.Index.SetDefaults], with [storage.Defaults.Passages] set; it is nil for an index
// so small that the check would not pay.
//
// Real questions were found to lose as much, within 0.002 (docs/lab/search-quality.md). It is an
// estimate nevertheless, and says nothing of judgements; [Tune] with real queries tells more, and
// also finds what is cheaper. The reference is exhaustive up to 8,192 documents; of more, it is a
// scan whose best 8,192 are scored exactly.
//
// Errors: [search.ErrOption], those of Search.
func SelfCheck(ctx context.Context, e *search.Engine, snap *index.Snapshot, o SelfCheckOptions) (*storage.Defaults, error) {
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
		if o.Questions == 0 && check.errorsSmall() {
			break
		}
	}
	if len(check.queries) < min(limit, minQuestions) {
		return nil, nil
	}
	state := snap.State()
	d := &storage.Defaults{Docs: state.Documents(), Tokens: state.LiveTokens,
		Time: time.Now().UTC().Truncate(time.Second), Version: index.Version(), Passages: true}
	for i := range defaultKs {
		class, err := check.findEffort(ctx, i)
		if err != nil {
			return nil, err
		}
		d.Classes = append(d.Classes, class)
	}
	return d, nil
}

// selfCheck has the questions that were asked, and what was found.
type selfCheck struct {
	searcher  search.Searcher
	options   *SelfCheckOptions
	queries   []search.Query
	reference [][]search.Hit
	shares    [][]float64 // of each class, with the first effort
}

// addQuestions adds questions.
func (c *selfCheck) addQuestions(ctx context.Context, qs []search.Query) error {
	wide := Setting{Scan: true, Exact: referenceDocs}.Options(slices.Max(defaultKs))
	reference, err := searchExhaustively(ctx, c.searcher, qs, wide, nil)
	if err != nil {
		return err
	}
	for i, k := range defaultKs {
		shares, err := c.search(ctx, qs, reference, k, effortLadder[0])
		if err != nil {
			return err
		}
		c.shares[i] = append(c.shares[i], shares...)
	}
	c.queries, c.reference = append(c.queries, qs...), append(c.reference, reference...)
	return nil
}

// search is the share of each question that searches of an effort find.
func (c *selfCheck) search(ctx context.Context, qs []search.Query, reference [][]search.Hit, k int, effort float64) (
	[]float64, error,
) {
	results, err := c.searcher.SearchBatch(ctx, qs, Setting{Effort: effort}.Options(k))
	if err != nil {
		return nil, err
	}
	return sharesFound(results, reference, k), nil
}

// errorsSmall reports whether the recall of every class is known as well as is wanted.
func (c *selfCheck) errorsSmall() bool {
	for i, k := range defaultKs {
		if summarizeShares(k, c.shares[i]).Error > wantedError {
			return false
		}
	}
	return true
}

// maxRemaining is the share of the missing documents that may be missing after a step of effort that
// is worth its time.
const maxRemaining = 0.8

// findEffort finds the effort of one class.
func (c *selfCheck) findEffort(ctx context.Context, i int) (storage.DefaultClass, error) {
	k, shares := defaultKs[i], c.shares[i]
	class := storage.DefaultClass{K: k, Target: defaultRecall, WorstTarget: worstTargetFor(defaultRecall), Queries: len(c.queries)}
	for step, effort := range effortLadder {
		if step > 0 {
			var err error
			if shares, err = c.search(ctx, c.queries, c.reference, k, effort); err != nil {
				return class, err
			}
		}
		f := summarizeShares(k, shares)
		if step > 0 && 1-f.Recall > maxRemaining*(1-class.Recall) && f.Worst <= class.Worst {
			break // what is missing is not found by looking at more
		}
		class.Effort, class.Recall, class.HeldOut, class.Worst, class.Error = effort, f.Recall, f.Recall, f.Worst, f.Error
		report(c.options.Progress, fmt.Sprintf("self-check, k = %d", k), step+1, 0, "efforts")
		if f.Recall-f.Error >= class.Target && f.Worst >= class.WorstTarget {
			break
		}
	}
	return class, nil
}

// affordableQuestions is how many questions take no more than their share of the build, on one
// processor: a build compares each of its tokens, and five times those of the sample, with
// all centroids, at 0.5·10¹² operations a second; a question scores tokens by centroids in
// 0.5 ns, exactly in 16, and costs about 2.5 times as much again for the searches that make it and
// those that are measured.
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
