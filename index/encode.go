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

// batch is a run of documents on its way from the source to the stager.
type batch struct {
	dim        int
	tokenLimit int       // number of tokens at which the batch is full
	firstDoc   int       // index of the first document in the source
	tokens     []float32 // empty for resident vectors
	tokenCount int       // tokens of all documents
	ids        []string
	payloads   [][]byte
	fields     []metadata.Fields // of the payloads
	ends       []int             // number of tokens up to the end of each document
	block      codec.Block

	payloadBytes, payloadLimit int
}

// batchesInFlight is the number of batches that exist at a time: one is read, one is checked, one
// is encoded, one is staged, and one waits for a stage that takes longer now and then.
const batchesInFlight = 5

// transactionsInFlight is the number of complete transactions that exist at a time: one waits, one
// is written.
const transactionsInFlight = 2

// batchTokenLimit returns the largest number of tokens in a batch of float32 vectors, which takes a
// sixteenth of the memory.
func batchTokenLimit(dim int, memory int64) int {
	return int(min(max(memory/16/int64(4*dim), 256), maxBatchTokens))
}

var maxBatchTokens int64 = 65536 // a variable, so that tests see many batches

func newBatch(dim int, memory int64) *batch {
	return &batch{
		dim:          dim,
		tokenLimit:   batchTokenLimit(dim, memory),
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

// maxBatchDocs bounds batches of documents without tokens and payloads.
const maxBatchDocs = 1 << 16

func (b *batch) isFull() bool {
	return b.tokenCount >= b.tokenLimit || len(b.ids) >= maxBatchDocs || b.payloadBytes >= b.payloadLimit
}

func (b *batch) reset() {
	b.tokens, b.ids, b.payloads, b.ends = b.tokens[:0], b.ids[:0], b.payloads[:0], b.ends[:0]
	b.payloadBytes, b.tokenCount = 0, 0
}

// checkDocument compares a document with the id and number of rows that its source announced.
// Sources of package vectors never differ, but programs may pass their own.
func checkDocument(src vectors.Source, i, dim int, d vectors.Document) error {
	if err := checkIdentity(src, i, d); err != nil {
		return err
	}
	if len(d.Tokens) == src.Rows(i)*dim {
		return nil
	}
	err := fmt.Errorf("%w: %d values, the source announced %d vectors of dimension %d",
		ErrDimension, len(d.Tokens), src.Rows(i), dim)
	return documentError(i, d.ID, err)
}

// checkIdentity compares the number and id of a document, which may lack its tokens, with those
// that its source announced.
func checkIdentity(src vectors.Source, i int, d vectors.Document) error {
	switch {
	case i >= src.Len():
		err := fmt.Errorf("%w: the source announced %d documents", vectors.ErrShape, src.Len())
		return documentError(i, d.ID, err)
	case d.ID != src.ID(i):
		return documentError(i, d.ID, fmt.Errorf("%w: the source announced %q", vectors.ErrID, src.ID(i)))
	}
	return nil
}

// documentError returns an error of document i of a source.
func documentError(i int, id string, err error) error {
	fileErr := vectors.NewFileError("", err)
	fileErr.ID, fileErr.Doc = id, i
	return fileErr
}

// checkFinite refuses NaN and infinite values in the tokens of document i.
func checkFinite(i, dim int, id string, tokens []float32) error {
	if floats.Finite(tokens) {
		return nil
	}
	for j, x := range tokens {
		if x-x != 0 { // NaN or infinite
			fileErr := vectors.NewFileError("", fmt.Errorf("%w: %v", vectors.ErrValue, x))
			fileErr.ID, fileErr.Doc, fileErr.Token, fileErr.Dim = id, i, j/dim, j%dim
			return fileErr
		}
	}
	return nil
}

// checkStorable checks that a document with an id may be stored ([vectors.CheckDocument]). Programs
// may also store a payload that is not a JSON object: it has no fields.
func checkStorable(id string, payload []byte) error {
	if err := vectors.CheckID(id); err != nil {
		return err
	}
	if p := bytes.TrimLeft(payload, " \t\r\n"); len(p) == 0 || p[0] != '{' {
		return nil
	}
	return vectors.CheckDocument(vectors.Draft{ID: id, Payload: payload})
}

// tokenRange returns the range of the tokens of document i of the batch.
func (b *batch) tokenRange(i int) (first, end int) {
	if i > 0 {
		first = b.ends[i-1]
	}
	return first, b.ends[i]
}

// checkAndReadFields checks that the values of all documents of the batch are finite and, unless
// they are stored already, that they may be stored. It reads the fields of their payloads.
func (b *batch) checkAndReadFields(ctx context.Context, threads int, stored bool) error {
	const size = 64 // documents per call
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

// encoder encodes documents and passes them to a stager.
type encoder struct {
	codec     *codec.Quantizer
	backend   kernels.Backend
	threads   int
	normalize bool
	stager    *stager
	// fallbackPayload, if not nil, returns the payload of a document that comes without one.
	fallbackPayload func(id string) ([]byte, error)
	progress        func(Progress)
	total           int64        // tokens, for progress
	logger          *slog.Logger // may be nil
	// alreadyStored means that the documents come from another file of the index: they were checked
	// when they were added, and those without an id are holes that deleted documents left.
	alreadyStored bool
	// onStaged, if not nil, is called with each document that is staged.
	onStaged func(Arrival)
	// checkPage, if not nil, refuses a payload whose grid of a page does not have as many cells as
	// tokens.
	checkPage func(payload []byte, tokens int) error

	stagedDocs int // documents at the beginning that are staged already: they are only read and encoded
	batchStart     // the next document to stage, and counts of the documents before it
}

// encodeAll encodes and stages the documents of a source. If its vectors on a device leave no room
// to encode them there, it drops them from the device and continues.
func (e *encoder) encodeAll(ctx context.Context, src vectors.Source, memory int64) error {
	err := e.encodeRemaining(ctx, src, memory)
	if resident := residentSource(src); resident != nil && errors.Is(err, kernels.ErrDeviceMemory) {
		dropResident(resident, e.logger, err)
		err = e.encodeRemaining(ctx, src, memory)
	}
	return err
}

// encodeRemaining encodes and stages the documents from e.Doc on, in a pipeline: while one batch is
// staged, the next is encoded, the one after it is checked, and one more is read. Transactions,
// which have the documents of many batches, are written concurrently. After an error in a batch,
// the batches before it are still staged, and their transactions written.
func (e *encoder) encodeRemaining(ctx context.Context, src vectors.Source, memory int64) error {
	tokenEncoder, err := e.codec.NewEncoder(ctx, e.threads, e.backend, e.normalize)
	if err != nil {
		return err
	}
	defer tokenEncoder.Close()
	// Decide whether the vectors are encoded on the device that holds them.
	from := e.Doc
	docs, resident, firstToken := src.Docs, residentSource(src), 0
	if resident != nil && tokenEncoder.CanEncodeResident(resident.Vectors()) {
		docs, firstToken = resident.DocsWithoutTokens, tokensBefore(src, from)
	} else {
		resident = nil
	}
	// Make the batches, and the stages that each of them passes.
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
	// Run the pipeline of batches inside of one that writes transactions. The stager makes the
	// transactions; the slots of the outer pipeline only limit how many wait to be written.
	pending := make([]*transaction, transactionsInFlight)
	err = parallel.Pipeline(ctx, pending, func(acquire func() (*transaction, error), send func(*transaction)) error {
		e.stager.sendTransaction = func(t *transaction) error {
			_, err := acquire()
			if err == nil {
				send(t)
			}
			return err
		}
		return parallel.Pipeline(ctx, batches, readAll, stages...)
	}, e.stager.writeTransaction)
	e.stager.sendTransaction = nil
	if resident != nil && err == nil {
		resident.DropVectors() // the next step may need their memory
	}
	return err
}

// readBatches fills batches with docs, the documents of src that begin with number from: acquire
// returns an empty batch, and send passes on a full one. identitiesOnly means that docs have no
// tokens, because these lie on a device.
func (e *encoder) readBatches(
	ctx context.Context, src vectors.Source, docs iter.Seq2[vectors.Document, error], identitiesOnly bool, from int,
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
		if err == nil && identitiesOnly {
			err = checkIdentity(src, row, d)
		} else if err == nil {
			err = checkDocument(src, row, e.codec.Dim, d)
		}
		if err != nil {
			if b != nil {
				// Prefer an error of an earlier document.
				err = cmp.Or(b.checkAndReadFields(ctx, 1, e.alreadyStored), err)
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

// stageBatch stages the documents of an encoded batch, and updates the counts.
func (e *encoder) stageBatch(ctx context.Context, b *batch) error {
	e.stager.currentBatch = e.batchStart
	e.Zero += int64(b.block.Zero)
	e.Clamped += b.block.Clamped
	e.SumSq += b.block.SumSq
	for i := range b.ids {
		first, end := b.tokenRange(i)
		if e.Doc >= e.stagedDocs {
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

// stageDocument stages document i of an encoded batch, with the tokens firstToken to endToken.
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
		id:            id,
		parent:        parent,
		payload:       payload,
		fields:        fields,
		alreadyStored: e.alreadyStored && id == "", // a hole
		tokens:        blockTokens(&b.block, firstToken, endToken, e.codec),
	})
}
