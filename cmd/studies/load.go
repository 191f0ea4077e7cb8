package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/search"
)

// loadOptions are the options of the study of load: how many queries a second the service answers
// for many clients, how long the answers take, and how much of that time is the engine's. The
// engine answers the same queries in the same process, in turns with the service, on as many
// goroutines as there are clients.
//
// In the closed loop each client sends the next query when it has an answer. In the open loop
// queries arrive at random at a fixed rate (a Poisson process), however long the answers take. The
// time of a query counts from its arrival, so a query that waits for a free client is late.
//
// The clients run in the process of the service and use part of its processors. They keep their
// connections, send vectors as base64, and, while the collection does not change, compare each
// answer byte by byte with the first one to the same query.
type loadOptions struct {
	data    string
	clients []int
	// open are rates of the open loop, as shares of the throughput of the closed loop.
	open     []float64
	slice    time.Duration
	rounds   int
	k, batch int
	// documents is the number of documents a second that the writer adds.
	documents int
	// group is the number of documents of one update.
	group int
	seed  uint64
}

// loadStudy registers the flags of the study of load.
func loadStudy(f *flag.FlagSet) measureFunc {
	var o loadOptions
	clients := numbers(f, "clients", 1, "numbers of clients", 2, 8, 32, 200)
	open := numbers(f, "open", 0, "rates of the open loop, as shares of what the closed loop reached (0: none)", 0.5,
		0.8)
	f.StringVar(&o.data, "data", "", "folder of the collection, which is made if it is not there, and kept "+
		"(empty: a temporary one)")
	f.DurationVar(&o.slice, "slice", 2*time.Second, "how long the engine, and then the service, is asked in a round")
	f.IntVar(&o.rounds, "rounds", 5, "rounds")
	f.IntVar(&o.k, "k", 10, "how many documents to search for")
	f.IntVar(&o.batch, "batch", 1, "queries of one request")
	f.IntVar(&o.documents, "documents", 50, "documents a second that the writer adds (0: measure without a writer "+
		"only)")
	f.IntVar(&o.group, "group", 10, "documents of one update")
	f.Uint64Var(&o.seed, "seed", 1, "what decides the arrivals")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		if min(o.rounds, o.k, o.batch, o.group) < 1 || o.documents < 0 || o.slice <= 0 {
			return errors.New("want rounds, k, batch, group and slice above zero, and nothing negative")
		}
		o.clients, o.open = *clients, *open
		if o.data == "" {
			if o.data, err = os.MkdirTemp("", "plaid-load-"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(o.data)) }()
		}
		report, err := measureLoad(ctx, &o, args[0], stderr)
		if err != nil {
			return err
		}
		return report.writeTable(stdout)
	}
}

// loadBench sends the same queries to the engine and to the service.
type loadBench struct {
	options  *loadOptions
	input    *loadInput
	service  *service
	queries  []search.Query
	messages [][]byte
	rng      *rand.Rand

	mu sync.Mutex
	// answers are the first answers to each message, or nil while the collection changes.
	answers [][]byte
}

// measureLoad starts the service and measures all numbers of clients, without and with a writer.
func measureLoad(ctx context.Context, o *loadOptions, dir string, stderr io.Writer) (_ *loadReport, err error) {
	input, err := openLoad(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, input.src.Close()) }()
	s, err := startService(ctx, o, input)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	bench := &loadBench{
		options: o,
		input:   input,
		service: s,
		queries: input.queries.queries(),
		rng:     rand.New(rand.NewPCG(o.seed, 0)),
	}
	for i := range bench.queries {
		body, err := input.searchJSON(i, o.batch, o.k)
		if err != nil {
			return nil, err
		}
		bench.messages = append(bench.messages, httpMessage("POST", "/indices/"+loadName+"/search", body))
	}
	st, err := s.collection.Stats(ctx)
	if err != nil {
		return nil, err
	}
	r := &loadReport{
		loadOptions: o,
		stats:       st,
		queries:     len(bench.queries),
		processors:  parallel.Processors(),
	}
	if _, err := bench.measureClients(ctx, 2, 1, false); err != nil { // warm up
		return nil, err
	}
	for _, writing := range []bool{false, true} {
		if writing && o.documents == 0 {
			break
		}
		bench.answers = nil
		if !writing {
			bench.answers = make([][]byte, len(bench.messages))
		}
		for _, n := range o.clients {
			rows, err := bench.measureClients(ctx, n, o.rounds, writing)
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				fmt.Fprintf(stderr, "%s, %d clients, writer %v: %.0f a second, %.3f of the engine's %.0f; CPU "+
					"%.2f ms, the engine's %.2f\n",
					row.loop, row.clients, row.writing, row.service.rate, row.ratio, row.engine.rate, row.service.cpu,
					row.engine.cpu)
			}
			r.rows = append(r.rows, rows...)
		}
	}
	return r, ctx.Err()
}

// measureClients measures one number of clients: the closed loop, and open loops at shares of its
// rate.
func (b *loadBench) measureClients(ctx context.Context, n, rounds int, writing bool) (rows []loadRow, err error) {
	if writing {
		w := startWriter(ctx, b)
		defer func() {
			added, werr := w.finish()
			for i := range rows {
				rows[i].writer = added
			}
			err = errors.Join(err, werr, deleteAdded(ctx, b.service.collection))
		}()
	}
	var engine, service []sendFunc
	for range n {
		c := &client{address: b.service.address}
		defer c.close()
		engine = append(engine, func(i int) string { return b.askEngine(ctx, i) })
		service = append(service, func(i int) string { return b.askService(ctx, c, i) })
	}
	measureLoop := func(loop string, runLoop func(clients []sendFunc) *tally) loadRow {
		var engineTally, serviceTally tally
		var ratios []float64
		for range rounds {
			fromEngine, fromService := runLoop(engine), runLoop(service)
			engineTally.add(fromEngine)
			serviceTally.add(fromService)
			if fromEngine.perSecond() > 0 {
				ratios = append(ratios, fromService.perSecond()/fromEngine.perSecond())
			}
		}
		r := loadRow{
			loop:    loop,
			clients: n,
			writing: writing,
			engine:  summarize(&engineTally),
			service: summarize(&serviceTally),
		}
		if len(ratios) > 0 {
			slices.Sort(ratios)
			r.ratio = ratios[len(ratios)/2]
		}
		r.engine.rate *= float64(b.options.batch)
		r.service.rate *= float64(b.options.batch)
		return r
	}
	rows = append(rows, measureLoop("closed", func(c []sendFunc) *tally { return closedLoop(ctx, c, b.options.slice) }))
	closedRate := rows[0].service.rate / float64(b.options.batch)
	for _, share := range b.options.open {
		if share*closedRate <= 0 || ctx.Err() != nil {
			break
		}
		rows = append(rows, measureLoop(fmt.Sprintf("open %g", share), func(c []sendFunc) *tally {
			return openLoop(ctx, c, share*closedRate, b.options.slice, b.rng)
		}))
	}
	return rows, ctx.Err()
}

// askEngine searches with the engine, beginning at query i, and returns the error's text, or "".
func (b *loadBench) askEngine(ctx context.Context, i int) string {
	v, err := b.service.collection.Snapshot(ctx)
	if err != nil {
		return err.Error()
	}
	qs := make([]search.Query, b.options.batch)
	for j := range qs {
		qs[j] = b.queries[(i+j)%len(b.queries)]
	}
	_, err = v.Search(ctx, qs, search.Options{K: b.options.k})
	if err = errors.Join(err, v.Close()); err != nil {
		return err.Error()
	}
	return ""
}

// askService sends message i to the service and returns the fault of the answer, or "".
func (b *loadBench) askService(ctx context.Context, c *client, i int) string {
	i %= len(b.messages)
	status, body, err := c.roundTrip(ctx, b.messages[i])
	if code := answerFault(status, body, err); code != "" {
		return code
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.answers == nil:
	case b.answers[i] == nil:
		b.answers[i] = body
	case !bytes.Equal(b.answers[i], body):
		return "another answer than the first"
	}
	return ""
}

// writer adds documents at a steady rate, a few in each update.
type writer struct {
	stopping chan struct{}
	wg       sync.WaitGroup
	sent     tally
	err      error
}

// startWriter starts a writer, which [writer.finish] stops.
func startWriter(ctx context.Context, b *loadBench) *writer {
	w := &writer{stopping: make(chan struct{})}
	w.wg.Go(func() { w.err = w.write(ctx, b) })
	return w
}

// write sends updates until the writer is stopped.
func (w *writer) write(ctx context.Context, b *loadBench) error {
	c := client{address: b.service.address}
	defer c.close()
	pace := time.Duration(float64(time.Second) * float64(b.options.group) / float64(b.options.documents))
	start := time.Now()
	for n := 0; ; n++ {
		due := start.Add(time.Duration(n) * pace)
		select {
		case <-w.stopping:
			w.sent.span = time.Since(start)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(due)):
		}
		body, err := b.input.updateJSON(n*b.options.group, b.options.group)
		if err != nil {
			return err
		}
		status, answer, err := c.roundTrip(ctx, httpMessage("POST", "/indices/"+loadName+"/update", body))
		if code := answerFault(status, answer, err); code != "" {
			w.sent.countFault(code, 1)
		} else {
			w.sent.durations = append(w.sent.durations, time.Since(due))
		}
	}
}

// finish stops the writer and returns the figures of its updates.
func (w *writer) finish() (*figures, error) {
	close(w.stopping)
	w.wg.Wait()
	f := summarize(&w.sent)
	return &f, w.err
}
