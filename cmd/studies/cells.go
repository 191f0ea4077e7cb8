package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
)

// cellsStudy compares rules that say which scores of candidates and query tokens are
// computed exactly: whole documents, as the engine does, and cell by cell.
func cellsStudy(f *flag.FlagSet) measuring {
	queries := f.Int("queries", 100, "use the first `N` queries")
	wanted := f.Float64("recall", 0.995, "the recall that a rule must have")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		snap, done, err := openedIndex(ctx, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
		e, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: 1})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		m, err := readQueries(ctx, args[1], *queries)
		if err != nil {
			return err
		}
		s := &cellStudy{snap: snap, engine: e, query: snap.Scorer().NewQuery(), cost: map[int]*kernelTime{}}
		for _, n := range groups {
			for i := range min(len(m.ids), 10) {
				if err := s.time(m.rows(i), m.dim, n); err != nil {
					return err
				}
			}
		}
		fmt.Fprintln(stdout, "| k | rule | relaxation | recall | candidates | touched | cells % | kernel ms |\n|--:|:--|--:|--:|--:|--:|--:|--:|")
		for _, k := range []int{10, 100} {
			if err := s.collect(ctx, m, k); err != nil {
				return err
			}
			for _, r := range rules {
				s.report(stdout, r, k, *wanted)
			}
		}
		fmt.Fprintf(stdout, "\nns a document token, backend %s:\n", snap.Backend())
		for _, n := range groups {
			fmt.Fprintf(stdout, "%d query tokens: %.2f\n", n, s.cost[n].mean())
		}
		return nil
	}
}

// groups are how many query tokens are scored together.
var groups = []int{1, 8, 32}

type cellStudy struct {
	snap   *index.Snapshot
	engine *search.Engine
	query  kernels.Query
	all    []*cells
	cost   map[int]*kernelTime // of so many query tokens at once
}

// kernelTime is processor time of MaxSim, level Fine.
type kernelTime struct {
	tokens int64
	spent  time.Duration
}

func (t *kernelTime) mean() float64 { return float64(t.spent.Nanoseconds()) / float64(t.tokens) }

// collect gives each query as many candidates as the engine scores by centroids, the best
// of all by that.
func (s *cellStudy) collect(ctx context.Context, m *matrix, k int) error {
	s.all = nil
	for i, q := range m.queries() {
		o := quality.Setting{}.Options(k)
		found, err := s.engine.Search(ctx, q, o)
		if err != nil {
			return err
		}
		o.Mode = search.Exhaustive
		truth, err := s.engine.Search(ctx, q, o)
		if err != nil {
			return err
		}
		c, err := s.candidates(m.rows(i), m.dim, int(found.Stats.ApproxDocs), truth.Hits)
		if err != nil {
			return err
		}
		s.all = append(s.all, c)
	}
	return nil
}

// time is what it costs to score all documents for the first so many query tokens.
func (s *cellStudy) time(rows []float32, dim, n int) error {
	c := s.cost[n]
	if c == nil {
		c = new(kernelTime)
		s.cost[n] = c
	}
	return s.score(rows[:n*dim], nil, func(ch *kernels.Chunk, _ uint32, _ []uint32) {
		dst := make([]float32, ch.Docs())
		s.query.MaxSim(dst, ch, []uint32{0}, kernels.Fine) // makes tables
		start := processorTime()
		s.query.MaxSim(dst, ch, nil, kernels.Fine)
		c.spent += processorTime() - start
		c.tokens += int64(ch.Tokens())
	})
}
