package index

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// batch is a run of documents on its way from vectors to the stager.
type batch struct {
	dim      int
	limit    int       // tokens
	first    int       // number of the first document in the source
	tokens   []float32 // none of resident vectors
	count    int       // of tokens
	ids      []string
	payloads [][]byte
	fields   []metadata.Fields // of the payloads
	ends     []int             // tokens up to the end of each document
	block    codec.Block

	payloadBytes, payloadLimit int
}

// batches is how many of them are under way: one is read, one is checked, one is encoded, one is
// staged, and one waits where stages take longer now and then.
const batches = 5

// transactions is how many are under way behind the one that is filled: one waits, one is written.
const transactions = 2

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

func (b *batch) addDocument(d vectors.Document, tokens int) {
	b.tokens = append(b.tokens, d.Tokens...)
	b.count += tokens
	b.ids = append(b.ids, d.ID)
	b.payloads = append(b.payloads, append([]byte(nil), d.Payload...))
	b.payloadBytes += len(d.Payload)
	b.ends = append(b.ends, b.count)
}

func (b *batch) full() bool {
	return b.count >= b.limit || len(b.ids) >= 65536 || b.payloadBytes >= b.payloadLimit
}

func (b *batch) reset() {
	b.tokens, b.ids, b.payloads, b.ends = b.tokens[:0], b.ids[:0], b.payloads[:0], b.ends[:0]
	b.payloadBytes, b.count = 0, 0
}

// checkDocument holds a document against what its source said beforehand; the sources of
// package vectors give no cause, but a source may come from anywhere.
func checkDocument(src vectors.Source, i, dim int, d vectors.Document) error {
	if err := checkBare(src, i, d); err != nil {
		return err
	}
	if len(d.Tokens) == src.Rows(i)*dim {
		return nil
	}
	err := fmt.Errorf("%w: %d values, the source said %d vectors of dimension %d",
		ErrDimension, len(d.Tokens), src.Rows(i), dim)
	return ofDocument(i, d.ID, err)
}

// checkBare is checkDocument of one that may be without its tokens.
func checkBare(src vectors.Source, i int, d vectors.Document) error {
	switch {
	case i >= src.Len():
		err := fmt.Errorf("%w: the source said that it has %d documents", vectors.ErrShape, src.Len())
		return ofDocument(i, d.ID, err)
	case d.ID != src.ID(i):
		return ofDocument(i, d.ID, fmt.Errorf("%w: the source said that it is %q", vectors.ErrID, src.ID(i)))
	}
	return nil
}

// ofDocument is an error of document i of a source.
func ofDocument(i int, id string, err error) error {
	fault := vectors.NewFileError("", err)
	fault.ID, fault.Doc = id, i
	return fault
}

// checkValues refuses vectors that have no meaning.
func checkValues(i, dim int, id string, tokens []float32) error {
	if floats.Finite(tokens) {
		return nil
	}
	for j, x := range tokens {
		if x-x != 0 {
			fault := vectors.NewFileError("", fmt.Errorf("%w: %v", vectors.ErrValue, x))
			fault.ID, fault.Doc, fault.Token, fault.Dim = id, i, j/dim, j%dim
			return fault
		}
	}
	return nil
}

// admissible decides whether a document, which has an id, may be stored ([vectors.CheckDocument]).
// Programs may also store a payload that is no JSON object: it has no fields.
func admissible(id string, payload []byte) error {
	if err := vectors.CheckID(id); err != nil {
		return err
	}
	if p := bytes.TrimLeft(payload, " \t\r\n"); len(p) == 0 || p[0] != '{' {
		return nil
	}
	return vectors.CheckDocument(vectors.Draft{ID: id, Payload: payload})
}

// document gives the tokens of document i of the batch, from first to end.
func (b *batch) document(i int) (first, end int) {
	if i > 0 {
		first = b.ends[i-1]
	}
	return first, b.ends[i]
}

// check checks the values of all documents of the batch, and whether they may be stored, unless they
// are stored already. It reads the fields of their payloads.
func (b *batch) check(ctx context.Context, threads int, stored bool) error {
	const size = 64 // documents
	b.fields = slices.Grow(b.fields[:0], len(b.ids))[:len(b.ids)]
	return parallel.Do(ctx, parallel.Blocks(len(b.ids), size), threads, func(block int) error {
		lo, hi := parallel.Block(block, len(b.ids), size)
		for i := lo; i < hi; i++ {
			if !stored {
				err := admissible(b.ids[i], b.payloads[i])
				if err != nil {
					return ofDocument(b.first+i, b.ids[i], err)
				}
			}
			var err error
			if b.fields[i], err = metadata.ReadFields(ctx, b.payloads[i]); err != nil {
				return err
			}
			if len(b.tokens) == 0 {
				continue
			}
			first, end := b.document(i)
			if err := checkValues(b.first+i, b.dim, b.ids[i], b.tokens[first*b.dim:end*b.dim]); err != nil {
				return err
			}
		}
		return nil
	})
}

// encoder turns documents into staged ones.
type encoder struct {
	codec     *codec.Quantizer
	backend   kernels.Backend
	threads   int
	normalize bool
	stage     *stager
	// payload is what a document without payload gets; nil: nothing.
	payload  func(id string) ([]byte, error)
	progress func(Progress)
	total    int64        // tokens, for progress
	logger   *slog.Logger // nil: silent
	// holes says that the documents are stored already, and that those without an id are the places of
	// others that are gone.
	holes bool
	// arrive, if it is not nil, is told of each document that is staged.
	arrive func(Arrival)
	// page refuses what a payload says of so many tokens as cells; nil: nothing is refused.
	page func(payload []byte, tokens int) error

	skip       int // documents that are staged already, of those that are read
	batchStart     // what has been staged
}

// encodeAll encodes and stages the documents of a source. Where its vectors on a device leave no
// room to encode them, it goes on without them.
func (e *encoder) encodeAll(ctx context.Context, src vectors.Source, memory int64) error {
	err := e.encodeRest(ctx, src, memory)
	if held := residentOf(src); held != nil && errors.Is(err, kernels.ErrDeviceMemory) {
		dropResident(held, e.logger, err)
		err = e.encodeRest(ctx, src, memory)
	}
	return err
}

// encodeRest encodes and stages the documents from e.Doc on: while one batch is staged, the next is
// encoded, the one after it is checked, and one more is read. Transactions, which have the documents
// of many batches, are written at the same time. After an error of encoding a batch, those before it
// are staged, and their transactions written.
func (e *encoder) encodeRest(ctx context.Context, src vectors.Source, memory int64) error {
	tokens, err := e.codec.NewEncoder(ctx, e.threads, e.backend, e.normalize)
	if err != nil {
		return err
	}
	defer tokens.Close()
	from := e.Doc
	docs, held, first := src.Docs, residentOf(src), 0
	if held != nil && tokens.Resident(held.Vectors()) {
		docs, first = held.Bare, rowsBefore(src, from)
	} else {
		held = nil
	}
	way := make([]*batch, batches)
	for i := range way {
		way[i] = newBatch(e.codec.Dim, memory)
		if held != nil {
			way[i].limit = residentLimit(e.codec, memory)
		}
	}
	stages := []func(*batch) error{func(b *batch) error {
		return b.check(ctx, e.threads, e.holes)
	}, func(b *batch) error {
		b.block.Reset()
		if held == nil {
			return tokens.Encode(ctx, &b.block, b.tokens)
		}
		first += b.count
		return tokens.EncodeResident(ctx, &b.block, held.Vectors(), first-b.count, b.count)
	}, func(b *batch) error {
		return e.stageBatch(ctx, b)
	}}
	fill := func(free func() (*batch, error), put func(*batch)) error {
		return e.readBatches(ctx, src, docs(ctx, from, src.Len()), held != nil, from, free, put)
	}
	under := make([]*transaction, transactions)
	err = parallel.Line(ctx, under, func(free func() (*transaction, error), put func(*transaction)) error {
		e.stage.put = func(t *transaction) error {
			_, err := free()
			if err == nil {
				put(t)
			}
			return err
		}
		return parallel.Line(ctx, way, fill, stages...)
	}, e.stage.write)
	e.stage.put = nil
	if held != nil && err == nil {
		held.DropVectors() // the next step may want the memory
	}
	return err
}

// readBatches fills batches with the documents of a source from one on; bare ones have no tokens.
func (e *encoder) readBatches(
	ctx context.Context, src vectors.Source, docs iter.Seq2[vectors.Document, error], bare bool, from int,
	free func() (*batch, error), put func(*batch),
) error {
	n := from
	var b *batch
	for d, err := range docs {
		if err == nil && b == nil {
			if b, err = free(); err == nil {
				b.reset()
				b.first = n
			}
		}
		if err == nil && bare {
			err = checkBare(src, n, d)
		} else if err == nil {
			err = checkDocument(src, n, e.codec.Dim, d)
		}
		if err != nil {
			if b != nil {
				err = cmp.Or(b.check(ctx, 1, e.holes), err) // of a document before
			}
			return err
		}
		b.addDocument(d, src.Rows(n))
		n++
		if b.full() {
			put(b)
			b = nil
		}
	}
	if n != src.Len() {
		return fmt.Errorf("%w: the source ended after %d of %d documents", vectors.ErrShape, n, src.Len())
	}
	if b != nil {
		put(b)
	}
	return ctx.Err()
}

// stageBatch stages the documents of an encoded batch.
func (e *encoder) stageBatch(ctx context.Context, b *batch) error {
	e.stage.batch = e.batchStart
	e.Zero += int64(b.block.Zero)
	e.Clamped += b.block.Clamped
	e.SumSq += b.block.SumSq
	for i := range b.ids {
		first, end := b.document(i)
		if e.Doc >= e.skip {
			if err := e.stageDocument(ctx, b, i, first, end); err != nil {
				return err
			}
		}
		if first == end {
			e.Empty++
		}
		e.Doc++
	}
	e.Tokens += int64(b.block.Tokens)
	tell(e.progress, Progress{"encode", e.Tokens, e.total, "tokens"})
	return nil
}

// stageDocument stages a document of an encoded batch, which has the tokens first to end.
func (e *encoder) stageDocument(ctx context.Context, b *batch, i, first, end int) error {
	id := b.ids[i]
	var payload []byte
	var fields metadata.Fields
	if len(b.payloads[i]) > 0 {
		payload, fields = b.payloads[i], b.fields[i]
	} else if e.payload != nil {
		var err error
		if payload, err = e.payload(id); err != nil {
			return err
		}
	}
	if e.page != nil {
		if err := e.page(payload, end-first); err != nil {
			return ofDocument(b.first+i, id, err)
		}
	}
	parent, err := parentOf(b.first+i, id, payload)
	if err != nil {
		return err
	}
	if e.arrive != nil {
		e.arrive(Arrival{id, parent})
	}
	return e.stage.stage(ctx, encoded{
		id: id, parent: parent, payload: payload, fields: fields, again: e.holes && id == "",
		tokens: tokensOfBlock(&b.block, first, end, e.codec),
	})
}
