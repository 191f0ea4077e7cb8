package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

const (
	// FetchBlock is the unit in which a [Fetcher] knows what is there: little, since a search needs some
	// kilobytes in each of a thousand places.
	FetchBlock = 16 << 10
	fetchPiece = 256 << 10 // what is written at a time
	fetchRange = 8 << 20   // the most that one request of [Fetcher.Fill] asks for
	inFlight   = 16        // requests of Fill at a time
	fetchGap   = 32        // blocks that are there and that Fill fetches again rather than ask twice
)

// Fetcher fills a file with an object, a range at a time, in any order. It is safe for concurrent use.
type Fetcher struct {
	s     Store
	name  string
	size  int64
	w     io.WriterAt
	mu    sync.Mutex
	state []blockState // of each block
	asked int          // calls of Ensure that wait
	turn  *sync.Cond   // a block's state has changed
}

type blockState uint8

const (
	absent  blockState = iota
	filling            // Fill has asked for it, and may take its time: who needs it asks again
	coming
	present
)

// NewFetcher returns what fills a file, such as a sparse one, with an object of a size. Nothing is read.
func NewFetcher(s Store, name string, size int64, w io.WriterAt) *Fetcher {
	f := &Fetcher{s: s, name: name, size: size, w: w}
	f.turn = sync.NewCond(&f.mu)
	f.state = make([]blockState, (size+FetchBlock-1)/FetchBlock)
	return f
}

// blocks are those of n bytes from an offset on: [lo, hi).
func (f *Fetcher) blocks(off, n int64) (lo, hi int) {
	off = max(off, 0)
	if n <= 0 || off >= f.size {
		return 0, 0
	}
	return int(off / FetchBlock), int((min(n, f.size-off) + off + FetchBlock - 1) / FetchBlock)
}

// Present reports whether n bytes from an offset on are there. What lies after the end of the object is.
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

// Ensure makes n bytes from an offset on be there. It asks for them at once, whatever [Fetcher.Fill] does, and
// waits; several callers that need the same share a request.
func (f *Fetcher) Ensure(ctx context.Context, off, n int64) error {
	if f.Present(off, n) {
		return nil
	}
	f.ask(1)
	defer f.ask(-1)
	lo, hi := f.blocks(off, n)
	return f.fetch(ctx, lo, hi, math.MaxInt)
}

func (f *Fetcher) ask(more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked += more
}

// yield lets what is asked for pass, for some time: so a connection does not end, nor does Fill never do.
func (f *Fetcher) yield() {
	for range 10 {
		f.mu.Lock()
		asked := f.asked
		f.mu.Unlock()
		if asked == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Fill makes the whole object be there, by large ranges, some at a time. After an error, it may be called
// again, and goes on.
func (f *Fetcher) Fill(ctx context.Context) error {
	return f.fetch(ctx, 0, len(f.state), inFlight)
}

// fetch makes blocks [lo, hi) be there, with so many requests of its own at a time. None runs when it returns.
func (f *Fetcher) fetch(ctx context.Context, lo, hi, most int) (err error) {
	defer context.AfterFunc(ctx, f.wake)()
	f.mu.Lock()
	defer f.mu.Unlock()
	running, next := 0, lo // before next, no block is absent
	for {
		for ; err == nil && running < most; running++ {
			fill := most == inFlight
			from, to := f.claim(next, hi, fill)
			if from == to {
				break
			}
			next = to
			go func() {
				reached, failed := f.get(ctx, from, to, fill)
				f.mu.Lock()
				defer f.mu.Unlock()
				for b := reached; b < to; b++ {
					if f.state[b] == asks(fill) {
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

// asks is the state of a block that is asked for.
func asks(fill bool) blockState {
	if fill {
		return filling
	}
	return coming
}

// claim takes the first blocks of [lo, hi) that are absent, as many as one request asks for; to fill, with few
// that are there between them.
func (f *Fetcher) claim(lo, hi int, fill bool) (from, to int) {
	mine := asks(fill)
	for lo < hi && f.state[lo] >= mine {
		lo++
	}
	to = lo
	for b := lo; b < hi && b-lo < fetchRange/FetchBlock; b++ {
		switch {
		case f.state[b] < mine:
			f.state[b] = mine
			to = b + 1
		case f.state[b] != present || !fill || b-to >= fetchGap:
			return lo, to
		}
	}
	return lo, to
}

// get fetches blocks, and returns how far it came.
func (f *Fetcher) get(ctx context.Context, from, to int, fill bool) (reached int, err error) {
	buf := make([]byte, min((to-from)*FetchBlock, fetchPiece))
	for try := 0; ; {
		begun := from
		from, err = f.stream(ctx, from, to, buf, fill)
		if from > begun {
			try = 0
		}
		if try++; err == nil || ctx.Err() != nil || !errors.Is(err, errBody) || try == readTries {
			return from, err
		}
		pause(ctx, try)
	}
}

// errBody: the body of an answer breaks off.
var errBody = errors.New("it was not read to its end")

func (f *Fetcher) stream(ctx context.Context, from, to int, buf []byte, fill bool) (reached int, err error) {
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
		if fill {
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
			if f.state[from] != present {
				f.state[from] = present
			}
		}
		f.turn.Broadcast()
		f.mu.Unlock()
	}
	return from, nil
}
