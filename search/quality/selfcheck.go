package quality

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// SelfCheckOptions of [SelfCheck].
type SelfCheckOptions struct {
	// Questions is how many are made; 0: 64, or fewer where these would take more than a
	// twenty-fifth of what a build takes one processor.
	Questions int
	// OnDevice says that a device has built the index, in so little time that a quarter of the
	// questions are made, 16 or more.
	OnDevice bool
	// Seed decides of which passages they are.
	Seed uint64
	// Progress, where set, hears how far the check is.
	Progress Progress
}

const (
	// questionTokens is how many tokens a question has.
	questionTokens = 32
	// questionCosine is that between a token of a question and the one it is made of.
	questionCosine = 0.8
	// realLoss is how many times as much real questions lose as those of passages: 1.5 to
	// 3.1 were measured (docs/lab/search-quality.md).
	realLoss = 3
	// mostQuestions and leastQuestions bound how many there are.
	mostQuestions, leastQuestions = 64, 16
	// referenceDocs is how many documents, best by centroids, the reference scores.
	referenceDocs = 8192
)

// effortLadder is tried from the first on.
var effortLadder = []float64{1, math.Sqrt2, 2, 2 * math.Sqrt2, 4}

// SelfCheck measures what searches with derived budgets find, by questions made from the
// documents of the index itself: tokens of one document, drawn at random and turned
// towards random directions. Where that is too little it multiplies the budgets
// ([search.Options.Effort]) until it is enough. The result is for
// [index.Index.SetDefaults], with [storage.Defaults.Passages] set; it is nil for an index
// so small that the check would not pay.
//
// Such questions are easier than real ones: they ask for what is there. So a real
// question is taken to lose three times as much, which is the HeldOut of a class, and the
// effort is one with which that reaches the target. It is an estimate from few questions,
// and says nothing of judgements; [Tune] with real queries tells more, and also finds what
// is cheaper. The reference is exhaustive up to 8,192 documents; of more, it is a scan
// whose best 8,192 are scored exactly.
//
// Errors: [search.ErrOption], those of Search.
func SelfCheck(ctx context.Context, e *search.Engine, snap *index.Snapshot, o SelfCheckOptions) (*storage.Defaults, error) {
	if o.Questions < 0 {
		return nil, fmt.Errorf("%w: %d questions", search.ErrOption, o.Questions)
	}
	n := o.Questions
	if n == 0 {
		if n = affordable(snap); n < leastQuestions {
			return nil, nil
		}
		if o.OnDevice {
			n = max(n/4, leastQuestions)
		}
	}
	qs, err := questions(ctx, snap, n, o.Seed)
	if err != nil || len(qs) < min(n, leastQuestions) {
		return nil, err
	}
	at := e.At(snap)
	wide := Setting{Scan: true, Exact: referenceDocs}.Options(slices.Max(usualK))
	reference, err := exhaustive(ctx, at, qs, wide, o.Progress)
	if err != nil {
		return nil, err
	}
	state := snap.State()
	d := &storage.Defaults{Docs: state.Documents(), Tokens: state.LiveTokens,
		Time: time.Now().UTC().Truncate(time.Second), Version: index.Version(), Passages: true}
	for _, k := range usualK {
		u := newTuner(at, snap, k, usualRecall, o.Progress)
		u.useQueries(qs, reference, nil)
		c := storage.DefaultClass{K: k, Target: usualRecall, Queries: len(qs)}
		for _, effort := range effortLadder {
			t, err := u.try(ctx, Setting{Effort: effort})
			if err != nil {
				return nil, err
			}
			c.Effort, c.Recall = effort, t.Recall
			if c.HeldOut = max(1-realLoss*(1-t.Recall), 0); c.Confirmed() {
				break
			}
		}
		d.Classes = append(d.Classes, c)
	}
	return d, nil
}

// affordable is how many questions take no more than a twenty-fifth of the build, on one
// processor: a build compares each of its tokens, and five times those of the sample, with
// all centroids, at 0.5·10¹² operations a second; a question scores tokens by centroids in
// 0.5 ns, exactly in 16, and costs about half of that again for the searches that are
// measured.
func affordable(snap *index.Snapshot) int {
	h, state := snap.Header(), snap.State()
	if state.Live == 0 {
		return 0
	}
	tokens := float64(state.LiveTokens)
	exact := tokens * min(referenceDocs/float64(state.Live), 1)
	build := 2 * float64(h.Centroids) * float64(h.Dim) * (tokens + 5*float64(h.Build.SampleRows)) / 0.5e12
	question := 1.5 * (0.5e-9*tokens + 16e-9*exact)
	return int(min(build/25/max(question, 1e-9), mostQuestions))
}

// questions makes queries of documents drawn at random. Documents of fewer than 8 tokens
// are passed over; so there may be fewer than n.
func questions(ctx context.Context, snap *index.Snapshot, n int, seed uint64) (qs []search.Query, err error) {
	docs, dim := snap.State().Docs, snap.Dim()
	rng := rand.New(rand.NewPCG(seed, 0x73656c66))
	side := math.Sqrt(1 - questionCosine*questionCosine)
	noise := make([]float64, dim)
	for tries := 0; len(qs) < n && docs > 0 && tries < 16*n; tries++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v, err := snap.Vectors(rng.Uint32N(docs))
		if errors.Is(err, index.ErrNotFound) {
			continue // deleted
		}
		if err != nil {
			return nil, err
		}
		rows := len(v) / dim
		if rows < 8 {
			continue
		}
		q := search.Query{Vectors: make([]float32, 0, questionTokens*dim), Dim: dim}
		for range questionTokens {
			token := v[rng.IntN(rows)*dim:][:dim]
			var own, other float64
			for j, x := range token {
				noise[j] = rng.NormFloat64()
				own += float64(float64(x) * float64(x))
				other += float64(noise[j] * noise[j])
			}
			turn := float64(side * math.Sqrt(own/max(other, 1e-30)))
			for j, x := range token {
				q.Vectors = append(q.Vectors, float32(float64(questionCosine*float64(x))+float64(turn*noise[j])))
			}
		}
		qs = append(qs, q)
	}
	return qs, nil
}
