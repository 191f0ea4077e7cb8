package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// FetchBlock is the unit in which a [Fetcher] knows the bytes that are there. It is small: a search needs some
	// kilobytes in each of a thousand places.
	FetchBlock      = 16 << 10
	writeBytes      = 256 << 10 // bytes of a write
	maxRangeBytes   = 8 << 20   // most bytes of a request
	maxFillRequests = 16        // requests of [Fetcher.Fill] at a time
	maxRefetched    = 32        // blocks that are there and that Fill fetches again, to save a request
)

// Fetcher fills a file with an object, a range at a time, in any order. It is safe for concurrent use.
type Fetcher struct {
	store        Store
	name         string
	size         int64
	out          io.WriterAt
	ensuring     atomic.Int32 // calls of Ensure that wait
	mu           sync.Mutex
	state        []blockState // of each block
	stateChanged *sync.Cond   // a block's state has changed
}

type blockState uint8

const (
	absent  blockState = iota
	filling            // Fill has asked for it, and may be slow: Ensure asks again
	urgent             // Ensure has asked for it
	present
)

// NewFetcher returns a fetcher of an object of a size into a file. Nothing is read yet.
func NewFetcher(s Store, name string, size int64, w io.WriterAt) *Fetcher {
	f := &Fetcher{store: s, name: name, size: size, out: w, state: make([]blockState, (size+FetchBlock-1)/FetchBlock)}
	f.stateChanged = sync.NewCond(&f.mu)
	return f
}

// blocks returns the blocks [lo, hi) that have n bytes from an offset on.
func (f *Fetcher) blocks(off, n int64) (lo, hi int) {
	off = max(off, 0)
	if n <= 0 || off >= f.size {
		return 0, 0
	}
	return int(off / FetchBlock), int((min(n, f.size-off) + off + FetchBlock - 1) / FetchBlock)
}

// Present reports whether n bytes from an offset on are there, as far as the object has them.
func (f *Fetcher) Present(off, n int64) bool {
	lo, hi := f.blocks(off, n)
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; lo < hi; lo++ {
		if f.state[lo] != present {
			return false
		}
	}
	return true
}

// Ensure fetches n bytes from an offset on. It asks for them at once, whatever [Fetcher.Fill] does; callers that
// need the same bytes share a request.
func (f *Fetcher) Ensure(ctx context.Context, off, n int64) error {
	if f.Present(off, n) {
		return nil
	}
	f.ensuring.Add(1)
	defer f.ensuring.Add(-1)
	lo, hi := f.blocks(off, n)
	return f.fetchBlocks(ctx, lo, hi, urgent)
}

// yieldToEnsure waits for calls of Ensure, but not for long: a connection would end, and Fill might never do.
func (f *Fetcher) yieldToEnsure() {
	for try := 0; try < 10 && f.ensuring.Load() > 0; try++ {
		time.Sleep(10 * time.Millisecond)
	}
}

// Fill fetches the whole object, by large ranges, some at a time. After an error it may be called again, and goes on.
func (f *Fetcher) Fill(ctx context.Context) error {
	return f.fetchBlocks(ctx, 0, len(f.state), filling)
}

// fetchBlocks fetches the blocks [lo, hi), for Fill or for Ensure, as the state says that they have meanwhile. None of its
// requests runs when it returns.
func (f *Fetcher) fetchBlocks(ctx context.Context, lo, hi int, claim blockState) (err error) {
	maxRequests := math.MaxInt
	if claim == filling {
		maxRequests = maxFillRequests
	}
	defer context.AfterFunc(ctx, f.wakeWaiters)()
	f.mu.Lock()
	defer f.mu.Unlock()
	running, next := 0, lo // before next, no block is absent
	for {
		// Requests for blocks that are absent.
		for ; err == nil && running < maxRequests; running++ {
			first, to := f.claimRange(next, hi, claim)
			if first == to {
				break
			}
			next = to
			go func() {
				reached, failed := f.fetchWithRetries(ctx, first, to, claim)
				f.mu.Lock()
				defer f.mu.Unlock()
				for b := reached; b < to; b++ {
					if f.state[b] == claim {
						f.state[b] = absent
					}
				}
				if failed != nil && err == nil {
					err = failed
				}
				running--
				f.stateChanged.Broadcast()
			}()
		}
		// The end: all is there, or an error and none of the own requests.
		if err == nil {
			err = ctx.Err()
		}
		for lo < hi && f.state[lo] == present {
			lo++
		}
		if running == 0 && (lo == hi || err != nil) {
			return err
		}
		f.stateChanged.Wait()
		next = lo // another's request may have failed
	}
}

func (f *Fetcher) wakeWaiters() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stateChanged.Broadcast()
}

// claimRange gives the first blocks of [lo, hi) that are absent their new state, as many as one request asks for. Fill
// asks for those again that are there between them, if they are few.
func (f *Fetcher) claimRange(lo, hi int, claim blockState) (from, to int) {
	for lo < hi && f.state[lo] >= claim {
		lo++
	}
	to = lo
	for b := lo; b < hi && b-lo < maxRangeBytes/FetchBlock; b++ {
		switch {
		case f.state[b] < claim:
			f.state[b] = claim
			to = b + 1
		case f.state[b] != present || claim != filling || b-to >= maxRefetched:
			return lo, to
		}
	}
	return lo, to
}

// fetchWithRetries fetches blocks [from, to), and returns the first one that it has not fetched.
func (f *Fetcher) fetchWithRetries(ctx context.Context, from, to int, claim blockState) (reached int, err error) {
	buf := make([]byte, min((to-from)*FetchBlock, writeBytes))
	for try := 0; ; {
		begun := from
		from, err = f.fetchOnce(ctx, from, to, buf, claim)
		if from > begun {
			try = 0
		}
		if try++; err == nil || ctx.Err() != nil || !errors.Is(err, errBody) || try == maxReadTries {
			return from, err
		}
		waitBeforeRetry(ctx, try)
	}
}

// errBody: the body of an answer breaks off, and is asked for again.
var errBody = errors.New("it was not read to its end")

func (f *Fetcher) fetchOnce(ctx context.Context, from, to int, buf []byte, claim blockState) (reached int, err error) {
	off, end := int64(from)*FetchBlock, min(int64(to)*FetchBlock, f.size)
	r, e, err := f.store.Get(ctx, f.name, off, end-off)
	if err != nil {
		return from, err
	}
	defer r.Close()
	if e.Size != f.size {
		return from, fmt.Errorf("object %s: %w: it has %d bytes in place of %d", f.name, ErrDamaged, e.Size, f.size)
	}
	for from < to {
		if claim == filling {
			f.yieldToEnsure()
		}
		b := buf[:min(int64(len(buf)), end-int64(from)*FetchBlock)]
		if _, err := io.ReadFull(&contextReader{ctx, r}, b); err != nil {
			return from, fmt.Errorf("object %s: %w: %w", f.name, errBody, err)
		}
		if _, err := f.out.WriteAt(b, int64(from)*FetchBlock); err != nil {
			return from, err
		}
		f.mu.Lock()
		for until := min(from+len(buf)/FetchBlock, to); from < until; from++ {
			f.state[from] = present
		}
		f.stateChanged.Broadcast()
		f.mu.Unlock()
	}
	return from, nil
}
