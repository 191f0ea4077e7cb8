package quality

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/search"
)

// PinnedSearcher is a snapshot that a [Sampler] measures.
type PinnedSearcher struct {
	// Searcher answers queries as users get them answered.
	Searcher search.Searcher
	// Exhaustive scores all documents. nil means that Searcher does.
	Exhaustive search.Searcher
	// Release releases the snapshot. It may be nil.
	Release func() error
}

// SamplerOptions of [NewSampler].
type SamplerOptions struct {
	// K are the values of k that are measured with every question. An empty list means 10 and 100.
	K []int
	// Rate is the share of the offered questions that is measured, at most 1. 0 means 0.01.
	Rate float64
	// Seed selects these questions.
	Seed uint64
	// MaxBusy is the share of the time that measuring may take, at most 1, which means no pauses. 0
	// means 0.1.
	MaxBusy float64
	// Memory limits the bytes of waiting questions. 0 means 4 MiB.
	Memory int
	// SharedBytes, where set, counts these bytes for several samplers, which share the limit Memory.
	SharedBytes *atomic.Int64
	// KeptQuestions is how many of the last questions the figures cover. 0 means 1,000.
	KeptQuestions int
	// Logger receives the errors of questions that could not be measured. nil means no log.
	Logger *slog.Logger
}

const (
	defaultSampleRate    = 0.01
	defaultBusyShare     = 0.1
	defaultSamplerMemory = 4 << 20
	defaultSamplerKeep   = 1000
	maxKept              = 1 << 20
)

// setDefaults checks the options, and sets defaults.
func (o *SamplerOptions) setDefaults() error {
	if len(o.K) == 0 {
		o.K = defaultKs
	}
	o.K = slices.Compact(slices.Sorted(slices.Values(o.K)))
	if k := o.K[0]; k < 1 {
		return fmt.Errorf("%w: k = %d; at least 1 is needed", search.ErrOption, k)
	}
	for _, share := range []struct {
		name  string
		value *float64
		usual float64
	}{
		{"rate", &o.Rate, defaultSampleRate},
		{"share of the time", &o.MaxBusy, defaultBusyShare},
	} {
		if *share.value == 0 {
			*share.value = share.usual
		}
		if !(*share.value > 0 && *share.value <= 1) {
			return fmt.Errorf("%w: a %s of %g; above 0 and at most 1 is possible",
				search.ErrOption, share.name, *share.value)
		}
	}
	if o.Memory == 0 {
		o.Memory = defaultSamplerMemory
	}
	if o.KeptQuestions == 0 {
		o.KeptQuestions = defaultSamplerKeep
	}
	if o.Memory < 0 || o.KeptQuestions < 0 || o.KeptQuestions > maxKept {
		return fmt.Errorf("%w: memory of %d bytes, %d questions kept; 1 to %d can be kept", search.ErrOption,
			o.Memory, o.KeptQuestions, maxKept)
	}
	if o.SharedBytes == nil {
		o.SharedBytes = new(atomic.Int64)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Sampled is the result of a [Sampler].
type Sampled struct {
	// Classes are in the order of K. They cover the last questions since the codec was trained.
	Classes []MeasuredRecall `json:"classes"`
	// Offered counts the questions that were offered. Those that the rate selected are Measured,
	// Dropped (for lack of memory), Failed or Waiting.
	Offered  int64 `json:"offered"`
	Measured int64 `json:"measured"`
	Dropped  int64 `json:"dropped"`
	Failed   int64 `json:"failed"`
	Waiting  int   `json:"waiting"`
	// Time is how long measuring took.
	Time time.Duration `json:"time_ns"`
}

// Sampler measures the recall of real questions. In the background it searches some of the offered
// questions twice, as for users and exhaustively, on one snapshot of the index, and keeps figures
// of the last ones. It keeps vectors of questions only until they are measured. The same questions
// give the same figures if none is dropped. It is safe for concurrent use.
type Sampler struct {
	options SamplerOptions
	pin     func(context.Context) (*PinnedSearcher, error)
	stop    context.CancelFunc
	done    chan struct{} // closed when the worker has ended

	mu        sync.Mutex
	random    *rand.Rand
	queue     []search.Query
	wake      chan struct{} // has an element if the queue may have new questions
	measuring bool          // the worker measures a question
	waiters   []chan struct{}
	closed    bool
	sampled   Sampled     // without Classes
	shares    [][]float64 // for each class, a ring buffer
	nextIndex int         // in the ring buffers
	// generation is the generation of the index that shares were measured on.
	generation uint64
}

// NewSampler starts a sampler. It calls pin for each question that it measures. End it with Close.
//
// Errors: [search.ErrOption].
func NewSampler(pin func(context.Context) (*PinnedSearcher, error), o SamplerOptions) (*Sampler, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Sampler{
		options: o, pin: pin, stop: stop, done: make(chan struct{}), wake: make(chan struct{}, 1),
		random: rand.New(rand.NewPCG(o.Seed, 0x73616d70)), // "samp"
		shares: make([][]float64, len(o.K)),
	}
	go s.run(ctx)
	return s, nil
}

// Offer reports whether a question will be measured. It copies the vectors and never waits. It
// refuses questions with a filter: the figures are about searches of the whole index.
func (s *Sampler) Offer(q search.Query) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || q.Filter != nil {
		return false
	}
	s.sampled.Offered++
	if s.options.Rate < 1 && s.random.Float64() >= s.options.Rate {
		return false
	}
	size := questionBytes(&q)
	if s.options.SharedBytes.Add(int64(size)) > int64(s.options.Memory) {
		s.options.SharedBytes.Add(-int64(size))
		s.sampled.Dropped++
		return false
	}
	q.Vectors, q.Mask, q.Weights = slices.Clone(q.Vectors), slices.Clone(q.Mask), slices.Clone(q.Weights)
	s.queue = append(s.queue, q)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// questionBytes estimates the memory of a waiting question.
func questionBytes(q *search.Query) int {
	return 4*len(q.Vectors) + len(q.Mask) + 4*len(q.Weights) + 256
}

// Sampled returns the current figures.
func (s *Sampler) Sampled() Sampled {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sampled
	r.Waiting = len(s.queue)
	if s.measuring {
		r.Waiting++
	}
	for i, k := range s.options.K {
		r.Classes = append(r.Classes, summarizeShares(k, s.shares[i]))
	}
	return r
}

// Wait returns when every accepted question is measured. It returns the error of the context, or
// [search.ErrClosed].
func (s *Sampler) Wait(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return search.ErrClosed
	}
	if len(s.queue) == 0 && !s.measuring {
		s.mu.Unlock()
		return nil
	}
	idle := make(chan struct{})
	s.waiters = append(s.waiters, idle)
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-s.done:
		return search.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close cancels the running search, and waits for it. It drops waiting questions and keeps the
// figures. It may be called more than once.
func (s *Sampler) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.sampled.Dropped += int64(len(s.queue))
		for i := range s.queue {
			s.options.SharedBytes.Add(-int64(questionBytes(&s.queue[i])))
		}
		s.queue = nil
		s.stop()
	}
	s.mu.Unlock()
	<-s.done
	return nil
}

// run measures questions one after the other, with pauses.
func (s *Sampler) run(ctx context.Context) {
	defer close(s.done)
	for {
		q, ok := s.nextQuestion()
		if !ok {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		shares, generation, took, err := s.measure(ctx, q)
		s.recordQuestion(shares, generation, took, err)
		if err != nil && ctx.Err() == nil {
			s.options.Logger.Warn("the recall of a sampled question was not measured", "error", err)
		}
		if pause := time.Duration(float64(took) * (1/s.options.MaxBusy - 1)); pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}

// nextQuestion removes the question that has waited longest from the queue.
func (s *Sampler) nextQuestion() (q search.Query, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.queue) == 0 {
		return q, false
	}
	q = s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1) // also clears the slot behind the last
	s.options.SharedBytes.Add(-int64(questionBytes(&q)))
	s.measuring = true
	return q, true
}

// measure returns, for each class, the share of the exhaustive result of a question that searches
// find.
func (s *Sampler) measure(
	ctx context.Context, q search.Query,
) (shares []float64, generation uint64, took time.Duration, err error) {
	p, err := s.pin(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	start := time.Now()
	defer func() { took = time.Since(start) }()
	if p.Release != nil {
		defer func() { err = errors.Join(err, p.Release()) }()
	}
	d, err := p.Searcher.Describe(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	exhaustive := p.Exhaustive
	if exhaustive == nil {
		exhaustive = p.Searcher
	}
	maxK := s.options.K[len(s.options.K)-1]
	exhaustiveHits, err := exhaustive.Search(ctx, q, search.Options{K: maxK, Mode: search.Exhaustive})
	if err != nil {
		return nil, 0, 0, err
	}
	for _, k := range s.options.K {
		got, err := p.Searcher.Search(ctx, q, search.Options{K: k})
		if err != nil {
			return nil, 0, 0, err
		}
		shares = append(shares, shareFound(got.Hits, exhaustiveHits.Hits[:min(k, len(exhaustiveHits.Hits))]))
	}
	return shares, d.Generation, 0, nil
}

// recordQuestion records the shares of a question, or counts it as failed.
func (s *Sampler) recordQuestion(shares []float64, generation uint64, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measuring = false
	s.sampled.Time += took
	switch {
	case err != nil && s.closed:
		s.sampled.Dropped++
	case err != nil:
		s.sampled.Failed++
	default:
		s.sampled.Measured++
		s.addShares(shares, generation)
	}
	if len(s.queue) == 0 {
		for _, idle := range s.waiters {
			close(idle)
		}
		s.waiters = nil
	}
}

// addShares adds shares to the ring buffers, which start empty after another codec was trained.
func (s *Sampler) addShares(shares []float64, generation uint64) {
	if generation != s.generation {
		s.generation, s.nextIndex = generation, 0
		for i := range s.shares {
			s.shares[i] = s.shares[i][:0]
		}
	}
	for i, share := range shares {
		if len(s.shares[i]) < s.options.KeptQuestions {
			s.shares[i] = append(s.shares[i], share)
		} else {
			s.shares[i][s.nextIndex] = share
		}
	}
	if s.nextIndex++; s.nextIndex == s.options.KeptQuestions {
		s.nextIndex = 0
	}
}
