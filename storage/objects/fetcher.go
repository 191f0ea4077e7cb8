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
	// FetchBlock is the unit in which a [Fetcher] tracks which bytes are in the file. It is small, because a search
	// needs a few kilobytes in each of a thousand places.
	FetchBlock      = 16 << 10
	writeBytes      = 256 << 10 // bytes of a write to the file
	maxRangeBytes   = 8 << 20   // bytes of a request
	maxFillRequests = 16        // concurrent requests of [Fetcher.Fill]
	maxRefetched    = 32        // consecutive present blocks that Fill fetches again if that saves a request
)

// Fetcher fills a file with an object, in ranges and in any order. It is safe for concurrent use. Invariants, under mu:
//
//  1. A block's bytes are in the file if and only if its state is present. A present block stays present.
//  2. A block that is filling or urgent has a running request, which sets it to present, or back to absent on failure.
//  3. A claim raises a state: Ensure fetches a block again that Fill is fetching, because that may be slow.
type Fetcher struct {
	store        Store
	name         string
	size         int64
	out          io.WriterAt
	ensuring     atomic.Int32 // calls of Ensure that are waiting
	mu           sync.Mutex
	state        []blockState // by block
	stateChanged *sync.Cond
}

// blockState is the state of a block. States are ordered: a claim replaces lower states only.
type blockState uint8

const (
	absent  blockState = iota
	filling            // Fill is fetching it
	urgent             // Ensure is fetching it
	present
)

// NewFetcher returns a fetcher of an object with a size to a file. It reads nothing yet.
func NewFetcher(s Store, name string, size int64, w io.WriterAt) *Fetcher {
	f := &Fetcher{store: s, name: name, size: size, out: w, state: make([]blockState, (size+FetchBlock-1)/FetchBlock)}
	f.stateChanged = sync.NewCond(&f.mu)
	return f
}

// blocks returns the blocks [lo, hi) that contain the n bytes at an offset.
func (f *Fetcher) blocks(off, n int64) (lo, hi int) {
	off = max(off, 0)
	if n <= 0 || off >= f.size {
		return 0, 0
	}
	return int(off / FetchBlock), int((min(n, f.size-off) + off + FetchBlock - 1) / FetchBlock)
}

// Present reports whether the n bytes at an offset are in the file. Bytes beyond the object count as present.
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

// Ensure fetches the n bytes at an offset. It does not wait for [Fetcher.Fill]. Calls that need the same bytes share a
// request.
func (f *Fetcher) Ensure(ctx context.Context, off, n int64) error {
	if f.Present(off, n) {
		return nil
	}
	f.ensuring.Add(1)
	defer f.ensuring.Add(-1)
	lo, hi := f.blocks(off, n)
	return f.fetchBlocks(ctx, lo, hi, urgent)
}

// yieldToEnsure waits for calls of Ensure, for a short time only: otherwise Fill might never end, or lose its
// connection.
func (f *Fetcher) yieldToEnsure() {
	for try := 0; try < 10 && f.ensuring.Load() > 0; try++ {
		time.Sleep(10 * time.Millisecond)
	}
}

// Fill fetches the whole object, in large concurrent ranges. After an error it may be called again, and continues.
func (f *Fetcher) Fill(ctx context.Context) error {
	return f.fetchBlocks(ctx, 0, len(f.state), filling)
}

// fetchBlocks fetches the blocks [lo, hi) for Fill or for Ensure; claim is the state of blocks that it is fetching.
// When it returns, none of its requests is running.
func (f *Fetcher) fetchBlocks(ctx context.Context, lo, hi int, claim blockState) (err error) {
	maxRequests := math.MaxInt
	if claim == filling {
		maxRequests = maxFillRequests
	}
	defer context.AfterFunc(ctx, f.wakeWaiters)()
	f.mu.Lock()
	defer f.mu.Unlock()
	running, next := 0, lo // all blocks in [lo, next) are claimed or present
	for {
		// Start requests for blocks that can be claimed.
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
		// Return when all blocks are present, or after an error when no own request is running.
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
		next = lo // start again: a block is absent again if another call's request has failed
	}
}

// wakeWaiters wakes waiting calls when a context has ended.
func (f *Fetcher) wakeWaiters() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stateChanged.Broadcast()
}

// claimRange claims the first blocks of [lo, hi) that can be claimed, as many as one request fetches, and returns their
// range, which may be empty. For Fill, the range may include a few present blocks between claimed ones.
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

// fetchWithRetries fetches the blocks [from, to). reached is the first block that was not fetched.
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

// errBody means that the body of an answer was cut short, so that the request is repeated.
var errBody = errors.New("it was not read to its end")

// fetchOnce fetches the blocks [from, to) in one request. reached is the first block that was not fetched.
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
		// buf has whole blocks; b is shorter only at the end of the range.
		for until := min(from+len(buf)/FetchBlock, to); from < until; from++ {
			f.state[from] = present
		}
		f.stateChanged.Broadcast()
		f.mu.Unlock()
	}
	return from, nil
}
