package collection

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// Searcher is a [search.Searcher] of a [Collection]. Each call searches the present state. It is safe for concurrent
// use.
type Searcher struct {
	coll    Collection
	ctx     context.Context // ends with the searcher
	cancel  context.CancelCauseFunc
	mu      sync.Mutex // held while a search begins, and by Close
	running sync.WaitGroup
}

var _ search.Searcher = (*Searcher)(nil)

// NewSearcher returns a searcher of a collection, which stays open when the searcher is closed.
func NewSearcher(c Collection) *Searcher {
	s := &Searcher{coll: c}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// withSnapshot calls use with a snapshot of the collection. Its context ends with the searcher.
func (s *Searcher) withSnapshot(ctx context.Context, use func(ctx context.Context, v Snapshot) error) (err error) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return search.ErrClosed
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(s.ctx, func() { stop(search.ErrClosed) })()
	v, err := s.coll.Snapshot(ctx)
	if err == nil {
		err = errors.Join(use(ctx, v), v.Close())
	}
	if err != nil && errors.Is(context.Cause(ctx), search.ErrClosed) {
		err = search.ErrClosed
	}
	return err
}

// Search implements [search.Searcher].
func (s *Searcher) Search(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	results, err := s.SearchBatch(ctx, []search.Query{q}, o)
	if failed, ok := errors.AsType[*search.QueryError](err); ok {
		err = failed.Err
	}
	if err != nil {
		return nil, err
	}
	return &results[0], nil
}

// SearchBatch implements [search.Searcher].
func (s *Searcher) SearchBatch(ctx context.Context, qs []search.Query,
	o search.Options) (results []search.Result, err error) {
	err = s.withSnapshot(ctx, func(ctx context.Context, v Snapshot) (err error) {
		results, err = v.Search(ctx, qs, o)
		for i := range results {
			if err == nil && o.Payload {
				err = setPayloads(v, results[i].Hits)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// SearchKeywords searches for words, if the collection supports that ([Keywords]).
func (s *Searcher) SearchKeywords(ctx context.Context, q KeywordQuery) (hits []search.Hit, err error) {
	err = s.withSnapshot(ctx, func(ctx context.Context, v Snapshot) (err error) {
		words, ok := v.(Keywords)
		if !ok {
			return Unsupported("searches by words")
		}
		if hits, err = words.SearchKeywords(ctx, q); err == nil && q.Payload {
			err = setPayloads(v, hits)
		}
		return err
	})
	return hits, err
}

// setPayloads sets the metadata of hits and of their passages.
func setPayloads(v Snapshot, hits []search.Hit) error {
	for i := range hits {
		h := &hits[i]
		stored, err := v.MetadataOf(h)
		if err == nil {
			stored = slices.Clone(stored) // the hit outlives the snapshot
			if len(h.Passages) > 0 && h.Passages[0].Passage != nil {
				stored = vectors.DocumentPayload(stored)
			}
			h.Payload = search.Payload(stored)
			err = setPayloads(v, h.Passages)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Describe implements [search.Searcher].
func (s *Searcher) Describe(ctx context.Context) (d search.Description, err error) {
	err = s.withSnapshot(ctx, func(ctx context.Context, v Snapshot) (err error) {
		d, err = v.Describe(ctx)
		return err
	})
	return d, err
}

// Close implements [search.Searcher].
func (s *Searcher) Close() error {
	s.mu.Lock()
	s.cancel(nil)
	s.mu.Unlock()
	s.running.Wait()
	return nil
}
