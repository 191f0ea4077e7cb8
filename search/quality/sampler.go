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

// Pinned is one state of what is searched.
type Pinned struct {
	// Searcher answers as it answers users.
	Searcher search.Searcher
	// Exhaustive scores all documents; nil: Searcher does.
	Exhaustive search.Searcher
	// Release ends the use of the state; nil: nothing is to be done.
	Release func() error
}

// SamplerOptions of [NewSampler].
type SamplerOptions struct {
	// K are the classes of k, each of which is measured with every question; none: 10 and 100.
	K []int
	// Rate is the share of the offered questions that is measured, at most 1; 0: 0.01.
	Rate float64
	// Seed decides which ones.
	Seed uint64
	// Busy is the share of the time that measuring may take, at most 1, which is without a pause;
	// 0: 0.1.
	Busy float64
	// Memory bounds the bytes of questions that wait; 0: 4 MiB.
	Memory int
	// Together, where set, counts these bytes for several samplers, whose bound Memory is then.
	Together *atomic.Int64
	// Keep is how many questions, the last ones, the figures are about; 0: 1,000.
	Keep int
	// Logger hears of questions that could not be measured; nil: silence.
	Logger *slog.Logger
}

const (
	defaultSampleRate    = 0.01
	defaultBusyShare     = 0.1
	defaultSamplerMemory = 4 << 20
	defaultSamplerKeep   = 1000
	maxKept              = 1 << 20
)

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
	}{{"rate", &o.Rate, defaultSampleRate}, {"share of the time", &o.Busy, defaultBusyShare}} {
		if *share.value == 0 {
			*share.value = share.usual
		}
		if !(*share.value > 0 && *share.value <= 1) {
			return fmt.Errorf("%w: a %s of %g; above 0 and at most 1 is possible", search.ErrOption, share.name, *share.value)
		}
	}
	if o.Memory == 0 {
		o.Memory = defaultSamplerMemory
	}
	if o.Keep == 0 {
		o.Keep = defaultSamplerKeep
	}
	if o.Memory < 0 || o.Keep < 0 || o.Keep > maxKept {
		return fmt.Errorf("%w: memory of %d bytes, %d questions kept; 1 to %d can be kept", search.ErrOption,
			o.Memory, o.Keep, maxKept)
	}
	if o.Together == nil {
		o.Together = new(atomic.Int64)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Sampled is what a [Sampler] has found.
type Sampled struct {
	// Classes are by ascending K, about the last questions since the codec of the index was trained.
	Classes []Found `json:"classes"`
	// Offered counts the questions that were offered. Of those that the rate has chosen, Measured,
	// Dropped (there was no room), Failed and Waiting are the parts.
	Offered  int64 `json:"offered"`
	Measured int64 `json:"measured"`
	Dropped  int64 `json:"dropped"`
	Failed   int64 `json:"failed"`
	Waiting  int   `json:"waiting"`
	// Time is how long measuring took.
	Time time.Duration `json:"time_ns"`
}

// Sampler measures what real questions find: in the background it searches some of those that are
// offered as users do and exhaustively, over one state of the index, and keeps figures of the last
// ones. It holds vectors of questions only until they are measured. The same questions, none
// of which is dropped, give the same figures. It is safe for concurrent use.
type Sampler struct {
	options SamplerOptions
	pin     func(context.Context) (*Pinned, error)
	stop    context.CancelFunc
	done    chan struct{} // closed when the worker has ended

	mu        sync.Mutex
	random    *rand.Rand
	queue     []search.Query
	wake      chan struct{} // has room for one word that queue is not empty
	measuring bool          // the worker has a question
	waiters   []chan struct{}
	closed    bool
	sampled   Sampled     // without its classes
	shares    [][]float64 // of each class, a ring
	nextIndex int         // in the rings
	// generation is that of the index to which shares belong.
	generation uint64
}

// NewSampler starts one. pin is called for each question that is measured. End it with Close.
//
// Errors: [search.ErrOption].
func NewSampler(pin func(context.Context) (*Pinned, error), o SamplerOptions) (*Sampler, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Sampler{
		options: o, pin: pin, stop: stop, done: make(chan struct{}), wake: make(chan struct{}, 1),
		random: rand.New(rand.NewPCG(o.Seed, 0x73616d70)), shares: make([][]float64, len(o.K)),
	}
	go s.run(ctx)
	return s, nil
}

// Offer reports whether a question will be measured. It copies the vectors and never waits. A
// question with a filter is not taken: figures are about searches of the whole index.
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
	if s.options.Together.Add(int64(size)) > int64(s.options.Memory) {
		s.options.Together.Add(-int64(size))
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

// questionBytes is what a question that waits takes, about.
func questionBytes(q *search.Query) int {
	return 4*len(q.Vectors) + len(q.Mask) + 4*len(q.Weights) + 256
}

// Sampled returns the figures as they are now.
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

// Wait returns when every question that was taken is measured, or with the error of the context,
// or with [search.ErrClosed].
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

// Close ends the search that runs, and waits for it. Questions that wait are dropped; the figures
// stay. It may be called more than once.
func (s *Sampler) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.sampled.Dropped += int64(len(s.queue))
		for i := range s.queue {
			s.options.Together.Add(-int64(questionBytes(&s.queue[i])))
		}
		s.queue = nil
		s.stop()
	}
	s.mu.Unlock()
	<-s.done
	return nil
}

// run measures questions one after another.
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
		if pause := time.Duration(float64(took) * (1/s.options.Busy - 1)); pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}

// nextQuestion is the question that waits longest.
func (s *Sampler) nextQuestion() (q search.Query, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.queue) == 0 {
		return q, false
	}
	q = s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1) // clears the vectors that it leaves
	s.options.Together.Add(-int64(questionBytes(&q)))
	s.measuring = true
	return q, true
}

// measure is the share that each class finds of the exhaustive result of a question.
func (s *Sampler) measure(ctx context.Context, q search.Query) (
	shares []float64, generation uint64, took time.Duration, err error) {
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
	want, err := exhaustive.Search(ctx, q, search.Options{K: s.options.K[len(s.options.K)-1], Mode: search.Exhaustive})
	if err != nil {
		return nil, 0, 0, err
	}
	for _, k := range s.options.K {
		got, err := p.Searcher.Search(ctx, q, search.Options{K: k})
		if err != nil {
			return nil, 0, 0, err
		}
		shares = append(shares, shareFound(got.Hits, want.Hits[:min(k, len(want.Hits))]))
	}
	return shares, d.Generation, 0, nil
}

// recordQuestion keeps the shares of a question, or counts it as failed.
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

// addShares puts shares into the rings, which begin again where another codec was trained.
func (s *Sampler) addShares(shares []float64, generation uint64) {
	if generation != s.generation {
		s.generation, s.nextIndex = generation, 0
		for i := range s.shares {
			s.shares[i] = s.shares[i][:0]
		}
	}
	for i, share := range shares {
		if len(s.shares[i]) < s.options.Keep {
			s.shares[i] = append(s.shares[i], share)
		} else {
			s.shares[i][s.nextIndex] = share
		}
	}
	if s.nextIndex++; s.nextIndex == s.options.Keep {
		s.nextIndex = 0
	}
}
