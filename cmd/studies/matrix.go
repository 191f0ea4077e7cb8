package main

import (
	"context"
	"errors"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// matrix is a collection in memory, with vectors of unit length. Row i has the tokens offsets[i] to
// offsets[i+1]-1.
type matrix struct {
	dim     int
	tokens  []float32
	offsets []uint32
	ids     []string
}

// row returns the token vectors of row i.
func (m *matrix) row(i int) []float32 {
	return m.tokens[int(m.offsets[i])*m.dim : int(m.offsets[i+1])*m.dim]
}

// queries returns the rows as queries for the engine.
func (m *matrix) queries() []search.Query {
	queries := make([]search.Query, len(m.ids))
	for i := range queries {
		queries[i] = search.Query{Vectors: m.row(i), Dim: m.dim}
	}
	return queries
}

// openDocs opens the documents in a folder of vectors.
func openDocs(ctx context.Context, dir string) (vectors.Source, error) {
	files, _, err := beir.Files(dir)
	if err != nil {
		return nil, err
	}
	return vectors.Open(ctx, files)
}

// readQueries reads the first queries in a folder of vectors; a limit of 0 means all.
func readQueries(ctx context.Context, dir string, limit int) (m *matrix, err error) {
	_, files, err := beir.Files(dir)
	if err != nil {
		return nil, err
	}
	src, err := vectors.Open(ctx, files)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return readMatrix(ctx, src, limit)
}

// readMatrix reads the first rows, or all if limit is 0, and scales their tokens to unit length, as
// an index does.
func readMatrix(ctx context.Context, src vectors.Source, limit int) (*matrix, error) {
	n := src.Len()
	if limit > 0 {
		n = min(n, limit)
	}
	total := 0
	for i := range n {
		total += src.Rows(i)
	}
	m := &matrix{dim: src.Dim(), tokens: make([]float32, 0, total*src.Dim()), offsets: []uint32{0}}
	for d, err := range src.Docs(ctx, 0, n) {
		if err != nil {
			return nil, err
		}
		m.tokens = append(m.tokens, d.Tokens...)
		m.offsets = append(m.offsets, uint32(len(m.tokens)/m.dim))
		m.ids = append(m.ids, d.ID)
	}
	codec.Normalize(m.tokens, m.dim)
	return m, nil
}
