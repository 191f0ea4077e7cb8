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
	FetchBlock = 16 << 10
	fetchPiece = 256 << 10 // bytes of a write
	fetchRange = 8 << 20   // most bytes of a request
	inFlight   = 16        // requests of [Fetcher.Fill] at a time
	fetchGap   = 32        // blocks that are there and that Fill fetches again, to save a request
)

// Fetcher fills a file with an object, a range at a time, in any order. It is safe for concurrent use.
type Fetcher struct {
	s     Store
	name  string
	size  int64
	w     io.WriterAt
	asked atomic.Int32 // calls of Ensure that wait
	mu    sync.Mutex
	state []blockState // of each block
	turn  *sync.Cond   // a block's state has changed
}

type blockState uint8

const (
	absent  blockState = iota
	filling            // Fill has asked for it, and may be slow: Ensure asks again
	coming             // Ensure has asked for it
	present
)

// NewFetcher returns a fetcher of an object of a size into a file. Nothing is read yet.
func NewFetcher(s Store, name string, size int64, w io.WriterAt) *Fetcher {
	f := &Fetcher{s: s, name: name, size: size, w: w, state: make([]blockState, (size+FetchBlock-1)/FetchBlock)}
	f.turn = sync.NewCond(&f.mu)
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
	f.asked.Add(1)
	defer f.asked.Add(-1)
	lo, hi := f.blocks(off, n)
	return f.fetch(ctx, lo, hi, coming)
}

// yield waits for calls of Ensure, but not for long: a connection would end, and Fill might never do.
func (f *Fetcher) yield() {
	for try := 0; try < 10 && f.asked.Load() > 0; try++ {
		time.Sleep(10 * time.Millisecond)
	}
}

// Fill fetches the whole object, by large ranges, some at a time. After an error it may be called again, and goes on.
func (f *Fetcher) Fill(ctx context.Context) error {
	return f.fetch(ctx, 0, len(f.state), filling)
}

// fetch fetches the blocks [lo, hi), for Fill or for Ensure, as the state says that they have meanwhile. None of its
// requests runs when it returns.
func (f *Fetcher) fetch(ctx context.Context, lo, hi int, mine blockState) (err error) {
	most := math.MaxInt
	if mine == filling {
		most = inFlight
	}
	defer context.AfterFunc(ctx, f.wake)()
	f.mu.Lock()
	defer f.mu.Unlock()
	running, next := 0, lo // before next, no block is absent
	for {
		// Requests for blocks that are absent.
		for ; err == nil && running < most; running++ {
			from, to := f.claim(next, hi, mine)
			if from == to {
				break
			}
			next = to
			go func() {
				reached, failed := f.get(ctx, from, to, mine)
				f.mu.Lock()
				defer f.mu.Unlock()
				for b := reached; b < to; b++ {
					if f.state[b] == mine {
						f.state[b] = absent
					}
				}
				if failed != nil && err == nil {
					err = failed
				}
				running--
				f.turn.Broadcast()
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
		f.turn.Wait()
		next = lo // another's request may have failed
	}
}

func (f *Fetcher) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn.Broadcast()
}

// claim gives the first blocks of [lo, hi) that are absent their new state, as many as one request asks for. Fill
// asks for those again that are there between them, if they are few.
func (f *Fetcher) claim(lo, hi int, mine blockState) (from, to int) {
	for lo < hi && f.state[lo] >= mine {
		lo++
	}
	to = lo
	for b := lo; b < hi && b-lo < fetchRange/FetchBlock; b++ {
		switch {
		case f.state[b] < mine:
			f.state[b] = mine
			to = b + 1
		case f.state[b] != present || mine != filling || b-to >= fetchGap:
			return lo, to
		}
	}
	return lo, to
}

// get fetches blocks [from, to), and returns the first one that it has not fetched.
func (f *Fetcher) get(ctx context.Context, from, to int, mine blockState) (reached int, err error) {
	buf := make([]byte, min((to-from)*FetchBlock, fetchPiece))
	for try := 0; ; {
		begun := from
		from, err = f.stream(ctx, from, to, buf, mine)
		if from > begun {
			try = 0
		}
		if try++; err == nil || ctx.Err() != nil || !errors.Is(err, errBody) || try == readTries {
			return from, err
		}
		pause(ctx, try)
	}
}

// errBody: the body of an answer breaks off, and is asked for again.
var errBody = errors.New("it was not read to its end")

func (f *Fetcher) stream(ctx context.Context, from, to int, buf []byte, mine blockState) (reached int, err error) {
	off, end := int64(from)*FetchBlock, min(int64(to)*FetchBlock, f.size)
	r, e, err := f.s.Get(ctx, f.name, off, end-off)
	if err != nil {
		return from, err
	}
	defer r.Close()
	if e.Size != f.size {
		return from, fmt.Errorf("object %s: %w: it has %d bytes in place of %d", f.name, ErrDamaged, e.Size, f.size)
	}
	for from < to {
		if mine == filling {
			f.yield()
		}
		b := buf[:min(int64(len(buf)), end-int64(from)*FetchBlock)]
		if _, err := io.ReadFull(&reader{ctx, r}, b); err != nil {
			return from, fmt.Errorf("object %s: %w: %w", f.name, errBody, err)
		}
		if _, err := f.w.WriteAt(b, int64(from)*FetchBlock); err != nil {
			return from, err
		}
		f.mu.Lock()
		for until := min(from+len(buf)/FetchBlock, to); from < until; from++ {
			f.state[from] = present
		}
		f.turn.Broadcast()
		f.mu.Unlock()
	}
	return from, nil
}
