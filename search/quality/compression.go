package quality

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// ErrOriginals reports vectors that are not those that the index was built from.
var ErrOriginals = errors.New("not the vectors that the index was made from")

// Compression is the loss by the codec: exhaustive search over the stored vectors against exact
// MaxSim over the original ones. It does not depend on pruning, see [Recall].
type Compression struct {
	K       int                `json:"k"`       // documents compared for each query
	Queries []QueryCompression `json:"queries"` // in the order of the queries
	// Scores is the number of pairs of a query and a document that RMSE and Bias cover: the exact K
	// best of each query. RMSE is the root mean square of stored score minus exact score, Bias the
	// mean.
	Scores int     `json:"scores"`
	RMSE   float64 `json:"score_rmse"`
	Bias   float64 `json:"score_bias"`
	// Docs is how many documents were compared. Skipped counts originals that the index lacks,
	// Reshaped documents that have another number of tokens in the index.
	Docs     int `json:"docs"`
	Skipped  int `json:"passed_over"`
	Reshaped int `json:"reshaped"`
}

// QueryCompression is one query of [Compression].
type QueryCompression struct {
	Exact  []search.Hit // over the original vectors
	Stored []search.Hit // over the stored ones
}

// Overlap returns the mean share of the exact k best that are among the stored k best, or 1 if
// there are no queries. k is at most c.K.
func (c *Compression) Overlap(k int) float64 {
	if len(c.Queries) == 0 {
		return 1
	}
	sum := 0.0
	for i := range c.Queries {
		sum += c.Queries[i].Overlap(k)
	}
	return sum / float64(len(c.Queries))
}

// Overlap returns the share for one query.
func (q *QueryCompression) Overlap(k int) float64 {
	return shareFound(q.Stored[:min(k, len(q.Stored))], q.Exact[:min(k, len(q.Exact))])
}

// MeasureCompression compares exhaustive search over the stored vectors, to depth k, with exact
// MaxSim over originals. It reads the originals once, in order, and matches them by id. Products
// are float32, sums over query tokens float64. It uses twice the memory of the queries, and about
// 32 MiB. reference is as in [MeasureRecall].
//
// Errors: [ErrReference] if the reference has another number of queries, [ErrOriginals] if a
// document of the index is not among the originals or their dimension differs, and errors of the
// source.
func MeasureCompression(
	ctx context.Context, e *search.Engine, snap *index.Snapshot, qs []search.Query, originals vectors.Source, k int,
	reference [][]search.Hit, progress Progress,
) (c *Compression, err error) {
	defer storage.Guard(snap.Path(), &err)()
	engine := e.At(snap)
	threads, err := threadCount(ctx, engine)
	if err != nil {
		return nil, err
	}
	if reference == nil {
		if reference, err = Reference(ctx, engine, qs, k, progress); err != nil {
			return nil, err
		}
	}
	if err := checkReference(qs, k, reference); err != nil {
		return nil, err
	}
	c = &Compression{K: k, Queries: make([]QueryCompression, len(qs))}
	x, err := newExactSearch(snap, threads, qs, k, defaultSizes)
	if err != nil {
		return nil, err
	}
	exact, err := x.run(ctx, originals, c, progress)
	if err != nil {
		return nil, err
	}
	for i := range qs {
		c.Queries[i] = QueryCompression{Exact: exact[i], Stored: reference[i][:min(k, len(reference[i]))]}
	}
	return c, c.compareScores(ctx, engine, threads, qs)
}

// compareScores computes RMSE and Bias over the exact best documents.
func (c *Compression) compareScores(ctx context.Context, engine *search.Engine, threads int, qs []search.Query) error {
	sums := make([][2]float64, len(qs))
	err := parallel.Do(ctx, len(qs), threads, func(i int) error {
		exactHits := c.Queries[i].Exact
		if len(exactHits) == 0 {
			return nil
		}
		o := search.Options{K: len(exactHits), Mode: search.Candidates, Candidates: make([]string, len(exactHits))}
		scores := make(map[string]float64, len(exactHits))
		for j, h := range exactHits {
			o.Candidates[j] = h.ID
			scores[h.ID] = float64(h.Score)
		}
		r, err := engine.Search(ctx, qs[i], o)
		if err != nil {
			return &search.QueryError{Index: i, Err: err}
		}
		for _, h := range r.Hits {
			d := float64(h.Score) - scores[h.ID]
			sums[i][0] += d
			sums[i][1] += d * d
		}
		return nil
	})
	if err != nil {
		return err
	}
	var sum, square float64
	for i, s := range sums {
		c.Scores += len(c.Queries[i].Exact)
		sum += s[0]
		square += s[1]
	}
	if c.Scores > 0 {
		c.Bias = sum / float64(c.Scores)
		c.RMSE = math.Sqrt(square / float64(c.Scores))
	}
	return nil
}

// toHits converts a list of documents to hits, best first.
func toHits(snap *index.Snapshot, list []topk.Scored, k int) []search.Hit {
	list = topk.Best(list, k)
	slices.SortFunc(list, topk.Order)
	hits := make([]search.Hit, len(list))
	for i, s := range list {
		hits[i] = search.Hit{ID: snap.ID(s.Doc), Ordinal: s.Doc, Score: s.Score}
	}
	return hits
}

// checkAllSeen returns an error if the originals lack a live document with tokens.
func checkAllSeen(snap *index.Snapshot, seen []uint64) error {
	live, _ := snap.LiveSet()
	missing, first := 0, uint32(0)
	for i, w := range live {
		for b := range uint32(64) {
			if w&^seen[i]>>b&1 == 1 {
				if missing++; missing == 1 {
					first = uint32(i)*64 + b
				}
			}
		}
	}
	if missing == 0 {
		return nil
	}
	return fmt.Errorf("%w: they lack %d documents of %s, the first is %q",
		ErrOriginals, missing, snap.Path(), snap.ID(first))
}
