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

// sendFunc puts request number i and returns "", or what is wrong with the answer. One
// goroutine calls it at a time.
type sendFunc func(i int) (wrong string)

// tally is what became of requests.
type tally struct {
	durations []time.Duration // of those that were answered well
	faults    map[string]int
	span      time.Duration
	cpu       time.Duration // of the whole process
}

func (t *tally) add(o *tally) {
	t.durations, t.span, t.cpu = append(t.durations, o.durations...), t.span+o.span, t.cpu+o.cpu
	for fault, n := range o.faults {
		t.countFault(fault, n)
	}
}

func (t *tally) countFault(fault string, n int) {
	if t.faults == nil {
		t.faults = map[string]int{}
	}
	t.faults[fault] += n
}

// perSecond is requests answered well, a second.
func (t *tally) perSecond() float64 {
	if t.span == 0 {
		return 0
	}
	return float64(len(t.durations)) / t.span.Seconds()
}

// quantile is one of the times, in milliseconds.
func (t *tally) quantile(p float64) float64 {
	if len(t.durations) == 0 {
		return 0
	}
	slices.Sort(t.durations)
	return milliseconds(t.durations[min(int(p*float64(len(t.durations))), len(t.durations)-1)])
}

// runClients lets each client put requests until next says that there are none; next also
// says when a request came into being, and may wait for that.
func runClients(clients []sendFunc, next func() (i int, due time.Time, ok bool)) *tally {
	var mu sync.Mutex
	var total tally
	var wg sync.WaitGroup
	start, usedBefore := time.Now(), processorTime()
	for _, ask := range clients {
		wg.Go(func() {
			var clientTally tally
			for {
				i, due, ok := next()
				if !ok {
					break
				}
				if wrong := ask(i); wrong != "" {
					clientTally.countFault(wrong, 1)
				} else {
					clientTally.durations = append(clientTally.durations, time.Since(due))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(&clientTally)
		})
	}
	wg.Wait()
	total.span, total.cpu = time.Since(start), processorTime()-usedBefore
	return &total
}

// closedLoop is a closed loop: each client asks again when it has an answer, for a while.
func closedLoop(ctx context.Context, clients []sendFunc, d time.Duration) *tally {
	var n atomic.Int64
	end := time.Now().Add(d)
	return runClients(clients, func() (int, time.Time, bool) {
		now := time.Now()
		return int(n.Add(1) - 1), now, now.Before(end) && ctx.Err() == nil
	})
}

// unsent is what requests count as that no client was free for until twice the time of
// the slice was over.
const unsent = "not sent: no client was free"

// openLoop is an open loop: requests arrive at random, so many a second, for a while,
// and are taken up in their order by clients that are free.
func openLoop(ctx context.Context, clients []sendFunc, perSecond float64, d time.Duration, rng *rand.Rand) *tally {
	var arrivals []time.Duration
	for second := rng.ExpFloat64() / perSecond; second < d.Seconds(); second += rng.ExpFloat64() / perSecond {
		arrivals = append(arrivals, time.Duration(second*float64(time.Second)))
	}
	var n, skipped atomic.Int64
	start := time.Now()
	total := runClients(clients, func() (int, time.Time, bool) {
		i := int(n.Add(1) - 1)
		if i >= len(arrivals) {
			return 0, time.Time{}, false
		}
		due := start.Add(arrivals[i])
		if time.Since(start) > 2*d {
			skipped.Add(1)
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
		if unsentCount := int(skipped.Load()) + max(len(arrivals)-int(n.Load()), 0); unsentCount > 0 {
			total.countFault(unsent, unsentCount)
		}
	}
	return total
}

// figures are of the requests of a row; times are in milliseconds.
type figures struct {
	requests               int
	rate                   float64 // a second
	p50, p90, p99, slowest float64
	// cpu is processor time of the whole process, clients and writer with it, for each
	// request; what others do on the machine changes it little.
	cpu    float64
	errors map[string]int
}

func summarize(t *tally) figures {
	return figures{
		requests: len(t.durations),
		rate:     t.perSecond(),
		p50:      t.quantile(0.5),
		p90:      t.quantile(0.9),
		p99:      t.quantile(0.99),
		slowest:  t.quantile(1),
		cpu:      milliseconds(t.cpu) / float64(max(len(t.durations), 1)),
		errors:   t.faults,
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

func (r *loadReport) writeTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d documents, %d tokens, %d bits, %d centroids; %d queries, %d in a request, k = %d; %d "+
		"processors; %d rounds of 2 × %v\n\n",
		r.stats.Documents, r.stats.Tokens, r.stats.Nbits, r.stats.Centroids, r.queries, r.batch, r.k, r.processors,
		r.rounds, r.slice)
	b.WriteString("| loop | clients | writer | engine, queries a second | service | share | engine CPU ms | " +
		"service | engine p50 ms | p99 | service p50 ms | p90 | p99 | most | errors |\n")
	b.WriteString("|:--|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|\n")
	for _, row := range r.rows {
		e, s := &row.engine, &row.service
		writer, errs := "", listFaults("", s.errors)+listFaults("engine: ", e.errors)
		if f := row.writer; f != nil {
			writer = fmt.Sprintf("%d updates, p50 %.0f ms, p99 %.0f ms", f.requests, f.p50, f.p99)
			errs += listFaults("writer: ", f.errors)
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %.0f | %.0f | %.3f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | "+
			"%.2f | %s |\n",
			row.loop, row.clients, writer, e.rate, s.rate, row.ratio, e.cpu, s.cpu, e.p50, e.p99, s.p50, s.p90, s.p99,
			s.slowest, errs)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// listFaults lists errors by code.
func listFaults(prefix string, errs map[string]int) (list string) {
	for _, fault := range slices.Sorted(maps.Keys(errs)) {
		list += fmt.Sprintf("%s%d × %s; ", prefix, errs[fault], fault)
	}
	return list
}
