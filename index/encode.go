package index

import (
	"context"
	"fmt"
	"slices"

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

	payloadBytes, payloadLimit int
}

// batchTokens is how many tokens to hold in memory on their way.
func batchTokens(dim int, memory int64) int {
	return int(min(max(memory/16/int64(4*dim), 256), maxBatchTokens))
}

var maxBatchTokens int64 = 65536 // a variable, so that tests see many batches

func newBatch(dim int, memory int64) *batch {
	return &batch{
		dim: dim, limit: batchTokens(dim, memory),
		payloadLimit: int(max(memory/16, 1<<20)),
	}
}

func (b *batch) addDocument(d vectors.Document) {
	b.tokens = append(b.tokens, d.Tokens...)
	b.ids = append(b.ids, d.ID)
	b.payloads = append(b.payloads, append([]byte(nil), d.Payload...))
	b.payloadBytes += len(d.Payload)
	b.ends = append(b.ends, len(b.tokens)/b.dim)
}

func (b *batch) full() bool {
	return len(b.tokens)/b.dim >= b.limit || len(b.ids) >= 65536 || b.payloadBytes >= b.payloadLimit
}

func (b *batch) reset() {
	b.tokens, b.ids, b.payloads, b.ends = b.tokens[:0], b.ids[:0], b.payloads[:0], b.ends[:0]
	b.payloadBytes = 0
}

// checkDocument holds a document against what its source said beforehand, and
// refuses vectors that have no meaning; the sources of package vectors give no
// cause, but a source may come from anywhere.
func checkDocument(src vectors.Source, i, dim int, d vectors.Document) error {
	fault := vectors.NewFileError("", nil)
	fault.ID, fault.Doc = d.ID, i
	switch {
	case i >= src.Len():
		fault.Err = fmt.Errorf("%w: the source said that it has %d documents", vectors.ErrShape, src.Len())
		return fault
	case d.ID != src.ID(i):
		fault.Err = fmt.Errorf("%w: the source said that it is %q", vectors.ErrID, src.ID(i))
		return fault
	case len(d.Tokens) != src.Rows(i)*dim:
		fault.Err = fmt.Errorf("%w: %d values, the source said %d vectors of dimension %d", ErrDimension, len(d.Tokens), src.Rows(i), dim)
		return fault
	}
	for j, x := range d.Tokens {
		if x-x != 0 {
			fault.Token, fault.Dim, fault.Err = j/dim, j%dim, fmt.Errorf("%w: %v", vectors.ErrValue, x)
			return fault
		}
	}
	return nil
}

// encoder turns documents into staged ones.
type encoder struct {
	codec     *codec.Quantizer
	backend   kernels.Backend
	threads   int
	normalize bool
	stage     *stager
	// fresh tells whether an id is to be entered as it is staged; nil: each is.
	fresh func(id string) bool
	// payload is what a document without payload gets; nil: nothing.
	payload  func(id string) ([]byte, error)
	progress func(tokens int64)
	// arrive is told of each document that is read, and may refuse it; nil: nobody is.
	arrive func(row int, d vectors.Document) error

	skip        int // documents that are staged already, of those that are read
	docs, empty int
	clamped     int
	zero        int64
	sumSq       float64
	done        int64
}

// encodeAll encodes and stages the documents of a source.
func (e *encoder) encodeAll(ctx context.Context, src vectors.Source, memory int64) error {
	backend, release, err := kernels.Prepare(ctx, e.backend, e.codec.Centroids(), e.codec.Dim)
	if err != nil {
		return err
	}
	defer release()
	e.backend = backend
	b := newBatch(e.codec.Dim, memory)
	n := e.docs
	for d, err := range src.Docs(ctx, n, src.Len()) {
		if err != nil {
			return err
		}
		if err := checkDocument(src, n, b.dim, d); err != nil {
			return err
		}
		if e.arrive != nil {
			if err := e.arrive(n, d); err != nil {
				return err
			}
		}
		n++
		b.addDocument(d)
		if b.full() {
			if err := e.flush(ctx, b); err != nil {
				return err
			}
		}
	}
	if n != src.Len() {
		return fmt.Errorf("%w: the source ended after %d of %d documents", vectors.ErrShape, n, src.Len())
	}
	return e.flush(ctx, b)
}

func (e *encoder) flush(ctx context.Context, b *batch) error {
	if len(b.ids) == 0 {
		return ctx.Err()
	}
	e.stage.batch = batchStart{e.docs, e.empty, e.clamped, e.sumSq, e.done, e.zero}
	if e.normalize {
		codec.Normalize(b.tokens, b.dim)
	}
	e.zero += zeroRows(b.tokens, b.dim)
	b.block.Reset()
	if err := e.codec.Encode(ctx, &b.block, b.tokens, e.threads, e.backend); err != nil {
		return err
	}
	e.clamped += b.block.Clamped
	e.sumSq += b.block.SumSq
	first := 0
	for i, end := range b.ends {
		if e.docs >= e.skip {
			if err := e.stageDocument(ctx, b, i, first, end); err != nil {
				return err
			}
		}
		if first == end {
			e.empty++
		}
		e.docs++
		first = end
	}
	e.done += int64(first)
	b.reset()
	if e.progress != nil {
		e.progress(e.done)
	}
	return nil
}

// stageDocument stages a document of an encoded batch, which has the tokens first to end.
func (e *encoder) stageDocument(ctx context.Context, b *batch, i, first, end int) error {
	id := b.ids[i]
	var payload []byte
	if len(b.payloads[i]) > 0 {
		payload = b.payloads[i]
	} else if e.payload != nil {
		var err error
		if payload, err = e.payload(id); err != nil {
			return err
		}
	}
	return e.stage.stage(ctx, encoded{
		id: id, fresh: e.fresh == nil || e.fresh(id), payload: payload, again: id == "", // a hole
		tokens: tokensOfBlock(&b.block, first, end, e.codec),
	})
}

// zeroRows counts vectors of which every component is 0, as padding has them.
func zeroRows(x []float32, dim int) (n int64) {
	for ; len(x) >= dim; x = x[dim:] {
		row := x[:dim]
		if !slices.ContainsFunc(row, func(v float32) bool { return v != 0 }) {
			n++
		}
	}
	return n
}
