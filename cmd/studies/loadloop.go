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

// sendFunc sends request number i and returns "", or the fault of the answer. It is called
// from one goroutine at a time.
type sendFunc func(i int) (wrong string)

// tally counts the outcomes of requests.
type tally struct {
	// durations are the times of the requests with good answers.
	durations []time.Duration
	faults    map[string]int
	span      time.Duration
	// cpu is the processor time of the whole process.
	cpu time.Duration
}

// add adds the counts of another tally.
func (t *tally) add(o *tally) {
	t.durations, t.span, t.cpu = append(t.durations, o.durations...), t.span+o.span, t.cpu+o.cpu
	for fault, n := range o.faults {
		t.countFault(fault, n)
	}
}

// countFault counts n answers with a fault.
func (t *tally) countFault(fault string, n int) {
	if t.faults == nil {
		t.faults = map[string]int{}
	}
	t.faults[fault] += n
}

// perSecond returns the number of good answers a second.
func (t *tally) perSecond() float64 {
	if t.span == 0 {
		return 0
	}
	return float64(len(t.durations)) / t.span.Seconds()
}

// quantile returns a quantile of the times, in milliseconds.
func (t *tally) quantile(p float64) float64 {
	if len(t.durations) == 0 {
		return 0
	}
	slices.Sort(t.durations)
	return milliseconds(t.durations[min(int(p*float64(len(t.durations))), len(t.durations)-1)])
}

// runClients lets each client send requests until next returns false. next returns the number of a
// request and the time at which it is due, and may wait for that.
func runClients(clients []sendFunc, next func() (i int, due time.Time, ok bool)) *tally {
	var mu sync.Mutex
	var total tally
	var wg sync.WaitGroup
	start, usedBefore := time.Now(), processorTime()
	for _, send := range clients {
		wg.Go(func() {
			var clientTally tally
			for {
				i, due, ok := next()
				if !ok {
					break
				}
				if wrong := send(i); wrong != "" {
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

// closedLoop sends requests for the time d: each client sends the next one when it has an answer.
func closedLoop(ctx context.Context, clients []sendFunc, d time.Duration) *tally {
	var n atomic.Int64
	end := time.Now().Add(d)
	return runClients(clients, func() (int, time.Time, bool) {
		now := time.Now()
		return int(n.Add(1) - 1), now, now.Before(end) && ctx.Err() == nil
	})
}

// unsent is the fault of a request that no client was free for, until twice the time of the loop
// was over.
const unsent = "not sent: no client was free"

// openLoop sends requests that arrive at random during the time d, at a mean rate. Clients that are
// free send them in their order.
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
		// Each client that ended has taken one request that was not sent; the others were not taken.
		if unsentCount := int(skipped.Load()) + max(len(arrivals)-int(n.Load()), 0); unsentCount > 0 {
			total.countFault(unsent, unsentCount)
		}
	}
	return total
}

// figures are the results for the requests of a row. Times are in milliseconds.
type figures struct {
	requests int
	// rate counts good answers a second.
	rate                   float64
	p50, p90, p99, slowest float64
	// cpu is the processor time of the whole process for each request, including clients and
	// writer. Other work on the machine changes it little.
	cpu    float64
	errors map[string]int
}

// summarize computes the figures of a tally.
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

// loadRow is the result of one loop with one number of clients. Rates count queries.
type loadRow struct {
	loop            string
	clients         int
	writing         bool
	engine, service figures
	// ratio is the median over the rounds of the service's rate divided by the engine's.
	ratio  float64
	writer *figures
}

// loadReport is the result of the study.
type loadReport struct {
	*loadOptions
	stats               collection.Stats
	queries, processors int
	rows                []loadRow
}

// writeTable writes the result as a table.
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

// listFaults lists faults with their counts, each after a prefix.
func listFaults(prefix string, errs map[string]int) (list string) {
	for _, fault := range slices.Sorted(maps.Keys(errs)) {
		list += fmt.Sprintf("%s%d × %s; ", prefix, errs[fault], fault)
	}
	return list
}
