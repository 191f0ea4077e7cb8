package codec

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// blockRows is the number of rows handed to a backend at once: enough to
// amortise the pass over the centroids. It is fixed, so that sums over blocks
// do not depend on the number of threads.
const blockRows = 2048

// blockRunner does the work of one block; worker is below the thread count.
type blockRunner interface {
	runBlock(worker, block, lo, hi int)
}

type blockFunc func(worker, block, lo, hi int)

func (f blockFunc) runBlock(worker, block, lo, hi int) { f(worker, block, lo, hi) }

// blockPool spreads blocks of items over goroutines. It is kept by its user so
// that a run with one thread allocates nothing.
type blockPool struct {
	next atomic.Int64
	wg   sync.WaitGroup
}

// run calls r for every block of size items of 0..n and waits for all of them.
// After cancellation the remaining blocks are skipped.
func (p *blockPool) run(ctx context.Context, n, size, threads int, r blockRunner) error {
	p.next.Store(0)
	for w := range workers(n, size, threads) - 1 {
		p.wg.Add(1)
		go p.helper(ctx, w+1, n, size, r)
	}
	p.work(ctx, 0, n, size, r)
	p.wg.Wait()
	return ctx.Err()
}

func (p *blockPool) helper(ctx context.Context, worker, n, size int, r blockRunner) {
	defer p.wg.Done()
	p.work(ctx, worker, n, size, r)
}

func (p *blockPool) work(ctx context.Context, worker, n, size int, r blockRunner) {
	for ctx.Err() == nil {
		b := int(p.next.Add(1)) - 1
		if b*size >= n {
			return
		}
		r.runBlock(worker, b, b*size, min((b+1)*size, n))
	}
}

// workers is the number of goroutines that n items deserve; threads below 1
// means all processors.
func workers(n, size, threads int) int {
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	return max(min(threads, (n+size-1)/size), 1)
}

// forBlocks is run with a function, for callers that may allocate.
func forBlocks(ctx context.Context, n, size, threads int, fn blockFunc) error {
	var p blockPool
	return p.run(ctx, n, size, threads, fn)
}
