// Package parallel spreads numbered pieces of work over goroutines.
//
// There is one way to do it in this module. Pieces are given out in order, and
// each that was given out is finished, so of several errors the one with the
// lowest number is returned, whatever the timing. A context that ends stops the
// handing out. A panic of a piece appears on the goroutine of the caller, so that
// one place decides what becomes of it.
package parallel

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Runner does piece i. worker is below the number of threads, and no two pieces
// run with the same worker at a time.
type Runner interface {
	Run(worker, i int) error
}

// Func is a function as a [Runner].
type Func func(worker, i int) error

// Run calls f.
func (f Func) Run(worker, i int) error { return f(worker, i) }

// Pool runs pieces. The zero value is ready; one that is kept by its user, with a
// Runner that is a pointer, allocates nothing where one thread does the work. It
// runs one set of pieces at a time.
type Pool struct {
	next atomic.Int64
	stop atomic.Bool
	wg   sync.WaitGroup

	mu       sync.Mutex
	err      error
	errPiece int // what err comes from
	panic    *Panic
}

// Panic is a panic of a piece that did not run on the caller's goroutine, as the
// caller gets it.
type Panic struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

func (p *Panic) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap gives the value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Run runs pieces 0 to n−1 on up to threads goroutines, the caller's included;
// threads below 1 stands for one a processor. It returns when all pieces that
// were begun are finished: with the error of the lowest piece that failed, or
// that of the context.
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

// runOnCaller is the caller's share. It waits for the others even if it panics.
func (p *Pool) runOnCaller(ctx context.Context, n int, r Runner) {
	defer p.wg.Wait()
	defer p.stop.Store(true)
	p.runPieces(ctx, 0, n, r)
}

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

// Threads is how many goroutines n pieces deserve; threads below 1 stands for
// one a processor.
func Threads(threads, n int) int {
	if threads < 1 {
		threads = Processors()
	}
	return max(min(threads, n), 1)
}

// Blocks is the number of blocks of size items, the last of which may be
// smaller, that n items make, and Block gives the items of one.
func Blocks(n, size int) int { return (n + size - 1) / size }

// Block gives the items lo to hi (exclusive) of block i of [Blocks].
func Block(i, n, size int) (lo, hi int) { return i * size, min((i+1)*size, n) }

// spareProcessors is by how much GOMAXPROCS exceeds what may compute.
var spareProcessors atomic.Int64

// Processors is how many goroutines should compute at a time: GOMAXPROCS, less what
// [Spare] has added.
func Processors() int { return max(1, runtime.GOMAXPROCS(0)-int(spareProcessors.Load())) }

// Spare raises GOMAXPROCS above the number of processors, once, so that a goroutine that
// waits for a network or a clock runs as soon as that is ready. Go looks at them when a
// goroutine that computes stops, or after 10 ms, unless one of GOMAXPROCS is idle: while
// as many compute as there are, requests lie unread, and answers wait, for several times
// what a search takes. It is for programs that serve.
func Spare() { addSpare() }

var addSpare = sync.OnceFunc(func() {
	n := runtime.GOMAXPROCS(0)
	more := 1 + n/8
	spareProcessors.Store(int64(more))
	runtime.GOMAXPROCS(n + more)
})
