package collection

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// Sampling says how collections measure the recall of their searches. In the background, some of the questions of users
// are answered again: as a search for 10 and for 100 documents (passages, if these are stored), and exhaustively.
// Searches with a filter are left out, because their results depend on it, and so are searches that do not prune,
// because they miss nothing. The vectors of a question stay in memory until it is measured, and are neither stored nor
// logged.
type Sampling struct {
	// Rate is the share of the questions that is measured. 0 means none.
	Rate float64
	// Busy is the share of one processor's time that measuring may take, for all collections of a store. 0 means 0.05.
	Busy float64
}

// Completed returns a Sampling with a default for Busy. The error is [ErrConfig].
func (s Sampling) Completed() (Sampling, error) {
	if s.Busy == 0 {
		s.Busy = 0.05
	}
	if !(s.Rate >= 0 && s.Rate <= 1) || !(s.Busy > 0 && s.Busy <= 1) {
		return Sampling{}, fmt.Errorf("%w: a rate of %g and %g of the time for sampled questions; 0 to 1 is possible",
			ErrConfig, s.Rate, s.Busy)
	}
	return s, nil
}

// Sampled has the measurements of sampled questions since the collection was opened.
type Sampled struct {
	// Classes are measured with the present codec, and at most the last 1,000 questions, approximately.
	Classes []SampledClass `json:"classes"`
	// Offered counts the questions that could have been sampled. Each sampled question is in one of Measured, Dropped
	// (too many were waiting), Failed and Waiting.
	Offered  int64         `json:"offered"`
	Measured int64         `json:"measured"`
	Dropped  int64         `json:"dropped"`
	Failed   int64         `json:"failed"`
	Waiting  int           `json:"waiting"`
	Time     time.Duration `json:"time_ns"` // that measuring has taken
}

// SampledClass is the measured recall of searches for K documents.
type SampledClass struct {
	quality.MeasuredRecall
	// Promised is the recall that the index expects for real questions, from its self-check or its tuning, nil
	// without both.
	Promised *float64 `json:"promised,omitempty"`
}

// NewSampled combines the results of a sampler with the recall that the index promises. d may be nil.
func NewSampled(s quality.Sampled, d *storage.Defaults) *Sampled {
	r := &Sampled{
		Offered:  s.Offered,
		Measured: s.Measured,
		Dropped:  s.Dropped,
		Failed:   s.Failed,
		Waiting:  s.Waiting,
		Time:     s.Time,
	}
	for _, f := range s.Classes {
		class := SampledClass{MeasuredRecall: f}
		if d != nil {
			if c, ok := d.ClassFor(f.K); ok {
				class.Promised = &c.HeldOut
			}
		}
		r.Classes = append(r.Classes, class)
	}
	return r
}

// Join combines the results of two shards of a collection; either may be nil. Each shard has measured its own searches,
// with its own sample of questions.
func (s *Sampled) Join(o *Sampled) *Sampled {
	if s == nil || o == nil {
		if s == nil {
			return o
		}
		return s
	}
	r := &Sampled{
		Classes:  slices.Clone(s.Classes),
		Offered:  s.Offered + o.Offered,
		Measured: s.Measured + o.Measured,
		Dropped:  s.Dropped + o.Dropped,
		Failed:   s.Failed + o.Failed,
		Waiting:  s.Waiting + o.Waiting,
		Time:     s.Time + o.Time,
	}
	for _, b := range o.Classes {
		i := slices.IndexFunc(r.Classes, func(a SampledClass) bool { return a.K == b.K })
		if i < 0 {
			r.Classes = append(r.Classes, b)
			continue
		}
		a := &r.Classes[i]
		if n := float64(a.Questions + b.Questions); n > 0 {
			p, q := float64(a.Questions)/n, float64(b.Questions)/n
			// The samples are independent, so the variances add up, with the squares of the weights.
			a.Recall, a.Error = p*a.Recall+q*b.Recall, math.Hypot(p*a.Error, q*b.Error)
		}
		a.Questions, a.Worst = a.Questions+b.Questions, min(a.Worst, b.Worst)
		if a.Promised == nil || b.Promised != nil && *b.Promised < *a.Promised {
			a.Promised = b.Promised
		}
	}
	return r
}
