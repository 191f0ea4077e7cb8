package main

import (
	"context"
	"math"
	"runtime"
	"sync"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// scoreTable holds a score for each query and document; that of an empty document is
// −Inf.
type scoreTable struct {
	docs   int
	scores []float32
}

func (t *scoreTable) row(query int) []float32 { return t.scores[query*t.docs : (query+1)*t.docs] }

func (s *codecComparison) newTable() *scoreTable {
	return &scoreTable{len(s.docs.ids), make([]float32, len(s.queries.ids)*len(s.docs.ids))}
}

// exactScores gives MaxSim over the vectors as they are.
func (s *codecComparison) exactScores(ctx context.Context) (*scoreTable, error) {
	t := s.newTable()
	backend, err := maxsim.Select(s.train.Backend.Name())
	if err != nil {
		return nil, err
	}
	err = backend.Score(ctx, &maxsim.Call{
		Q: s.queries.batch(), D: s.docs.batch(), Scores: t.scores, Terms: maxsim.Terms{Threads: runtime.GOMAXPROCS(0)},
	})
	s.withoutEmpty(t)
	return t, err
}

// storedScores gives MaxSim over encoded documents, to the precision of float32
// sums.
func (s *codecComparison) storedScores(ctx context.Context, k *kernels.Codec, ch *kernels.Chunk) (*scoreTable, error) {
	t := s.newTable()
	scorer, err := s.train.Backend.Scorer(k)
	if err != nil {
		return nil, err
	}
	pool := sync.Pool{New: func() any { return scorer.NewQuery() }}
	err = parallel.Do(ctx, len(s.queries.ids), runtime.GOMAXPROCS(0), func(i int) error {
		q := pool.Get().(kernels.Query)
		defer pool.Put(q)
		if err := q.Reset(s.queries.rows(i), nil); err != nil {
			return err
		}
		q.CentroidScores(0, k.Centroids.K)
		q.Seal()
		q.MaxSim(t.row(i), ch, nil, kernels.Fine)
		return nil
	})
	s.withoutEmpty(t)
	return t, err
}

// withoutEmpty puts documents without tokens behind all others.
func (s *codecComparison) withoutEmpty(t *scoreTable) {
	for i := range t.scores {
		if doc := i % t.docs; s.docs.offsets[doc] == s.docs.offsets[doc+1] {
			t.scores[i] = float32(math.Inf(-1))
		}
	}
}
