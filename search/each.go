package search

import (
	"context"
	"errors"
	"runtime"

	"github.com/plaid-ir/plaid/internal/parallel"
)

// Request is a query with options of its own.
type Request struct {
	// Query is what is searched for, Options how.
	Query   Query
	Options Options
}

// Answer is what became of a [Request].
type Answer struct {
	// Result is that of the search; empty where Err is not nil.
	Result Result
	// Err is why there is none.
	Err error
}

// Each answers requests that have nothing in common, such as those that different users
// of a service have sent: each has its own k, mode, budgets, filter and candidates, and one
// that fails fails alone. Answers are in the order of the requests. An [Engine] answers
// all from the index as it is when the call begins; of other searchers each request is a
// call of its own.
//
// The error is that of ctx, or [ErrClosed], and then there are no answers. Queries with
// the same options are better handed to SearchBatch.
func Each(ctx context.Context, s Searcher, requests []Request) ([]Answer, error) {
	if e, ok := s.(*Engine); ok {
		all, done, err := e.begin(e.collection)
		if err != nil {
			return nil, err
		}
		defer done()
		s = e.At(all.first())
	}
	answers := make([]Answer, len(requests))
	err := parallel.Do(ctx, len(requests), runtime.GOMAXPROCS(0), func(i int) error {
		r, err := s.Search(ctx, requests[i].Query, requests[i].Options)
		switch {
		case err == nil:
			answers[i].Result = *r
		case ctx.Err() != nil && errors.Is(err, ctx.Err()), errors.Is(err, ErrClosed):
			return err
		default:
			answers[i].Err = err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, ctx.Err()
}
