package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// read times reading the lists of the queries in both forms, in turns, beside searches.
func (s *postingsCount) read(ctx context.Context, w io.Writer, m *matrix, k int) (err error) {
	e, err := search.NewAt(ctx, s.snap, &search.EngineOptions{Threads: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	probes := map[int]int{10: 8, 100: 24}[k] // as derived
	var lists []uint32
	var stats search.Stats
	var searching time.Duration
	query := s.snap.Scorer().NewQuery()
	for i, q := range m.queries() {
		start := processorTime()
		r, err := e.Search(ctx, q, search.Options{K: k, Probes: probes})
		if err != nil {
			return err
		}
		searching += processorTime() - start
		stats.Add(r.Stats)
		if err := query.Reset(m.rows(i), nil); err != nil {
			return err
		}
		query.CentroidScores(0, s.snap.Header().Centroids)
		query.Seal()
		top := make([]kernels.CentroidScore, query.Len()*probes)
		query.Top(top, probes)
		for _, c := range top {
			lists = append(lists, c.Centroid)
		}
	}
	var took [2]time.Duration
	var read [2]int
	var docs []uint32
	for range 10 {
		for form := range took {
			start := processorTime()
			for _, c := range lists {
				if docs, err = s.list(docs[:0], c, form); err != nil {
					return err
				}
				read[form] += len(docs)
			}
			took[form] += processorTime() - start
		}
	}
	if read[0] != read[1] {
		return fmt.Errorf("%d and %d postings", read[0], read[1])
	}
	ns := func(form int) float64 { return float64(took[form].Nanoseconds()) / float64(read[form]) }
	n := float64(stats.Queries)
	each := float64(read[0]) / 10 / n
	_, err = fmt.Fprintf(w, "| %d | %.0f | %.2f | %.2f | %.0f | %.0f | %.0f %% |\n", k, each, ns(0), ns(1),
		each*ns(0)/1e3, float64(searching.Nanoseconds())/1e3/n, 100*float64(stats.Times.Probe)/float64(stats.Times.Total))
	return err
}

// list reads one as it is stored (form 0) or packed (1).
func (s *postingsCount) list(dst []uint32, c uint32, form int) ([]uint32, error) {
	docs := uint32(s.snap.State().Docs)
	if form == 1 && s.packed[c] == nil {
		return dst, nil
	}
	if form == 1 {
		return unpackList(dst, s.packed[c], docs)
	}
	list, err := s.snap.Postings(0, c)
	if err != nil {
		return nil, err
	}
	var cur storage.PostingCursor
	if cur, err = list.Cursor(); err != nil {
		return nil, err
	}
	for !cur.Done() {
		if dst, err = cur.Next(dst, docs); err != nil {
			return nil, err
		}
	}
	return dst, nil
}
