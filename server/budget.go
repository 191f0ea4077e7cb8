package server

import (
	"context"
	"slices"
	"sync"
	"time"
)

// budget is memory that all requests share. Reservations that do not fit wait, in order.
//
// A request may reserve more while it holds some, so two requests could wait for each other for
// ever. Therefore a part of the budget, the headroom, is kept back:
//
//  1. At most one reservation, the headroomHolder, may use the headroom at a time.
//  2. The headroom is as large as the largest request (but at most half of the budget), so its
//     holder can always go on.
//  3. The holder keeps this right until it has released all of its bytes.
//  4. The right goes to the first waiting reservation that it helps.
type budget struct {
	purpose  string // for errors, such as "bodies"
	capacity int64
	headroom int64         // the part of capacity that is kept back
	maxWait  time.Duration // a reservation that is expected to wait longer is refused at once

	mu             sync.Mutex
	remaining      int64        // negative after reserveAtOnce of more than there was
	headroomHolder *reservation // nil means that no reservation needs the headroom
	waiting        []*waiter
	meanHold       time.Duration // moving mean of how long a reservation holds bytes
}

// reservation is the share of a budget that one request has. Only one goroutine may reserve for it.
type reservation struct {
	budget *budget
	bytes  int64
	since  time.Time // when it got its first byte
}

// waiter is a reservation that waits for more bytes.
type waiter struct {
	reservation *reservation
	bytes       int64
	granted     chan struct{} // closed when the bytes are reserved
}

// newBudget returns a budget of capacity bytes. One request reserves at most maxRequest of them.
func newBudget(purpose string, capacity, maxRequest int64, maxWait time.Duration) *budget {
	return &budget{
		purpose:   purpose,
		capacity:  capacity,
		headroom:  min(maxRequest, capacity/2),
		maxWait:   maxWait,
		remaining: capacity,
	}
}

// newReservation returns a reservation without bytes.
func (b *budget) newReservation() reservation { return reservation{budget: b} }

// reserve reserves size more bytes. It waits while other requests hold them, unless the wait is
// expected to last longer than maxWait: then, and if size can never fit, it returns a Problem.
func (a *reservation) reserve(ctx context.Context, size int64) error {
	b := a.budget
	if size == 0 {
		return nil
	}
	if size > b.capacity-a.bytes {
		return problem(CodeTooLarge, "the request takes more than the %d bytes of memory that there are for %s "+
			"(max-memory)",
			b.capacity, b.purpose)
	}

	// Reserve the bytes at once if they fit and no other reservation waits for them.
	b.mu.Lock()
	if len(b.waiting) == 0 && b.canGrant(a, size) || b.headroomHolder == a && size <= b.remaining {
		b.grantBytes(a, size)
		b.mu.Unlock()
		return nil
	}

	// Wait in line, if the line is not too long.
	w := &waiter{a, size, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.grantWaiting()
	expected := b.expectedWait()
	b.mu.Unlock()
	if expected <= b.maxWait {
		timer := time.NewTimer(b.maxWait)
		defer timer.Stop()
		select {
		case <-w.granted:
			return nil
		case <-timer.C:
		case <-ctx.Done():
		}
	}

	// Leave the line.
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i < 0 { // the bytes were granted at the same moment
		return nil
	}
	b.waiting = slices.Delete(b.waiting, i, i+1)
	b.grantWaiting() // those behind it may need fewer bytes
	if err := ctx.Err(); err != nil {
		return err
	}
	return problem(CodeBusy, "other requests use the memory that there is for %s (max-memory)", b.purpose).
		withRetryAfter(max(expected, b.expectedWait()))
}

// reserveAtOnce reserves bytes without waiting, even if the budget is exceeded: it is for the
// answer to a change that was made, which can no longer be refused.
func (a *reservation) reserveAtOnce(size int64) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.grantBytes(a, size)
}

// canGrant reports whether a reservation may get bytes now without touching headroom that is not
// its own.
func (b *budget) canGrant(a *reservation, size int64) bool {
	if b.headroomHolder == a {
		return size <= b.remaining
	}
	keptBack := b.headroom
	if b.headroomHolder != nil { // its bytes count as taken from the headroom
		keptBack = max(keptBack-b.headroomHolder.bytes, 0)
	}
	return size <= b.remaining-keptBack
}

// grantBytes gives bytes to a reservation without a check. b.mu must be held.
func (b *budget) grantBytes(a *reservation, size int64) {
	if a.bytes == 0 {
		a.since = time.Now()
	}
	a.bytes += size
	b.remaining -= size
}

// grantWaiting grants the waiting reservations that fit, in order, and the one of the headroom's
// holder out of order. If the headroom has no holder, it goes to the first waiter that it helps.
func (b *budget) grantWaiting() {
	grantAt := func(i int) {
		w := b.waiting[i]
		b.grantBytes(w.reservation, w.bytes)
		close(w.granted)
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	for len(b.waiting) > 0 {
		first := b.waiting[0]
		if b.canGrant(first.reservation, first.bytes) {
			grantAt(0)
			continue
		}
		if b.headroomHolder == nil {
			// Only requests that hold bytes keep others waiting, so if the headroom is too small for
			// the first in line, it goes to the first that holds some.
			holdsBytes := func(w *waiter) bool { return w.reservation.bytes > 0 }
			if first.bytes <= b.remaining {
				b.headroomHolder = first.reservation
			} else if i := slices.IndexFunc(b.waiting, holdsBytes); i >= 0 {
				b.headroomHolder = b.waiting[i].reservation
			}
		}
		i := slices.IndexFunc(b.waiting, func(w *waiter) bool { return w.reservation == b.headroomHolder })
		if i < 0 || !b.canGrant(b.headroomHolder, b.waiting[i].bytes) {
			return
		}
		grantAt(i)
	}
}

// expectedWait estimates how long the last waiter will wait: about capacity bytes are released in each
// meanHold.
func (b *budget) expectedWait() time.Duration {
	var queued int64
	for _, w := range b.waiting {
		queued += w.bytes
	}
	expected := float64(b.meanHold) * float64(queued) / float64(b.capacity)
	return time.Duration(min(expected, float64(maxRetryAfter)))
}

// holdsHeadroom reports whether the reservation is the one that may use the headroom.
func (a *reservation) holdsHeadroom() bool {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.budget.headroomHolder == a
}

// limitToRemaining returns size, or all bytes that the reservation can still get if they are fewer.
// A request that needs more than the whole budget then runs alone, with all of it reserved.
func (a *reservation) limitToRemaining(size int64) int64 { return min(size, a.remaining()) }

// remaining returns how many more bytes the reservation could get from an idle budget.
func (a *reservation) remaining() int64 { return a.budget.capacity - a.bytes }

// release gives bytes back to the budget.
func (a *reservation) release(size int64) {
	if size == 0 {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	a.bytes -= size
	b.remaining += size
	if a.bytes == 0 {
		hold := time.Since(a.since)
		if b.meanHold == 0 {
			b.meanHold = hold
		}
		b.meanHold += (hold - b.meanHold) / meanWeight
		if b.headroomHolder == a {
			b.headroomHolder = nil
		}
	}
	b.grantWaiting()
}

// releaseAll gives all bytes back to the budget.
func (a *reservation) releaseAll() { a.release(a.bytes) }
