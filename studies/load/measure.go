package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/search"
)

// bench asks the engine and the service the same queries.
type bench struct {
	o        options
	in       *input
	s        *service
	queries  []search.Query
	messages [][]byte
	rng      *rand.Rand

	mu      sync.Mutex
	answers [][]byte // the first to each message, while the collection does not change
}

func measure(ctx context.Context, o options, in *input, stderr io.Writer) (_ *loadReport, err error) {
	s, err := startService(ctx, o, in)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	b := &bench{o: o, in: in, s: s, queries: in.engineQueries(), rng: rand.New(rand.NewPCG(o.seed, 0))}
	for i := range in.queries {
		body, err := in.searchJSON(i, o.batch, o.k)
		if err != nil {
			return nil, err
		}
		b.messages = append(b.messages, message("POST", "/indices/"+collection+"/search", body))
	}
	if o.cpuprofile != "" {
		f, err := os.Create(o.cpuprofile)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	st, err := s.c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	r := &loadReport{
		Documents: st.Documents, Tokens: st.Tokens, Nbits: st.Nbits, Centroids: st.Centroids, Queries: len(in.queries),
		K: o.k, Batch: o.batch, Processors: runtime.GOMAXPROCS(0), Slice: o.slice.Seconds(), Rounds: o.rounds,
	}
	if _, err := b.level(ctx, 2, 1, false); err != nil { // to warm up
		return nil, err
	}
	for _, writing := range []bool{false, true} {
		if writing && o.documents == 0 {
			break
		}
		b.answers = nil
		if !writing {
			b.answers = make([][]byte, len(b.messages))
		}
		for _, n := range o.clients {
			rows, err := b.level(ctx, n, o.rounds, writing)
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				fmt.Fprintf(stderr, "%s, %d clients, writer %v: %.0f a second, %.3f of the engine's %.0f; CPU %.2f ms, the engine's %.2f\n",
					row.Loop, row.Clients, row.Writing, row.Service.Rate, row.Ratio, row.Engine.Rate, row.Service.CPU, row.Engine.CPU)
			}
			r.Rows = append(r.Rows, rows...)
		}
	}
	return r, ctx.Err()
}

// level measures one number of clients: the closed loop, and open ones at shares of
// what that reached.
func (b *bench) level(ctx context.Context, n, rounds int, writing bool) (rows []row, err error) {
	if writing {
		w := startWriter(ctx, b)
		defer func() {
			added, werr := w.stop()
			for i := range rows {
				rows[i].Writer = added
			}
			err = errors.Join(err, werr, b.clean(ctx))
		}()
	}
	var clients []*client
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	var engine, service []ask
	for range n {
		c := &client{address: b.s.address}
		clients = append(clients, c)
		engine = append(engine, func(i int) string { return b.askEngine(ctx, i) })
		service = append(service, func(i int) string { return b.askService(ctx, c, i) })
	}
	measured := func(loop string, drive func(clients []ask) *tally) row {
		var e, s tally
		var ratios []float64
		for range rounds {
			one := drive(engine)
			two := drive(service)
			e.add(one)
			s.add(two)
			if one.rate() > 0 {
				ratios = append(ratios, two.rate()/one.rate())
			}
		}
		r := row{Loop: loop, Clients: n, Writing: writing, Engine: summary(&e), Service: summary(&s)}
		if len(ratios) > 0 {
			slices.Sort(ratios)
			r.Ratio = ratios[len(ratios)/2]
		}
		r.Engine.Rate *= float64(b.o.batch)
		r.Service.Rate *= float64(b.o.batch)
		return r
	}
	rows = append(rows, measured("closed", func(c []ask) *tally { return closed(ctx, c, b.o.slice) }))
	reached := rows[0].Service.Rate / float64(b.o.batch)
	for _, share := range b.o.open {
		if reached <= 0 || ctx.Err() != nil {
			break
		}
		r := measured(fmt.Sprintf("open %g", share), func(c []ask) *tally { return openLoop(ctx, c, share*reached, b.o.slice, b.rng) })
		rows = append(rows, r)
	}
	return rows, ctx.Err()
}

func (b *bench) askEngine(ctx context.Context, i int) string {
	v, err := b.s.c.View(ctx)
	if err != nil {
		return err.Error()
	}
	o := search.Options{K: b.o.k}
	if b.o.batch == 1 {
		_, err = v.Search(ctx, b.queries[i%len(b.queries)], o)
	} else {
		qs := make([]search.Query, b.o.batch)
		for j := range qs {
			qs[j] = b.queries[(i+j)%len(b.queries)]
		}
		_, err = v.SearchBatch(ctx, qs, o)
	}
	if err = errors.Join(err, v.Close()); err != nil {
		return err.Error()
	}
	return ""
}

func (b *bench) askService(ctx context.Context, c *client, i int) string {
	i %= len(b.messages)
	status, body, err := c.do(ctx, b.messages[i])
	if code := code(status, body, err); code != "" {
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

// clean takes away what the writer has added, and waits for a training.
func (b *bench) clean(ctx context.Context) error {
	c := client{address: b.s.address}
	defer c.close()
	err := c.call(ctx, "DELETE", "/indices/"+collection+"/documents", map[string]any{"condition": "added = ?", "parameters": []any{true}}, nil)
	if err != nil {
		return err
	}
	return settled(ctx, b.s.c)
}

// writer adds documents at a steady rate, in updates of a few.
type writer struct {
	end  chan struct{}
	done chan struct{}
	all  tally
	err  error
}

func startWriter(ctx context.Context, b *bench) *writer {
	w := &writer{end: make(chan struct{}), done: make(chan struct{})}
	pace := time.Duration(float64(time.Second) * float64(b.o.group) / float64(b.o.documents))
	go func() {
		defer close(w.done)
		c := client{address: b.s.address}
		defer c.close()
		start := time.Now()
		for n := 0; ; n++ {
			due := start.Add(time.Duration(n) * pace)
			select {
			case <-w.end:
				w.all.span = time.Since(start)
				return
			case <-ctx.Done():
				w.err = ctx.Err()
				return
			case <-time.After(time.Until(due)):
			}
			docs, metadata := make([][]float32, b.o.group), make([]any, b.o.group)
			for i := range docs {
				docs[i] = b.in.docs[(n*b.o.group+i)%len(b.in.docs)]
				metadata[i] = map[string]any{"added": true}
			}
			body, err := updateJSON(docs, b.in.dim, metadata)
			if err != nil {
				w.err = err
				return
			}
			status, answer, err := c.do(ctx, message("POST", "/indices/"+collection+"/update", body))
			if code := code(status, answer, err); code != "" {
				w.all.note(code, 1)
			} else {
				w.all.took = append(w.all.took, time.Since(due))
			}
		}
	}()
	return w
}

func (w *writer) stop() (*figures, error) {
	close(w.end)
	<-w.done
	f := summary(&w.all)
	return &f, w.err
}
