package search

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/storage"
)

// parallel calls fn for 0 to n−1 on up to threads goroutines, and stops at an
// error or when the context ends. Of several errors it returns that of the
// lowest i: numbers are given out in order and each that was given out is
// finished, so the error does not depend on timing.
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
		fail error
		at   int // what fail comes from
	)
	work := func() (i int, err error) {
		defer storage.Guard(path, &err)()
		for !stop.Load() {
			i = int(next.Add(1)) - 1
			if i >= n {
				return i, nil
			}
			if err := ctx.Err(); err != nil {
				return i, err
			}
			if err := fn(i); err != nil {
				return i, err
			}
		}
		return i, nil
	}
	for range threads {
		wg.Go(func() {
			if i, err := work(); err != nil {
				stop.Store(true)
				mu.Lock()
				if fail == nil || i < at {
					fail, at = err, i
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if fail != nil {
		return fail
	}
	return ctx.Err()
}
