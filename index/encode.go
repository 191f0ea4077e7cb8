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
	dim        int
	tokenLimit int       // tokens
	firstDoc   int       // number of the first document in the source
	tokens     []float32 // none of resident vectors
	tokenCount int       // of tokens
	ids        []string
	payloads   [][]byte
	fields     []metadata.Fields // of the payloads
	ends       []int             // tokens up to the end of each document
	block      codec.Block

	payloadBytes, payloadLimit int
}

// batchesInFlight is how many of them are under way: one is read, one is checked, one is encoded, one is
// staged, and one waits where stages take longer now and then.
const batchesInFlight = 5

// transactionsInFlight is how many are under way behind the one that is filled: one waits, one is written.
const transactionsInFlight = 2

// batchTokenLimit is how many tokens to hold in memory on their way.
func batchTokenLimit(dim int, memory int64) int {
	return int(min(max(memory/16/int64(4*dim), 256), maxBatchTokens))
}

var maxBatchTokens int64 = 65536 // a variable, so that tests see many batches

func newBatch(dim int, memory int64) *batch {
	return &batch{
		dim: dim, tokenLimit: batchTokenLimit(dim, memory),
		payloadLimit: int(max(memory/16, 1<<20)),
	}
}

func (b *batch) addDocument(d vectors.Document, tokens int) {
	b.tokens = append(b.tokens, d.Tokens...)
	b.tokenCount += tokens
	b.ids = append(b.ids, d.ID)
	b.payloads = append(b.payloads, append([]byte(nil), d.Payload...))
	b.payloadBytes += len(d.Payload)
	b.ends = append(b.ends, b.tokenCount)
}

func (b *batch) isFull() bool {
	return b.tokenCount >= b.tokenLimit || len(b.ids) >= 65536 || b.payloadBytes >= b.payloadLimit
}

func (b *batch) reset() {
	b.tokens, b.ids, b.payloads, b.ends = b.tokens[:0], b.ids[:0], b.payloads[:0], b.ends[:0]
	b.payloadBytes, b.tokenCount = 0, 0
}

// checkDocument holds a document against what its source said beforehand; the sources of
// package vectors give no cause, but a source may come from anywhere.
func checkDocument(src vectors.Source, i, dim int, d vectors.Document) error {
	if err := checkIdentity(src, i, d); err != nil {
		return err
	}
	if len(d.Tokens) == src.Rows(i)*dim {
		return nil
	}
	err := fmt.Errorf("%w: %d values, the source said %d vectors of dimension %d",
		ErrDimension, len(d.Tokens), src.Rows(i), dim)
	return documentError(i, d.ID, err)
}

// checkIdentity is checkDocument of one that may be without its tokens.
func checkIdentity(src vectors.Source, i int, d vectors.Document) error {
	switch {
	case i >= src.Len():
		err := fmt.Errorf("%w: the source said that it has %d documents", vectors.ErrShape, src.Len())
		return documentError(i, d.ID, err)
	case d.ID != src.ID(i):
		return documentError(i, d.ID, fmt.Errorf("%w: the source said that it is %q", vectors.ErrID, src.ID(i)))
	}
	return nil
}

// documentError is an error of document i of a source.
func documentError(i int, id string, err error) error {
	fileErr := vectors.NewFileError("", err)
	fileErr.ID, fileErr.Doc = id, i
	return fileErr
}

// checkFinite refuses vectors that have no meaning.
func checkFinite(i, dim int, id string, tokens []float32) error {
	if floats.Finite(tokens) {
		return nil
	}
	for j, x := range tokens {
		if x-x != 0 {
			fileErr := vectors.NewFileError("", fmt.Errorf("%w: %v", vectors.ErrValue, x))
			fileErr.ID, fileErr.Doc, fileErr.Token, fileErr.Dim = id, i, j/dim, j%dim
			return fileErr
		}
	}
	return nil
}

// checkStorable decides whether a document, which has an id, may be stored ([vectors.CheckDocument]).
// Programs may also store a payload that is no JSON object: it has no fields.
func checkStorable(id string, payload []byte) error {
	if err := vectors.CheckID(id); err != nil {
		return err
	}
	if p := bytes.TrimLeft(payload, " \t\r\n"); len(p) == 0 || p[0] != '{' {
		return nil
	}
	return vectors.CheckDocument(vectors.Draft{ID: id, Payload: payload})
}

// tokenRange gives the tokens of document i of the batch, from first to end.
func (b *batch) tokenRange(i int) (first, end int) {
	if i > 0 {
		first = b.ends[i-1]
	}
	return first, b.ends[i]
}

// checkAndReadFields checks the values of all documents of the batch, and whether they may be stored, unless they
// are stored already. It reads the fields of their payloads.
func (b *batch) checkAndReadFields(ctx context.Context, threads int, stored bool) error {
	const size = 64 // documents
	b.fields = slices.Grow(b.fields[:0], len(b.ids))[:len(b.ids)]
	return parallel.Do(ctx, parallel.Blocks(len(b.ids), size), threads, func(block int) error {
		lo, hi := parallel.Block(block, len(b.ids), size)
		for i := lo; i < hi; i++ {
			if !stored {
				err := checkStorable(b.ids[i], b.payloads[i])
				if err != nil {
					return documentError(b.firstDoc+i, b.ids[i], err)
				}
			}
			var err error
			if b.fields[i], err = metadata.ReadFields(ctx, b.payloads[i]); err != nil {
				return err
			}
			if len(b.tokens) == 0 {
				continue
			}
			first, end := b.tokenRange(i)
			if err := checkFinite(b.firstDoc+i, b.dim, b.ids[i], b.tokens[first*b.dim:end*b.dim]); err != nil {
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
	stager    *stager
	// payload is what a document without payload gets; nil: nothing.
	fallbackPayload func(id string) ([]byte, error)
	progress        func(Progress)
	total           int64        // tokens, for progress
	logger          *slog.Logger // nil: silent
	// holes says that the documents are stored already, and that those without an id are the places of
	// others that are gone.
	alreadyStored bool
	// arrive, if it is not nil, is told of each document that is staged.
	onStaged func(Arrival)
	// page refuses what a payload says of so many tokens as cells; nil: nothing is refused.
	checkPage func(payload []byte, tokens int) error

	skip       int // documents that are staged already, of those that are read
	batchStart     // what has been staged
}

// encodeAll encodes and stages the documents of a source. Where its vectors on a device leave no
// room to encode them, it goes on without them.
func (e *encoder) encodeAll(ctx context.Context, src vectors.Source, memory int64) error {
	err := e.encodeRemaining(ctx, src, memory)
	if resident := residentSource(src); resident != nil && errors.Is(err, kernels.ErrDeviceMemory) {
		dropResident(resident, e.logger, err)
		err = e.encodeRemaining(ctx, src, memory)
	}
	return err
}

// encodeRemaining encodes and stages the documents from e.Doc on: while one batch is staged, the next is
// encoded, the one after it is checked, and one more is read. Transactions, which have the documents
// of many batches, are written at the same time. After an error of encoding a batch, those before it
// are staged, and their transactions written.
func (e *encoder) encodeRemaining(ctx context.Context, src vectors.Source, memory int64) error {
	tokenEncoder, err := e.codec.NewEncoder(ctx, e.threads, e.backend, e.normalize)
	if err != nil {
		return err
	}
	defer tokenEncoder.Close()
	from := e.Doc
	docs, resident, firstToken := src.Docs, residentSource(src), 0
	if resident != nil && tokenEncoder.Resident(resident.Vectors()) {
		docs, firstToken = resident.Bare, tokensBefore(src, from)
	} else {
		resident = nil
	}
	batches := make([]*batch, batchesInFlight)
	for i := range batches {
		batches[i] = newBatch(e.codec.Dim, memory)
		if resident != nil {
			batches[i].tokenLimit = residentBatchLimit(e.codec, memory)
		}
	}
	stages := []func(*batch) error{func(b *batch) error {
		return b.checkAndReadFields(ctx, e.threads, e.alreadyStored)
	}, func(b *batch) error {
		b.block.Reset()
		if resident == nil {
			return tokenEncoder.Encode(ctx, &b.block, b.tokens)
		}
		firstToken += b.tokenCount
		return tokenEncoder.EncodeResident(ctx, &b.block, resident.Vectors(), firstToken-b.tokenCount, b.tokenCount)
	}, func(b *batch) error {
		return e.stageBatch(ctx, b)
	}}
	readAll := func(acquire func() (*batch, error), send func(*batch)) error {
		return e.readBatches(ctx, src, docs(ctx, from, src.Len()), resident != nil, from, acquire, send)
	}
	pending := make([]*transaction, transactionsInFlight)
	err = parallel.Line(ctx, pending, func(acquire func() (*transaction, error), send func(*transaction)) error {
		e.stager.sendTransaction = func(t *transaction) error {
			_, err := acquire()
			if err == nil {
				send(t)
			}
			return err
		}
		return parallel.Line(ctx, batches, readAll, stages...)
	}, e.stager.writeTransaction)
	e.stager.sendTransaction = nil
	if resident != nil && err == nil {
		resident.DropVectors() // the next step may want the memory
	}
	return err
}

// readBatches fills batches with the documents of a source from one on; bare ones have no tokens.
func (e *encoder) readBatches(
	ctx context.Context, src vectors.Source, docs iter.Seq2[vectors.Document, error], bare bool, from int,
	acquire func() (*batch, error), send func(*batch),
) error {
	row := from
	var b *batch
	for d, err := range docs {
		if err == nil && b == nil {
			if b, err = acquire(); err == nil {
				b.reset()
				b.firstDoc = row
			}
		}
		if err == nil && bare {
			err = checkIdentity(src, row, d)
		} else if err == nil {
			err = checkDocument(src, row, e.codec.Dim, d)
		}
		if err != nil {
			if b != nil {
				err = cmp.Or(b.checkAndReadFields(ctx, 1, e.alreadyStored), err) // of a document before
			}
			return err
		}
		b.addDocument(d, src.Rows(row))
		row++
		if b.isFull() {
			send(b)
			b = nil
		}
	}
	if row != src.Len() {
		return fmt.Errorf("%w: the source ended after %d of %d documents", vectors.ErrShape, row, src.Len())
	}
	if b != nil {
		send(b)
	}
	return ctx.Err()
}

// stageBatch stages the documents of an encoded batch.
func (e *encoder) stageBatch(ctx context.Context, b *batch) error {
	e.stager.currentBatch = e.batchStart
	e.Zero += int64(b.block.Zero)
	e.Clamped += b.block.Clamped
	e.SumSq += b.block.SumSq
	for i := range b.ids {
		first, end := b.tokenRange(i)
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
	reportProgress(e.progress, Progress{"encode", e.Tokens, e.total, "tokens"})
	return nil
}

// stageDocument stages a document of an encoded batch, which has the tokens first to end.
func (e *encoder) stageDocument(ctx context.Context, b *batch, i, firstToken, endToken int) error {
	id := b.ids[i]
	var payload []byte
	var fields metadata.Fields
	if len(b.payloads[i]) > 0 {
		payload, fields = b.payloads[i], b.fields[i]
	} else if e.fallbackPayload != nil {
		var err error
		if payload, err = e.fallbackPayload(id); err != nil {
			return err
		}
	}
	if e.checkPage != nil {
		if err := e.checkPage(payload, endToken-firstToken); err != nil {
			return documentError(b.firstDoc+i, id, err)
		}
	}
	parent, err := parentFromPayload(b.firstDoc+i, id, payload)
	if err != nil {
		return err
	}
	if e.onStaged != nil {
		e.onStaged(Arrival{id, parent})
	}
	return e.stager.appendDocument(ctx, encoded{
		id: id, parent: parent, payload: payload, fields: fields, alreadyStored: e.alreadyStored && id == "",
		tokens: blockTokens(&b.block, firstToken, endToken, e.codec),
	})
}
