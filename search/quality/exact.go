package quality

import (
	"context"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // the backends
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// exactSearch computes exact MaxSim over a stream of float documents.
type exactSearch struct {
	snap    *index.Snapshot
	backend maxsim.Backend
	threads int
	k       int
	sizes   exactSizes
	queries *maxsim.Batch
	weights []float32       // of their tokens. nil means that all are 1
	best    [][]topk.Scored // for each query
	scores  []float32
}

// exactSizes limits the memory in use.
type exactSizes struct {
	blockFloats int // values of the documents that are read at a time
	scorePairs  int // pairs of a query and a document that are scored at a time
}

// defaultSizes give 16 MiB to documents, and 16 MiB to scores.
var defaultSizes = exactSizes{blockFloats: 1 << 22, scorePairs: 1 << 22}

// newExactSearch prepares the queries. Weights are set if any query has weights.
func newExactSearch(
	snap *index.Snapshot, threads int, qs []search.Query, k int, sizes exactSizes,
) (*exactSearch, error) {
	be, err := maxsim.Select(snap.Backend())
	if err != nil {
		return nil, err
	}
	x := &exactSearch{
		snap:    snap,
		backend: be,
		threads: threads,
		k:       k,
		sizes:   sizes,
		best:    make([][]topk.Scored, len(qs)),
	}
	dim := snap.Dim()
	ones := func(values int) []float32 { return slices.Repeat([]float32{1}, values/dim) }
	offsets := []int{0}
	var values []float32
	for i, q := range qs {
		v, w, err := q.Tokens(snap)
		if err != nil {
			return nil, &search.QueryError{Index: i, Err: err}
		}
		if w != nil && x.weights == nil {
			x.weights = ones(len(values))
		}
		values = append(values, v...)
		offsets = append(offsets, len(values)/dim)
		if w != nil {
			x.weights = append(x.weights, w...)
		} else if x.weights != nil {
			x.weights = append(x.weights, ones(len(v))...)
		}
	}
	x.queries = maxsim.Packed(maxsim.Float32(values, dim), offsets)
	return x, nil
}

// exactDocs is a block of documents in memory.
type exactDocs struct {
	dim      int
	values   []float32
	offsets  []int // in tokens
	ordinals []uint32
}

// run reads the originals, scores those that the index has, and returns the best for each query.
func (x *exactSearch) run(
	ctx context.Context, src vectors.Source, c *Compression, progress Progress,
) ([][]search.Hit, error) {
	snap := x.snap
	if src.Dim() != 0 && src.Dim() != snap.Dim() {
		return nil, fmt.Errorf("%w: they have dimension %d, %s has %d",
			ErrOriginals, src.Dim(), snap.Path(), snap.Dim())
	}
	live, _ := snap.LiveSet()
	seen := make([]uint64, len(live))
	docs := &exactDocs{dim: snap.Dim()}
	docs.reset()
	maxDocs := max(x.sizes.scorePairs/max(len(x.best), 1), 1)
	docsRead := 0
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return nil, err
		}
		docsRead++
		ordinal, ok, err := snap.Ordinal(d.ID)
		if err != nil {
			return nil, err
		}
		if !ok {
			c.Skipped++
			continue
		}
		if live[ordinal/64]>>(ordinal%64)&1 == 0 || len(d.Tokens) == 0 {
			continue
		}
		seen[ordinal/64] |= 1 << (ordinal % 64)
		chunk, i, _ := snap.Locate(ordinal)
		if _, offsets := snap.ChunkDocs(chunk); int(offsets[i+1]-offsets[i]) != len(d.Tokens)/docs.dim {
			c.Reshaped++
		}
		c.Docs++
		docs.add(ordinal, d.Tokens)
		if len(docs.values) < x.sizes.blockFloats && len(docs.ordinals) < maxDocs {
			continue
		}
		if err := x.scoreBlock(ctx, docs); err != nil {
			return nil, err
		}
		report(progress, "exact scores", docsRead, src.Len(), "documents")
	}
	if err := x.scoreBlock(ctx, docs); err != nil {
		return nil, err
	}
	if err := checkAllSeen(snap, seen); err != nil {
		return nil, err
	}
	hits := make([][]search.Hit, len(x.best))
	for i, list := range x.best {
		hits[i] = toHits(snap, list, x.k)
	}
	return hits, nil
}

func (d *exactDocs) reset() {
	d.values, d.ordinals = d.values[:0], d.ordinals[:0]
	d.offsets = append(d.offsets[:0], 0)
}

func (d *exactDocs) add(ordinal uint32, tokens []float32) {
	d.values = append(d.values, tokens...)
	d.offsets = append(d.offsets, len(d.values)/d.dim)
	d.ordinals = append(d.ordinals, ordinal)
}

// scoreBlock scores a block of documents for all queries, and empties it.
func (x *exactSearch) scoreBlock(ctx context.Context, docs *exactDocs) error {
	if x.snap.Header().Normalize {
		codec.Normalize(docs.values, docs.dim)
	}
	docCount := len(docs.ordinals)
	if need := len(x.best) * docCount; cap(x.scores) < need {
		x.scores = make([]float32, need)
	}
	scores := x.scores[:len(x.best)*docCount]
	err := x.backend.Score(ctx, &maxsim.Call{
		Q: x.queries, D: maxsim.Packed(maxsim.Float32(docs.values, docs.dim), docs.offsets),
		Terms: maxsim.Terms{Weights: x.weights, Threads: x.threads}, Scores: scores,
	})
	if err != nil {
		return err
	}
	err = parallel.Do(ctx, len(x.best), x.threads, func(q int) error {
		list := x.best[q]
		for i, s := range scores[q*docCount : (q+1)*docCount] {
			list = append(list, topk.Scored{Doc: docs.ordinals[i], Score: s})
		}
		x.best[q] = append(list[:0], topk.Best(list, x.k)...)
		return nil
	})
	docs.reset()
	return err
}
