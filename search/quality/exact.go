package quality

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// exactSearch computes MaxSim over float vectors of documents that stream by.
//
// The kernels' product of centroids and query tokens is a product of any
// matrices, S = A·Bᵀ in float32: here the tokens of all queries are A and those
// of a few documents at a time are B.
type exactSearch struct {
	snap    *index.Snapshot
	threads int
	k       int
	sizes   exactSizes
	groups  []*exactGroup
	top     [][]topk.Scored // of each query
}

// exactGroup is queries whose tokens fill one matrix.
type exactGroup struct {
	scorer  kernels.Scorer
	first   int   // query
	offsets []int // of the tokens of its queries
	weights [][]float32
	pool    sync.Pool // of kernels.Query
}

// exactSizes bound what is in memory.
type exactSizes struct {
	rows   int // query tokens of a group
	tile   int // document tokens multiplied at a time
	block  int // floats of the documents read at a time
	scores int // pairs of a query and a document scored at a time
}

// usualSizes make 8 MiB of products for each thread, 16 of documents, 16 of scores.
var usualSizes = exactSizes{rows: 1 << 13, tile: 1 << 8, block: 1 << 22, scores: 1 << 22}

func newExactSearch(snap *index.Snapshot, threads int, qs []search.Query, k int, sizes exactSizes) (*exactSearch, error) {
	be, err := kernels.Select(snap.Backend())
	if err != nil {
		return nil, err
	}
	x := &exactSearch{snap: snap, threads: threads, k: k, sizes: sizes, top: make([][]topk.Scored, len(qs))}
	dim := snap.Dim()
	for first := 0; first < len(qs); {
		g := &exactGroup{first: first, offsets: []int{0}}
		var data []byte
		rows := 0
		for ; first < len(qs) && rows < sizes.rows; first++ {
			v, w, err := qs[first].Tokens(snap)
			if err != nil {
				return nil, &search.QueryError{Index: first, Err: err}
			}
			for _, f := range v {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
			}
			rows += len(v) / dim
			g.offsets = append(g.offsets, rows)
			g.weights = append(g.weights, w)
		}
		g.scorer, err = be.Scorer(&kernels.Codec{
			Centroids: kernels.Centroids{K: rows, Dim: dim, Type: kernels.F32, Data: data},
			Codebook:  kernels.Codebook{Nbits: 1, Step: 1}, FactorMax: 1,
		})
		if err != nil {
			return nil, err
		}
		x.groups = append(x.groups, g)
	}
	return x, nil
}

// exactDocs is a block of documents in memory.
type exactDocs struct {
	dim      int
	values   []float32
	offsets  []int // in tokens
	ordinals []uint32
}

func (x *exactSearch) run(ctx context.Context, src vectors.Source, c *Compression, progress Progress) ([][]search.Hit, error) {
	snap := x.snap
	if src.Dim() != 0 && src.Dim() != snap.Dim() {
		return nil, fmt.Errorf("%w: they have dimension %d, %s has %d", ErrOriginals, src.Dim(), snap.Path(), snap.Dim())
	}
	live, _ := snap.LiveSet()
	seen := make([]uint64, len(live))
	docs := &exactDocs{dim: snap.Dim()}
	docs.clear()
	most := max(x.sizes.scores/max(len(x.top), 1), 1)
	n := 0
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return nil, err
		}
		n++
		ordinal, ok, err := snap.Ordinal(d.ID)
		if err != nil {
			return nil, err
		}
		if !ok {
			c.Passed++
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
		docs.keep(ordinal, d.Tokens)
		if len(docs.values) < x.sizes.block && len(docs.ordinals) < most {
			continue
		}
		if err := x.block(ctx, docs); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(index.Progress{Stage: "exact scores", Done: int64(n), Total: int64(src.Len()), Unit: "documents"})
		}
	}
	if err := x.block(ctx, docs); err != nil {
		return nil, err
	}
	if err := checkSeen(snap, seen); err != nil {
		return nil, err
	}
	hits := make([][]search.Hit, len(x.top))
	for i, list := range x.top {
		var err error
		if hits[i], err = toHits(snap, list, x.k); err != nil {
			return nil, err
		}
	}
	return hits, nil
}

func (d *exactDocs) clear() {
	d.values, d.ordinals = d.values[:0], d.ordinals[:0]
	d.offsets = append(d.offsets[:0], 0)
}

func (d *exactDocs) keep(ordinal uint32, tokens []float32) {
	d.values = append(d.values, tokens...)
	d.offsets = append(d.offsets, len(d.values)/d.dim)
	d.ordinals = append(d.ordinals, ordinal)
}

// block scores a block of documents for all queries, and empties it.
func (x *exactSearch) block(ctx context.Context, docs *exactDocs) error {
	if x.snap.Header().Normalize {
		codec.Normalize(docs.values, docs.dim)
	}
	var tiles [][2]int // documents of about a tile's tokens, one at least
	for i := 0; i < len(docs.ordinals); {
		lo := i
		for i++; i < len(docs.ordinals) && docs.offsets[i+1]-docs.offsets[lo] <= x.sizes.tile; i++ {
		}
		tiles = append(tiles, [2]int{lo, i})
	}
	n := len(docs.ordinals)
	scores := make([]float32, len(x.top)*n)
	for g := range x.groups {
		err := parallel.Do(ctx, len(tiles), x.threads, func(i int) error {
			return x.groups[g].tile(docs, tiles[i][0], tiles[i][1], x.sizes.tile, scores, n)
		})
		if err != nil {
			return err
		}
	}
	err := parallel.Do(ctx, len(x.top), x.threads, func(q int) error {
		list := x.top[q]
		for i, s := range scores[q*n : (q+1)*n] {
			list = append(list, topk.Scored{Doc: docs.ordinals[i], Score: s})
		}
		x.top[q] = append(list[:0], topk.Best(list, x.k)...)
		return nil
	})
	docs.clear()
	return err
}

// tile scores the documents from lo to hi for the queries of the group:
// scores[query·stride + document].
func (g *exactGroup) tile(docs *exactDocs, lo, hi, size int, scores []float32, stride int) error {
	q, _ := g.pool.Get().(kernels.Query)
	if q == nil {
		q = g.scorer.NewQuery()
	}
	defer g.pool.Put(q)
	rows := g.offsets[len(g.offsets)-1]
	var carry []float32 // maxima so far of a document longer than a tile
	first, last := docs.offsets[lo], docs.offsets[hi]
	if last-first > size {
		carry = make([]float32, rows)
		for i := range carry {
			carry[i] = float32(math.Inf(-1))
		}
	}
	for from := first; from < last; from += size {
		to := min(from+size, last)
		if err := q.Reset(docs.values[from*docs.dim:to*docs.dim], nil); err != nil {
			return err
		}
		for i := range g.weights {
			a, b := g.offsets[i], g.offsets[i+1]
			q.CentroidScores(a, b)
			s, width := q.Scores()
			if carry != nil {
				for r := a; r < b; r++ {
					carry[r] = max(carry[r], largest(s[r*width:r*width+to-from]))
				}
				continue
			}
			for d := lo; d < hi; d++ {
				sum := 0.0
				for r := a; r < b; r++ {
					sum += g.weight(i, r-a) * float64(largest(s[r*width+docs.offsets[d]-from:r*width+docs.offsets[d+1]-from]))
				}
				scores[(g.first+i)*stride+d] = float32(sum)
			}
		}
	}
	if carry == nil {
		return nil
	}
	for i := range g.weights {
		sum := 0.0
		for r := g.offsets[i]; r < g.offsets[i+1]; r++ {
			sum += g.weight(i, r-g.offsets[i]) * float64(carry[r])
		}
		scores[(g.first+i)*stride+lo] = float32(sum)
	}
	return nil
}

func (g *exactGroup) weight(query, token int) float64 {
	if w := g.weights[query]; w != nil {
		return float64(w[token])
	}
	return 1
}

func largest(s []float32) float32 {
	m := s[0]
	for _, v := range s[1:] {
		if v > m {
			m = v
		}
	}
	return m
}
