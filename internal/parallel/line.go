package parallel

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
)

// errStopped is the error of freeItem after a stage has failed. Pipeline returns that of the stage instead.
var errStopped = errors.New("parallel: a later stage has failed")

// Pipeline passes items through stages. Each stage has its own goroutine and processes the items in
// order: while one item is in the last stage, later ones are in the stages before. first runs on the
// caller's goroutine: it fills items that freeItem returns, and passes them on with send. After the last
// stage an item is free again. first must return an error of freeItem.
//
// Of several errors, Pipeline returns the one that would occur if each item went through
// all stages before the next one was filled: where a stage fails the items behind go no
// further, and those before it are finished. A panic of a stage appears on the goroutine
// of the caller.
func Pipeline[T any](
	ctx context.Context, items []T,
	first func(freeItem func() (T, error), send func(T)) error, stages ...func(T) error,
) error {
	var wg sync.WaitGroup
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopped) })
	free, errs := make(chan T, len(items)), make([]error, len(stages))
	for _, item := range items {
		free <- item
	}
	filled := make(chan T, len(items))
	input := filled
	for i, stage := range stages {
		stageIn, stageOut := input, make(chan T, len(items))
		if input = stageOut; i == len(stages)-1 {
			stageOut = free
		}
		wg.Go(func() {
			if i < len(stages)-1 {
				defer close(stageOut)
			}
			for item := range stageIn {
				if errs[i] != nil {
					continue
				}
				if errs[i] = catchPanic(func() error { return stage(item) }); errs[i] != nil {
					stop()
					continue
				}
				stageOut <- item
			}
		})
	}
	err := func() error {
		defer wg.Wait() // also if first panics
		defer close(filled)
		return first(func() (item T, err error) {
			select {
			case <-stopped:
				return item, errStopped
			default:
			}
			select {
			case item = <-free:
				return item, ctx.Err()
			case <-stopped:
				return item, errStopped
			case <-ctx.Done():
				return item, ctx.Err()
			}
		}, func(item T) { filled <- item })
	}()
	for i := range errs { // the last stage first: its items are the earliest
		if e := errs[len(errs)-1-i]; e != nil {
			if p := (*Panic)(nil); errors.As(e, &p) {
				panic(p)
			}
			return e
		}
	}
	return err
}

// catchPanic calls fn, and converts a panic to an error.
func catchPanic(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{v, debug.Stack()}
		}
	}()
	return fn()
}
