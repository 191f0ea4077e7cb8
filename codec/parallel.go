package codec

import (
	"context"

	"github.com/plaid-ir/plaid/internal/parallel"
)

// blockRows is the number of rows handed to a backend at once: enough to
// amortise the pass over the centroids. It is fixed, so that sums over blocks
// do not depend on the number of threads.
const blockRows = 2048

// workers is the number of goroutines that n items in blocks of that size
// deserve; threads below 1 means all processors.
func workers(n, size, threads int) int {
	return parallel.Threads(threads, parallel.Blocks(n, size))
}

// forBlocks calls fn for every block of size items of 0..n and waits for all of
// them. After an error or cancellation the remaining blocks are skipped.
func forBlocks(ctx context.Context, n, size, threads int, fn func(worker, block, lo, hi int) error) error {
	var p parallel.Pool
	return p.Run(ctx, parallel.Blocks(n, size), threads, parallel.Func(func(worker, i int) error {
		lo, hi := parallel.Block(i, n, size)
		return fn(worker, i, lo, hi)
	}))
}
