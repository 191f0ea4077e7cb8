package server

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (b *budget) state() (left int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left, len(b.waiting)
}

func untilWaiting(t *testing.T, b *budget, n int) {
	t.Helper()
	require.Eventually(t, func() bool { _, waiting := b.state(); return waiting == n }, time.Minute, time.Millisecond)
}

// What does not fit waits until others have given enough back, in order.
func TestBudgetWaits(t *testing.T) {
	b := newBudget("max-x", 100, 0, time.Hour)
	holder := b.account()
	require.NoError(t, holder.take(t.Context(), 80))
	large, small := b.account(), b.account()
	order := make(chan string, 2)
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, large.take(t.Context(), 60)); order <- "large" })
	untilWaiting(t, b, 1)
	wg.Go(func() { require.NoError(t, small.take(t.Context(), 10)); order <- "small" })
	untilWaiting(t, b, 2)
	require.Empty(t, order)
	holder.close()
	wg.Wait()
	left, _ := b.state()
	require.EqualValues(t, 30, left)
	large.close()
	small.close()
	left, _ = b.state()
	require.EqualValues(t, 100, left)
	var p *Problem
	require.ErrorAs(t, large.take(t.Context(), 101), &p)
	require.Equal(t, CodeTooLarge, p.Code)
	require.Contains(t, p.Message, "max-x")
	require.NoError(t, small.take(t.Context(), 1))
	require.ErrorAs(t, small.take(t.Context(), math.MaxInt64), &p)
	small.close()
}

// Requests that take their memory piece by piece, and together need many times what there
// is, all get it: none waits for another that waits for it.
func TestBudgetOfPieces(t *testing.T) {
	const most, one, piece, requests = 100, 50, 5, 40
	b := newBudget("max-x", most, one, time.Hour)
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			a := b.account()
			defer a.close()
			for range one / piece {
				require.NoError(t, a.take(t.Context(), piece))
				left, _ := b.state()
				require.GreaterOrEqual(t, left, int64(0))
			}
		})
	}
	wg.Wait()
	left, waiting := b.state()
	require.EqualValues(t, most, left)
	require.Zero(t, waiting)
	require.Nil(t, b.first)
}

// Whoever would wait too long, by how long memory was held until now, is told at once, and
// for how long; a client that leaves is no longer waited for.
func TestBudgetIsBoundedByItsWait(t *testing.T) {
	b := newBudget("max-x", 100, 0, time.Minute)
	b.held = 10 * time.Minute
	holder, other := b.account(), b.account()
	require.NoError(t, holder.take(t.Context(), 100))
	var p *Problem
	require.ErrorAs(t, other.take(t.Context(), 50), &p)
	require.Equal(t, CodeBusy, p.Code)
	require.Equal(t, 300, p.RetryAfter)
	_, waiting := b.state()
	require.Zero(t, waiting)

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- other.take(ctx, 5) }() // expected to wait for half a minute
	untilWaiting(t, b, 1)
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	_, waiting = b.state()
	require.Zero(t, waiting)

	b.longest = time.Millisecond // what was expected to be short, and was not
	b.held = 0
	err := other.take(t.Context(), 5)
	require.True(t, errors.As(err, &p), err)
	require.Equal(t, CodeBusy, p.Code)
	holder.close()
	require.NoError(t, other.take(t.Context(), 5))
}
