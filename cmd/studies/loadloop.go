package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/collection"
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

// figures are of the requests of a row; times are in milliseconds.
type figures struct {
	requests            int
	rate                float64 // a second
	p50, p90, p99, most float64
	// cpu is processor time of the whole process, clients and writer with it, for each
	// request; what others do on the machine changes it little.
	cpu    float64
	errors map[string]int
}

func summary(t *tally) figures {
	return figures{
		requests: len(t.took), rate: t.rate(), p50: t.quantile(0.5), p90: t.quantile(0.9), p99: t.quantile(0.99), most: t.quantile(1),
		cpu: milliseconds(t.cpu) / float64(max(len(t.took), 1)), errors: t.wrong,
	}
}

// loadRow is one loop with one number of clients. Rates are of queries.
type loadRow struct {
	loop            string
	clients         int
	writing         bool
	engine, service figures
	ratio           float64 // median of the rounds
	writer          *figures
}

// loadReport is what the service reaches.
type loadReport struct {
	*loadOptions
	stats               collection.Stats
	queries, processors int
	rows                []loadRow
}

func (r *loadReport) table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d documents, %d tokens, %d bits, %d centroids; %d queries, %d in a request, k = %d; %d processors; %d rounds of 2 × %v\n\n",
		r.stats.Documents, r.stats.Tokens, r.stats.Nbits, r.stats.Centroids, r.queries, r.batch, r.k, r.processors, r.rounds, r.slice)
	b.WriteString("| loop | clients | writer | engine, queries a second | service | share | engine CPU ms | service | engine p50 ms | p99 | service p50 ms | p90 | p99 | most | errors |\n")
	b.WriteString("|:--|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|\n")
	for _, row := range r.rows {
		e, s := &row.engine, &row.service
		writer, errs := "", joined("", s.errors)+joined("engine: ", e.errors)
		if f := row.writer; f != nil {
			writer = fmt.Sprintf("%d updates, p50 %.0f ms, p99 %.0f ms", f.requests, f.p50, f.p99)
			errs += joined("writer: ", f.errors)
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %.0f | %.0f | %.3f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %s |\n",
			row.loop, row.clients, writer, e.rate, s.rate, row.ratio, e.cpu, s.cpu, e.p50, e.p99, s.p50, s.p90, s.p99, s.most, errs)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// joined lists errors by code.
func joined(whose string, errs map[string]int) (all string) {
	for _, what := range slices.Sorted(maps.Keys(errs)) {
		all += fmt.Sprintf("%s%d × %s; ", whose, errs[what], what)
	}
	return all
}
