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
	purpose  string
	capacity int64
	headroom int64         // of it, that is kept back
	maxWait  time.Duration // that one may be expected to wait

	mu             sync.Mutex
	remaining      int64
	headroomHolder *reservation // that may take what is kept back; nil: none needs to
	waiting        []*waiter
	meanHold       time.Duration // moving mean of how long an account holds something
}

// reservation is what a request has of a budget. One goroutine takes for it.
type reservation struct {
	budget *budget
	bytes  int64
	since  time.Time // of the first byte
}

// waiter is an account that waits for bytes.
type waiter struct {
	reservation *reservation
	bytes       int64
	granted     chan struct{} // closed when it has got them
}

// newBudget makes a budget of which one request takes so much at most.
func newBudget(purpose string, most, one int64, longest time.Duration) *budget {
	return &budget{purpose: purpose, capacity: most, headroom: min(one, most/2), maxWait: longest, remaining: most}
}

func (b *budget) newReservation() reservation { return reservation{budget: b} }

// reserve takes bytes, and waits for them where others have them, if that is not expected to
// last too long.
func (a *reservation) reserve(ctx context.Context, n int64) error {
	b := a.budget
	if n == 0 {
		return nil
	}
	if n > b.capacity-a.bytes {
		return problem(CodeTooLarge, "the request takes more than the %d bytes of memory that there are for %s (max-memory)", b.capacity, b.purpose)
	}
	b.mu.Lock()
	if len(b.waiting) == 0 && b.canGrant(a, n) || b.headroomHolder == a && n <= b.remaining {
		b.grant(a, n)
		b.mu.Unlock()
		return nil
	}
	c := &waiter{a, n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.grantWaiting()
	wait := b.expectedWait()
	b.mu.Unlock()
	if wait <= b.maxWait {
		timer := time.NewTimer(b.maxWait)
		defer timer.Stop()
		select {
		case <-c.granted:
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
	b.grantWaiting() // those behind it may need less
	if err := ctx.Err(); err != nil {
		return err
	}
	return problem(CodeBusy, "other requests take the memory that there is for %s (max-memory)", b.purpose).withRetryAfter(max(wait, b.expectedWait()))
}

// reserveAtOnce takes bytes at once, also where others have them: for what cannot be refused any more.
func (a *reservation) reserveAtOnce(n int64) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.grant(a, n)
}

// canGrant tells whether an account may take bytes at once.
func (b *budget) canGrant(a *reservation, n int64) bool {
	if b.headroomHolder == a {
		return n <= b.remaining
	}
	kept := b.headroom
	if b.headroomHolder != nil { // it has taken some of what is kept back
		kept = max(kept-b.headroomHolder.bytes, 0)
	}
	return n <= b.remaining-kept
}

func (b *budget) grant(a *reservation, n int64) {
	if a.bytes == 0 {
		a.since = time.Now()
	}
	a.bytes += n
	b.remaining -= n
}

// grantWaiting lets through what waits and fits, in order, and beside that the one request that may
// take what is kept back. Nobody has it: it goes to the first one that it helps.
func (b *budget) grantWaiting() {
	let := func(i int) {
		c := b.waiting[i]
		b.grant(c.reservation, c.bytes)
		close(c.granted)
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	for len(b.waiting) > 0 {
		if c := b.waiting[0]; b.canGrant(c.reservation, c.bytes) {
			let(0)
			continue
		}
		if b.headroomHolder == nil {
			// Others do not wait for who holds nothing: that waits for its turn.
			holds := func(c *waiter) bool { return c.reservation.bytes > 0 }
			if c := b.waiting[0]; c.bytes <= b.remaining {
				b.headroomHolder = c.reservation
			} else if i := slices.IndexFunc(b.waiting, holds); i >= 0 {
				b.headroomHolder = b.waiting[i].reservation
			}
		}
		i := slices.IndexFunc(b.waiting, func(c *waiter) bool { return c.reservation == b.headroomHolder })
		if i < 0 || !b.canGrant(b.headroomHolder, b.waiting[i].bytes) {
			return
		}
		let(i)
	}
}

// expectedWait is how long the last of those that wait will, as memory was held until now.
func (b *budget) expectedWait() time.Duration {
	var bytes int64
	for _, c := range b.waiting {
		bytes += c.bytes
	}
	return time.Duration(min(float64(b.meanHold)*float64(bytes)/float64(b.capacity), float64(maxRetryAfter)))
}

// holdsHeadroom tells whether the account may take what is kept back.
func (a *reservation) holdsHeadroom() bool {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.budget.headroomHolder == a
}

// limitToRemaining is so many bytes, or all that the account may have: what takes more than there
// is for all runs when nothing else does.
func (a *reservation) limitToRemaining(n int64) int64 { return min(n, a.remaining()) }

// remaining is how much more the account may have.
func (a *reservation) remaining() int64 { return a.budget.capacity - a.bytes }

// release gives bytes back.
func (a *reservation) release(n int64) {
	if n == 0 {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	a.bytes -= n
	b.remaining += n
	if a.bytes == 0 {
		held := time.Since(a.since)
		if b.meanHold == 0 {
			b.meanHold = held
		}
		b.meanHold += (held - b.meanHold) / 16
		if b.headroomHolder == a {
			b.headroomHolder = nil
		}
	}
	b.grantWaiting()
}

// releaseAll gives all back.
func (a *reservation) releaseAll() { a.release(a.bytes) }
