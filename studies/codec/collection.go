package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // the backends
	"github.com/plaid-ir/plaid/vectors"
)

// matrix is a collection in memory: row i owns the tokens offsets[i] to
// offsets[i+1].
type matrix struct {
	dim     int
	tokens  []float32
	offsets []uint32
	ids     []string
}

func (m *matrix) rows(i int) []float32 {
	return m.tokens[int(m.offsets[i])*m.dim : int(m.offsets[i+1])*m.dim]
}

// batch is the matrix as an operand.
func (m *matrix) batch() *maxsim.Batch {
	offsets := make([]int, len(m.offsets))
	for i, o := range m.offsets {
		offsets[i] = int(o)
	}
	return maxsim.Packed(maxsim.Float32(m.tokens, m.dim), offsets)
}

type collection struct {
	docs, queries matrix
	qrels         *eval.Qrels
}

func load(ctx context.Context, dir, data string, o options) (*collection, error) {
	var c collection
	var err error
	at := func(name string) string { return filepath.Join(dir, name) }
	if c.docs, err = read(ctx, vectors.Files{Vectors: at("docs.npy"), Lengths: at("doclens.npy"), IDs: at("doc_ids.txt")}, 0); err != nil {
		return nil, err
	}
	if c.queries, err = read(ctx, vectors.Files{Vectors: at("queries.npy"), IDs: at("query_ids.txt")}, o.queries); err != nil {
		return nil, err
	}
	all, err := eval.LoadQrelsOf(data, o.split)
	if err != nil {
		return nil, err
	}
	c.qrels = new(eval.Qrels)
	for _, q := range c.queries.ids {
		for doc, grade := range all.Judgements(q) {
			if err := c.qrels.Add(q, doc, grade); err != nil {
				return nil, err
			}
		}
	}
	return &c, nil
}

// read loads vectors and scales them to unit length, as an index does.
func read(ctx context.Context, files vectors.Files, limit int) (m matrix, err error) {
	src, err := vectors.Open(ctx, files)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	n := src.Len()
	if limit > 0 {
		n = min(n, limit)
	}
	total := 0
	for i := range n {
		total += src.Rows(i)
	}
	m.dim = src.Dim()
	m.tokens = make([]float32, 0, total*m.dim)
	m.offsets = append(m.offsets, 0)
	for d, err := range src.Docs(ctx, 0, n) {
		if err != nil {
			return m, err
		}
		m.tokens = append(m.tokens, d.Tokens...)
		m.offsets = append(m.offsets, uint32(len(m.tokens)/m.dim))
		m.ids = append(m.ids, d.ID)
	}
	codec.Normalize(m.tokens, m.dim)
	return m, nil
}
