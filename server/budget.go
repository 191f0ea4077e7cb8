package server

import (
	"context"
	"slices"
	"sync"
	"time"
)

// budget is memory that all requests share. What does not fit waits, in order.
//
// Requests take more while they hold some, and two could wait for each other for ever. So a
// part of the budget is kept back for one request at a time: the first of those that wait
// may go into it, up to what one request may take at most, and has it until it ends.
type budget struct {
	purpose string
	most    int64
	back    int64         // of it, that is kept back
	longest time.Duration // that one may be expected to wait

	mu      sync.Mutex
	left    int64
	first   *account // that may take what is kept back; nil: none needs to
	waiting []*claim
	held    time.Duration // moving mean of how long an account holds something
}

// account is what a request has of a budget. One goroutine takes for it.
type account struct {
	b     *budget
	taken int64
	since time.Time // of the first byte
}

// claim is an account that waits for bytes.
type claim struct {
	a     *account
	bytes int64
	ready chan struct{} // closed when it has got them
}

// newBudget makes a budget of which one request takes so much at most.
func newBudget(purpose string, most, one int64, longest time.Duration) *budget {
	return &budget{purpose: purpose, most: most, back: min(one, most/2), longest: longest, left: most}
}

func (b *budget) account() account { return account{b: b} }

// take takes bytes, and waits for them where others have them, if that is not expected to
// last too long.
func (a *account) take(ctx context.Context, n int64) error {
	b := a.b
	if n == 0 {
		return nil
	}
	if n > b.most-a.taken {
		return problem(CodeTooLarge, "the request takes more than the %d bytes of memory that there are for %s (max-memory)", b.most, b.purpose)
	}
	b.mu.Lock()
	if len(b.waiting) == 0 && b.fits(a, n) || b.first == a && n <= b.left {
		b.grant(a, n)
		b.mu.Unlock()
		return nil
	}
	c := &claim{a, n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.admit()
	wait := b.wait()
	b.mu.Unlock()
	if wait <= b.longest {
		timer := time.NewTimer(b.longest)
		defer timer.Stop()
		select {
		case <-c.ready:
			return nil
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.waiting, c)
	if at < 0 { // it was let through in the same moment
		return nil
	}
	b.waiting = slices.Delete(b.waiting, at, at+1)
	b.admit() // those behind it may need less
	if err := ctx.Err(); err != nil {
		return err
	}
	return problem(CodeBusy, "other requests take the memory that there is for %s (max-memory)", b.purpose).after(max(wait, b.wait()))
}

// owe takes bytes at once, also where others have them: for what cannot be refused any more.
func (a *account) owe(n int64) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.b.grant(a, n)
}

// fits tells whether an account may take bytes at once.
func (b *budget) fits(a *account, n int64) bool {
	if b.first == a {
		return n <= b.left
	}
	kept := b.back
	if b.first != nil { // it has taken some of what is kept back
		kept = max(kept-b.first.taken, 0)
	}
	return n <= b.left-kept
}

func (b *budget) grant(a *account, n int64) {
	if a.taken == 0 {
		a.since = time.Now()
	}
	a.taken += n
	b.left -= n
}

// admit lets through what waits and fits, in order, and beside that the one request that may
// take what is kept back. Nobody has it: it goes to the first one that it helps.
func (b *budget) admit() {
	let := func(i int) {
		c := b.waiting[i]
		b.grant(c.a, c.bytes)
		close(c.ready)
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	for len(b.waiting) > 0 {
		if c := b.waiting[0]; b.fits(c.a, c.bytes) {
			let(0)
			continue
		}
		if b.first == nil {
			// Others do not wait for who holds nothing: that waits for its turn.
			holds := func(c *claim) bool { return c.a.taken > 0 }
			if c := b.waiting[0]; c.bytes <= b.left {
				b.first = c.a
			} else if i := slices.IndexFunc(b.waiting, holds); i >= 0 {
				b.first = b.waiting[i].a
			}
		}
		i := slices.IndexFunc(b.waiting, func(c *claim) bool { return c.a == b.first })
		if i < 0 || !b.fits(b.first, b.waiting[i].bytes) {
			return
		}
		let(i)
	}
}

// wait is how long the last of those that wait will, as memory was held until now.
func (b *budget) wait() time.Duration {
	var bytes int64
	for _, c := range b.waiting {
		bytes += c.bytes
	}
	return time.Duration(min(float64(b.held)*float64(bytes)/float64(b.most), float64(longestRetry)))
}

// first tells whether the account may take what is kept back.
func (a *account) first() bool {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	return a.b.first == a
}

// possible is so many bytes, or all that the account may have: what takes more than there
// is for all runs when nothing else does.
func (a *account) possible(n int64) int64 { return min(n, a.most()) }

// most is how much more the account may have.
func (a *account) most() int64 { return a.b.most - a.taken }

// give gives bytes back.
func (a *account) give(n int64) {
	if n == 0 {
		return
	}
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	a.taken -= n
	b.left += n
	if a.taken == 0 {
		held := time.Since(a.since)
		if b.held == 0 {
			b.held = held
		}
		b.held += (held - b.held) / 16
		if b.first == a {
			b.first = nil
		}
	}
	b.admit()
}

// close gives all back.
func (a *account) close() { a.give(a.taken) }
