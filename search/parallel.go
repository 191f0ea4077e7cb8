package search

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/storage"
)

// parallel calls fn for 0 to n−1 on up to threads goroutines, in no order, and
// stops at the first error or when the context ends.
func parallel(ctx context.Context, path string, threads, n int, fn func(i int) error) error {
	threads = min(threads, n)
	if threads <= 1 {
		for i := range n {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(i); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	var (
		next atomic.Int64
		stop atomic.Bool
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	work := func() (err error) {
		defer storage.Guard(path, &err)()
		for !stop.Load() {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(i); err != nil {
				return err
			}
		}
		return nil
	}
	for range threads {
		wg.Go(func() {
			if err := work(); err != nil {
				stop.Store(true)
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return errs[0]
	}
	return ctx.Err()
}
