// Package parallel distributes numbered pieces of work over goroutines.
//
// The whole module uses it, with these guarantees:
//
//  1. Pieces start in order, and every piece that started is finished. So of several errors the one
//     with the lowest number is returned, independent of timing.
//  2. No piece starts after the context has ended.
//  3. A panic of a piece is raised again on the goroutine of the caller, which decides how to handle
//     it.
package parallel

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Runner does piece i. worker is below the number of threads, and no two pieces run with the same
// worker at the same time.
type Runner interface {
	Run(worker, i int) error
}

// Func is a function that implements [Runner].
type Func func(worker, i int) error

// Run calls f.
func (f Func) Run(worker, i int) error { return f(worker, i) }

// Pool runs pieces. The zero value is ready to use. If its user keeps it, and its Runner is a
// pointer, runs on one thread do not allocate. It runs one set of pieces at a time.
type Pool struct {
	next atomic.Int64
	stop atomic.Bool
	wg   sync.WaitGroup

	mu       sync.Mutex
	err      error
	errPiece int // the piece that err is from
	panic    *Panic
}

// Panic is a panic of a piece on another goroutine, as the caller gets it.
type Panic struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

func (p *Panic) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Run runs pieces 0 to n−1 on up to threads goroutines, including the caller's. threads below 1
// means one a processor. It returns when all pieces that started are finished, with the error of
// the lowest piece that failed, or that of the context.
func (p *Pool) Run(ctx context.Context, n, threads int, r Runner) error {
	p.next.Store(0)
	p.stop.Store(false)
	p.err, p.panic = nil, nil
	for w := range Threads(threads, n) - 1 {
		p.wg.Add(1)
		go p.runHelper(ctx, w+1, n, r)
	}
	p.runOnCaller(ctx, n, r)
	if p.panic != nil {
		panic(p.panic)
	}
	if p.err != nil {
		return p.err
	}
	return ctx.Err()
}

// runOnCaller runs pieces on the caller's goroutine. It waits for the others even if it panics.
func (p *Pool) runOnCaller(ctx context.Context, n int, r Runner) {
	defer p.wg.Wait()
	defer p.stop.Store(true)
	p.runPieces(ctx, 0, n, r)
}

// runHelper runs pieces on another goroutine, and catches a panic.
func (p *Pool) runHelper(ctx context.Context, worker, n int, r Runner) {
	defer p.wg.Done()
	defer func() {
		if v := recover(); v != nil {
			p.stop.Store(true)
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.panic == nil {
				p.panic = &Panic{v, debug.Stack()}
			}
		}
	}()
	p.runPieces(ctx, worker, n, r)
}

// runPieces runs pieces until all have started, one fails, or the context ends.
func (p *Pool) runPieces(ctx context.Context, worker, n int, r Runner) {
	for !p.stop.Load() && ctx.Err() == nil {
		i := int(p.next.Add(1)) - 1
		if i >= n {
			return
		}
		if err := r.Run(worker, i); err != nil {
			p.stop.Store(true)
			p.mu.Lock()
			if p.err == nil || i < p.errPiece {
				p.err, p.errPiece = err, i
			}
			p.mu.Unlock()
			return
		}
	}
}

// Do runs fn for 0 to n−1; see [Pool.Run].
func Do(ctx context.Context, n, threads int, fn func(i int) error) error {
	var p Pool
	return p.Run(ctx, n, threads, Func(func(_, i int) error { return fn(i) }))
}

// Threads returns the number of goroutines for n pieces. threads below 1 means one a processor.
func Threads(threads, n int) int {
	if threads < 1 {
		threads = Processors()
	}
	return max(min(threads, n), 1)
}

// Blocks returns the number of blocks of size items that n items fill. The last block may be
// smaller.
func Blocks(n, size int) int { return (n + size - 1) / size }

// Block returns the items lo to hi (exclusive) of block i of [Blocks].
func Block(i, n, size int) (lo, hi int) { return i * size, min((i+1)*size, n) }

// spareProcessors is by how much GOMAXPROCS exceeds the number of goroutines that should compute.
var spareProcessors atomic.Int64

// Processors returns how many goroutines should compute at the same time: GOMAXPROCS, less the
// number that [AddSpareProcessors] added.
func Processors() int { return max(1, runtime.GOMAXPROCS(0)-int(spareProcessors.Load())) }

// AddSpareProcessors raises GOMAXPROCS above the number of processors, once, so that a goroutine that waits for
// a network or a clock runs as soon as that is ready. Go polls them when a computing goroutine
// stops, or after 10 ms, unless one of GOMAXPROCS is idle: while all are computing, requests and
// answers wait for several times as long as a search takes. It is for programs that serve.
func AddSpareProcessors() { addSpare() }

var addSpare = sync.OnceFunc(func() {
	n := runtime.GOMAXPROCS(0)
	more := 1 + n/8
	spareProcessors.Store(int64(more))
	runtime.GOMAXPROCS(n + more)
})
