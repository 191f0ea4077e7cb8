package main

import (
	"slices"

	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// cells are the scores of a query's candidates, a row of query tokens each.
type cells struct {
	width         int       // query tokens
	exact, approx []float32 // [candidates, query tokens], best approximate score first
	relevant      int       // the k best of all documents
	wanted        []bool    // which of the candidates these are
	tokens        int64     // of the candidates
}

func (c *cells) len() int { return len(c.wanted) }

// candidates computes the cells of the n best documents by centroids.
func (s *cellStudy) candidates(rows []float32, dim, n int, truth []search.Hit) (*cells, error) {
	live, _ := s.snap.LiveSet()
	var pool []topk.Scored
	err := s.score(rows, nil, func(ch *kernels.Chunk, first uint32, _ []uint32) {
		sums := make([]float32, ch.Docs())
		s.query.Approx(sums, ch, nil)
		for d, sum := range sums {
			if doc := first + uint32(d); live[doc/64]>>(doc%64)&1 == 1 {
				pool = append(pool, topk.Scored{Doc: doc, Score: sum})
			}
		}
	})
	if err != nil {
		return nil, err
	}
	pool = topk.Best(pool, n)
	set, place := make([]uint64, len(live)), make(map[uint32]int, len(pool))
	slices.SortFunc(pool, topk.Order)
	c := &cells{width: len(rows) / dim, relevant: len(truth), wanted: make([]bool, len(pool))}
	for i, p := range pool {
		set[p.Doc/64] |= 1 << (p.Doc % 64)
		place[p.Doc] = i
	}
	for _, hit := range truth {
		if i, ok := place[hit.Ordinal]; ok {
			c.wanted[i] = true
		}
	}
	c.exact, c.approx = make([]float32, len(pool)*c.width), make([]float32, len(pool)*c.width)
	return c, s.score(rows, set, func(ch *kernels.Chunk, first uint32, docs []uint32) {
		centroids, stride := s.query.Scores()
		maxima, one := make([]float64, c.width), make([]float64, c.width)
		for _, d := range docs {
			at := place[first+d] * c.width
			exact, approx := c.exact[at:][:c.width], c.approx[at:][:c.width]
			lo, hi := int(ch.Offsets[d]), int(ch.Offsets[d+1])
			c.tokens += int64(hi - lo)
			s.query.Maxima(maxima, ch, lo, hi, kernels.Fine)
			for t, m := range maxima {
				one[t] = m
				exact[t] = s.query.Total(one, kernels.Fine)
				one[t], approx[t] = 0, -2
			}
			for i := lo; i < hi; i++ {
				for t, v := range centroids[int(ch.Code(i))*stride:][:c.width] {
					approx[t] = max(approx[t], v)
				}
			}
		}
	})
}

// score prepares the query and hands out the documents of a set, a chunk at a time.
func (s *cellStudy) score(rows []float32, set []uint64, each func(ch *kernels.Chunk, first uint32, docs []uint32)) error {
	if err := s.query.Reset(rows, nil); err != nil {
		return err
	}
	s.query.CentroidScores(0, s.snap.Header().Centroids)
	s.query.Seal()
	for i := range s.snap.Chunks() {
		ch, err := s.snap.Chunk(i, storage.All)
		if err != nil {
			return err
		}
		first, _ := s.snap.ChunkDocs(i)
		var docs []uint32
		for d := range uint32(ch.Docs()) {
			if set != nil && set[(first+d)/64]>>((first+d)%64)&1 == 1 {
				docs = append(docs, d)
			}
		}
		if set == nil || len(docs) > 0 {
			each(ch, first, docs)
		}
	}
	return nil
}
