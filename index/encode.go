package index

import (
	"context"
	"fmt"
	"iter"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// batch is a run of documents on its way from vectors to the stager.
type batch struct {
	dim      int
	limit    int // tokens
	tokens   []float32
	ids      []string
	payloads [][]byte
	ends     []int // tokens up to the end of each document
	block    codec.Block
}

func newBatch(dim int, memory int64) *batch {
	return &batch{dim: dim, limit: int(min(max(memory/16/int64(4*dim), 256), 65536))}
}

func (b *batch) add(d vectors.Document) {
	b.tokens = append(b.tokens, d.Tokens...)
	b.ids = append(b.ids, d.ID)
	b.payloads = append(b.payloads, append([]byte(nil), d.Payload...))
	b.ends = append(b.ends, len(b.tokens)/b.dim)
}

func (b *batch) reset() {
	b.tokens, b.ids, b.payloads, b.ends = b.tokens[:0], b.ids[:0], b.payloads[:0], b.ends[:0]
}

// encoder turns documents into staged ones.
type encoder struct {
	codec     *codec.Codec
	backend   kernels.Backend
	threads   int
	normalize bool
	stage     *stager
	// fresh tells whether an id is to be entered as it is staged; nil: each is.
	fresh    func(id string) bool
	progress func(tokens int64)

	docs, empty int
	clamped     int
	sumSq       float64
	done        int64
}

// all encodes and stages a sequence of documents.
func (e *encoder) all(ctx context.Context, docs iter.Seq2[vectors.Document, error], memory int64) error {
	b := newBatch(e.codec.Dim, memory)
	for d, err := range docs {
		if err != nil {
			return err
		}
		if len(d.Tokens)%b.dim != 0 {
			return fmt.Errorf("document %q: %w: %d values are no whole vectors of dimension %d", d.ID, ErrDimension, len(d.Tokens), b.dim)
		}
		b.add(d)
		if len(b.tokens)/b.dim >= b.limit || len(b.ids) >= 65536 {
			if err := e.flush(ctx, b); err != nil {
				return err
			}
		}
	}
	return e.flush(ctx, b)
}

func (e *encoder) flush(ctx context.Context, b *batch) error {
	if len(b.ids) == 0 {
		return ctx.Err()
	}
	if e.normalize {
		codec.Normalize(b.tokens, b.dim)
	}
	b.block.Reset()
	if err := e.codec.Encode(ctx, &b.block, b.tokens, e.threads, e.backend); err != nil {
		return err
	}
	e.clamped += b.block.Clamped
	e.sumSq += b.block.SumSq
	cb, rb := e.codec.CodeBytes(), e.codec.RowBytes()
	lo := 0
	for i, hi := range b.ends {
		id := b.ids[i]
		var payload []byte
		if len(b.payloads[i]) > 0 {
			payload = b.payloads[i]
		}
		err := e.stage.add(ctx, encoded{
			id: id, fresh: e.fresh == nil || e.fresh(id), payload: payload,
			codes: b.block.Codes[lo*cb : hi*cb], factors: b.block.Factors[2*lo : 2*hi], residuals: b.block.Residuals[lo*rb : hi*rb],
		})
		if err != nil {
			return err
		}
		if lo == hi {
			e.empty++
		}
		e.docs++
		lo = hi
	}
	e.done += int64(lo)
	b.reset()
	if e.progress != nil {
		e.progress(e.done)
	}
	return nil
}
