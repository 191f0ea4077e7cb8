package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ask puts request number i and returns "", or what is wrong with the answer. One
// goroutine calls it at a time.
type ask func(i int) (wrong string)

// tally is what became of requests.
type tally struct {
	took  []time.Duration // of those that were answered well
	wrong map[string]int
	span  time.Duration
	cpu   time.Duration // of the whole process
}

func (t *tally) add(o *tally) {
	t.took, t.span, t.cpu = append(t.took, o.took...), t.span+o.span, t.cpu+o.cpu
	for what, n := range o.wrong {
		t.note(what, n)
	}
}

func (t *tally) note(what string, n int) {
	if t.wrong == nil {
		t.wrong = map[string]int{}
	}
	t.wrong[what] += n
}

// rate is requests answered well, a second.
func (t *tally) rate() float64 {
	if t.span == 0 {
		return 0
	}
	return float64(len(t.took)) / t.span.Seconds()
}

// quantile is one of the times, in milliseconds.
func (t *tally) quantile(p float64) float64 {
	if len(t.took) == 0 {
		return 0
	}
	slices.Sort(t.took)
	return milliseconds(t.took[min(int(p*float64(len(t.took))), len(t.took)-1)])
}

// drive lets each client put requests until next says that there are none; next also
// says when a request came into being, and may wait for that.
func drive(clients []ask, next func() (i int, due time.Time, ok bool)) *tally {
	var mu sync.Mutex
	var all tally
	var wg sync.WaitGroup
	start, used := time.Now(), processorTime()
	for _, ask := range clients {
		wg.Go(func() {
			var own tally
			for {
				i, due, ok := next()
				if !ok {
					break
				}
				if wrong := ask(i); wrong != "" {
					own.note(wrong, 1)
				} else {
					own.took = append(own.took, time.Since(due))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(&own)
		})
	}
	wg.Wait()
	all.span, all.cpu = time.Since(start), processorTime()-used
	return &all
}

// closed is a closed loop: each client asks again when it has an answer, for a while.
func closed(ctx context.Context, clients []ask, d time.Duration) *tally {
	var n atomic.Int64
	end := time.Now().Add(d)
	return drive(clients, func() (int, time.Time, bool) {
		now := time.Now()
		return int(n.Add(1) - 1), now, now.Before(end) && ctx.Err() == nil
	})
}

// unsent is what requests count as that no client was free for until twice the time of
// the slice was over.
const unsent = "not sent: no client was free"

// openLoop is an open loop: requests arrive at random, so many a second, for a while,
// and are taken up in their order by clients that are free.
func openLoop(ctx context.Context, clients []ask, perSecond float64, d time.Duration, rng *rand.Rand) *tally {
	var arrivals []time.Duration
	for second := rng.ExpFloat64() / perSecond; second < d.Seconds(); second += rng.ExpFloat64() / perSecond {
		arrivals = append(arrivals, time.Duration(second*float64(time.Second)))
	}
	var n, left atomic.Int64
	start := time.Now()
	all := drive(clients, func() (int, time.Time, bool) {
		i := int(n.Add(1) - 1)
		if i >= len(arrivals) {
			return 0, time.Time{}, false
		}
		due := start.Add(arrivals[i])
		if time.Since(start) > 2*d {
			left.Add(1)
			return 0, due, false
		}
		select {
		case <-ctx.Done():
			return 0, due, false
		case <-time.After(time.Until(due)):
		}
		return i, due, true
	})
	if ctx.Err() == nil {
		// Clients that ended took one each that was not sent; the rest nobody took.
		if rest := int(left.Load()) + max(len(arrivals)-int(n.Load()), 0); rest > 0 {
			all.note(unsent, rest)
		}
	}
	return all
}
