package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// chunkBytes bounds the arrays of one chunk, and transactionBytes the values that one transaction
// writes before it is committed. Both bound memory. (Only the size of the sample and, in large
// collections, of segments depend on the memory budget.) They are variables so that tests see many
// chunks and transactions.
var (
	chunkBytes = 4 << 20
	// transactionBytes is multiplied by the eighths of a GiB in the budget, at most eight. Large
	// transactions pay off because a commit waits for the disk three times.
	transactionBytes = 8 << 20
	// minSegmentBytes is the memory for the postings of a segment with a small budget.
	minSegmentBytes int64 = 16 << 20
	// segmentBudgetShare divides the budget: the quotient is the memory for the postings of a segment.
	segmentBudgetShare int64 = 4
	// maxSegmentBytes is the memory for the postings of a segment with a large budget. A block of
	// 256 lists must fit into one value of the file even if it has all 2²⁹ pairs, which take about 2
	// bytes each there, and the number of pairs must fit into 32 bits.
	maxSegmentBytes int64 = pairBytes << 29
)

// docTableBytes is the size of a document in the table of its chunk, without its id.
const docTableBytes = 16

// stager appends encoded documents to the committed ones of a generation, in transactions of
// bounded size. They are invisible until commit.
type stager struct {
	file       *storage.File
	generation uint64
	codeBytes  int
	// segmentBytes bounds the memory of gathered postings: a segment ends when they exceed it.
	segmentBytes int64
	// writeBytes is the size of one transaction.
	writeBytes int

	state    storage.State // grows; its segments before the staged ones are committed already
	segment  storage.Segment
	postings *postings

	fields  *metadata.Builder
	base    *Snapshot       // the documents are appended to it, nil for a new generation
	docSets storage.DocSets // of the documents of base and of the staged ones
	// isNewID reports whether the generation does not have the id, so that it can be entered when
	// it is staged. Other ids go to lateIDs, and commit enters them. A nil isNewID means that all
	// ids are new.
	isNewID     func(id string) bool
	lateIDs     []stagedID
	parentRun   stagedID // the document whose passages are being staged; an empty id means none
	lastPassage string   // id of the last staged passage of parentRun
	parentCount uint32   // number of documents whose passages are staged

	// checkpoint, if not nil, is stored with each transaction, so that a later build can resume.
	checkpoint    *checkpoint
	hasCheckpoint bool   // checkpoint describes the end of a chunk
	resumableDocs int    // number of documents before the checkpoint in the file
	fieldsFrom    uint32 // the first document in fields
	currentBatch  batchStart

	table                     storage.DocTable
	codes, factors, residuals []byte
	chunkSize                 int // bytes of the three arrays

	ops     []func(*storage.Generation) error // of the next transaction
	ids     []stagedID                        // of the next transaction
	opBytes int                               // bytes of ops and ids
	// sendTransaction receives transactions, which must be written in their order. If it is nil,
	// the stager writes them itself.
	sendTransaction func(*transaction) error
}

// transaction holds operations that are committed together.
type transaction struct {
	ops        []func(*storage.Generation) error
	ids        []stagedID
	checkpoint *checkpoint // or nil
}

// newStager returns a stager that appends to the documents of state, which is empty for a new
// generation. memory is the budget in bytes.
func newStager(f *storage.File, gen uint64, centroids int, state storage.State, memory int64) *stager {
	s := &stager{
		file:         f,
		generation:   gen,
		codeBytes:    storage.CodeBytes(centroids),
		segmentBytes: min(max(memory/segmentBudgetShare, minSegmentBytes), maxSegmentBytes),
		writeBytes:   transactionBytes * int(min(max(memory/(128<<20), 1), 8)),
		state:        state,
		postings:     newPostings(centroids),
		fields:       newFieldBuilder(memory),
		docSets:      storage.DocSets{Deleted: roaring.New(), Payload: roaring.New(), Passages: roaring.New()},
	}
	s.beginSegment()
	return s
}

func (s *stager) beginSegment() {
	s.segment = storage.Segment{ID: s.state.NextSegment, FirstDoc: s.state.Docs}
	s.state.NextSegment++
}

// queueOp adds an operation to the next transaction. bytes is about the size that it writes.
func (s *stager) queueOp(bytes int, op func(*storage.Generation) error) {
	s.ops = append(s.ops, op)
	s.opBytes += bytes
}

// encoded is a document or passage on its way into the file.
type encoded struct {
	id      string          // "" in a hole
	parent  string          // id of the document that it is a passage of. "" means that it is a document
	payload []byte          // to be stored, nil without one, or if the file has it already
	fields  metadata.Fields // of the payload, nil if they were not read
	// alreadyStored means that the file has the id and payload, and that the fields are derived.
	alreadyStored bool
	tokens        encodedTokens
}

// stagedID is an id with its ordinal, or with the N ordinals of its passages, which start at First.
type stagedID struct {
	ID       string
	First, N uint32
}

// put enters the id in the generation.
func (d *stagedID) put(g *storage.Generation) error {
	if d.N > 0 {
		return g.PutPassageRange(d.ID, d.First, d.N)
	}
	return g.PutID(d.ID, d.First)
}

// encodedTokens holds the arrays of tokens, in the layout of a chunk.
type encodedTokens struct{ codes, factors, residuals []byte }

// chunkTokens returns the tokens of a document of a chunk.
func chunkTokens(ch *kernels.Chunk, doc int, c *kernels.Codec) encodedTokens {
	lo, hi := int(ch.Offsets[doc]), int(ch.Offsets[doc+1])
	return sliceTokens(ch.Codes, ch.Factors, ch.Residuals, lo, hi, ch.CodeBytes, c.RowBytes())
}

// blockTokens returns the tokens lo to hi of a block.
func blockTokens(b *codec.Block, lo, hi int, c *codec.Quantizer) encodedTokens {
	return sliceTokens(b.Codes, b.Factors, b.Residuals, lo, hi, c.CodeBytes(), c.RowBytes())
}

// sliceTokens cuts the tokens lo to hi out of arrays; a factor has 2 bytes.
func sliceTokens(codes, factors, residuals []byte, lo, hi, codeBytes, rowBytes int) encodedTokens {
	return encodedTokens{
		codes:     codes[lo*codeBytes : hi*codeBytes],
		factors:   factors[2*lo : 2*hi],
		residuals: residuals[lo*rowBytes : hi*rowBytes],
	}
}

// appendDocument stages one document after the others. It copies the slices of d.
func (s *stager) appendDocument(ctx context.Context, d encoded) error {
	if s.state.Docs >= storage.MaxDocs {
		return ErrTooMany
	}
	tokens := len(d.tokens.codes) / s.codeBytes
	if tokens > storage.MaxTokens {
		return fmt.Errorf("document %q: %w: %d tokens", d.id, ErrTooMany, tokens)
	}
	ordinal := s.state.Docs
	isNew := !d.alreadyStored
	if isNew {
		if err := vectors.CheckID(d.id); err != nil {
			return fmt.Errorf("document %d: %w", ordinal, err)
		}
	}
	if err := s.addToChunk(ctx, &d, tokens); err != nil {
		return err
	}
	s.addPostings(d.tokens.codes, ordinal)
	if isNew {
		if err := s.stageID(ordinal, &d); err != nil {
			return fmt.Errorf("document %d: %w", ordinal, err)
		}
	}
	if d.payload != nil {
		s.queuePayload(ordinal, d.payload)
	}
	if isNew {
		if err := s.addFields(ctx, ordinal, &d); err != nil {
			return err
		}
	}
	s.state.Docs++
	s.segment.Docs++
	s.segment.Tokens += uint64(tokens)
	s.state.Tokens += uint64(tokens)
	if s.postings.memoryBytes() > s.segmentBytes {
		return s.endSegment(ctx)
	}
	return s.flush(ctx, s.writeBytes) // payloads may be larger than everything else
}

// addToChunk adds a document to the chunk, or to a new one if that is full.
func (s *stager) addToChunk(ctx context.Context, d *encoded, tokens int) error {
	t := &d.tokens
	size := docTableBytes + len(d.id) + len(t.codes) + len(t.factors) + len(t.residuals)
	if s.chunkSize+size > chunkBytes {
		if err := s.endChunk(ctx); err != nil {
			return err
		}
	}
	s.chunkSize += size
	s.table.Lengths = append(s.table.Lengths, uint32(tokens))
	s.table.IDs = append(s.table.IDs, d.id)
	s.codes = append(s.codes, t.codes...)
	s.factors = append(s.factors, t.factors...)
	s.residuals = append(s.residuals, t.residuals...)
	return nil
}

// stageID stages the id of an ordinal, and the id of its document after the last of its passages.
func (s *stager) stageID(ordinal uint32, d *encoded) error {
	if d.parent == "" || d.parent != s.parentRun.ID {
		s.endPassages()
	}
	s.queueID(stagedID{ID: d.id, First: ordinal})
	if d.parent == "" {
		return nil
	}
	s.docSets.Passages.Add(ordinal)
	if s.parentRun.ID == "" {
		s.parentRun = stagedID{ID: d.parent, First: ordinal}
	} else if err := checkPassageOrder(s.lastPassage, d.id); err != nil {
		return err
	}
	s.parentRun.N, s.lastPassage = ordinal+1-s.parentRun.First, d.id
	return nil
}

// endPassages ends the passages of a document and queues its id.
func (s *stager) endPassages() {
	if s.parentRun.ID != "" {
		s.parentCount++
		s.queueID(s.parentRun)
	}
	s.parentRun = stagedID{}
}

// queueID enters an id with the next transaction, or adds it to the late ones.
func (s *stager) queueID(d stagedID) {
	if s.isNewID != nil && !s.isNewID(d.ID) {
		s.lateIDs = append(s.lateIDs, d)
		return
	}
	s.ids = append(s.ids, d)
	s.opBytes += len(d.ID) + keyBytes
}

// keyBytes estimates the bytes that a key takes in a transaction, apart from its id or value.
const keyBytes = 64

// queuePayload stores a payload with the next transaction.
func (s *stager) queuePayload(ordinal uint32, payload []byte) {
	s.docSets.Payload.Add(ordinal)
	p := slices.Clone(payload)
	s.queueOp(len(p)+keyBytes, func(g *storage.Generation) error { return g.PutPayload(ordinal, p) })
}

// addFields adds the fields of a payload to the run that is being built.
func (s *stager) addFields(ctx context.Context, ordinal uint32, d *encoded) error {
	if d.fields != nil {
		s.fields.AddFields(ordinal, d.fields)
	} else if err := s.fields.Add(ctx, ordinal, d.payload); err != nil {
		return err
	}
	if !s.fields.Full() {
		return nil
	}
	s.fieldsFrom = ordinal + 1
	return s.flushFields()
}

// appendHole stages a hole: an ordinal without id and tokens, for a document that was deleted.
func (s *stager) appendHole(ctx context.Context) error {
	return s.appendDocument(ctx, encoded{alreadyStored: true})
}

// flushFields queues a run with the fields that were gathered so far.
func (s *stager) flushFields() error {
	if s.fields.Empty() {
		return nil
	}
	run, err := s.fields.Run(&s.state)
	if err != nil {
		return err
	}
	s.queueOp(run.Bytes, run.Put)
	return nil
}

// mergeFields queues the last run of fields, merged with the stored runs that it absorbs.
func (s *stager) mergeFields(ctx context.Context) error {
	// A run that was queued before is newer than the stored ones, so these can no longer be absorbed.
	isFirstRun := s.base != nil && s.state.NextFieldRun == s.base.State().NextFieldRun
	if isFirstRun && !s.fields.Empty() {
		old, err := s.fields.Absorb(ctx, s.base.fileSnapshot, liveDocs(s.base.fileSnapshot), &s.state)
		if err != nil {
			return err
		}
		for _, r := range old {
			s.queueOp(0, func(g *storage.Generation) error { return g.DeleteFieldRun(r.ID) })
		}
	}
	return s.flushFields()
}

// endChunk queues the chunk, and begins a new one.
func (s *stager) endChunk(ctx context.Context) error {
	if len(s.table.Lengths) == 0 {
		return nil
	}
	number := s.state.NextChunk
	s.state.NextChunk++
	s.segment.Chunks = append(s.segment.Chunks, number)
	s.table.First = s.state.Docs - uint32(len(s.table.Lengths))
	table, codes, factors, residuals := s.table, s.codes, s.factors, s.residuals
	seal := sync.OnceValue(func() *storage.SealedChunk {
		return storage.SealChunk(number, &table, codes, factors, residuals)
	})
	go seal() // concurrently with the staging of other documents
	s.queueOp(s.chunkSize, func(g *storage.Generation) error { return g.PutChunk(seal()) })
	s.table, s.chunkSize = storage.DocTable{}, 0
	s.codes = make([]byte, 0, cap(codes))
	s.factors = make([]byte, 0, cap(factors))
	s.residuals = make([]byte, 0, cap(residuals))
	s.updateCheckpoint()
	return s.flush(ctx, s.writeBytes)
}

// flush commits the queued operations if they exceed limit bytes.
func (s *stager) flush(ctx context.Context, limit int) error {
	if s.opBytes <= limit {
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &transaction{ops: s.ops, ids: s.ids}
	if s.hasCheckpoint {
		current := *s.checkpoint
		t.checkpoint = &current
	}
	s.ops, s.ids, s.opBytes = nil, nil, 0
	if s.sendTransaction != nil {
		return s.sendTransaction(t)
	}
	return s.writeTransaction(t)
}

// writeTransaction commits a transaction, with its checkpoint.
func (s *stager) writeTransaction(t *transaction) error {
	err := s.file.Update(func(tx *storage.Tx) error {
		if err := tx.MarkStaging(); err != nil {
			return err
		}
		if t.checkpoint != nil {
			if err := tx.PutBuilding(t.checkpoint); err != nil {
				return err
			}
		}
		g, err := tx.Generation(s.generation)
		if err != nil {
			return err
		}
		return t.execute(g)
	})
	if err == nil && t.checkpoint != nil {
		s.resumableDocs = int(t.checkpoint.State.Docs)
	}
	return err
}

// execute runs the operations, and enters the ids in ascending order: bbolt moves the keys behind a
// new one within a page that has not been split yet, so entering ids in another order would take
// time that grows with the square of their number.
func (t *transaction) execute(g *storage.Generation) error {
	for _, op := range t.ops {
		if err := op(g); err != nil {
			return err
		}
	}
	sortIDs(t.ids)
	for i := range t.ids {
		d := &t.ids[i]
		if g.HasID(d.ID) {
			return fmt.Errorf("document %d: %w: %q", d.First, ErrDuplicateID, d.ID)
		}
		if err := d.put(g); err != nil {
			return err
		}
	}
	return nil
}

// sortIDs sorts by id, then by ordinal.
func sortIDs(ids []stagedID) {
	slices.SortFunc(ids, func(a, b stagedID) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), cmp.Compare(a.First, b.First))
	})
}

// endSegment queues the postings of the segment, and begins a new one.
func (s *stager) endSegment(ctx context.Context) error {
	if err := s.endChunk(ctx); err != nil {
		return err
	}
	if s.segment.Docs > 0 {
		id := s.segment.ID
		err := s.postings.encodeBlocks(func(block uint32, data []byte) error {
			s.segment.Blocks++
			s.queueOp(len(data), func(g *storage.Generation) error { return g.PutPostings(id, block, data) })
			return s.flush(ctx, s.writeBytes)
		})
		if err != nil {
			return err
		}
		s.state.Segments = append(s.state.Segments, s.segment)
		s.beginSegment()
	}
	s.postings.reset()
	return nil
}

// countDocuments returns the numbers of live documents and of passages for a state that is being
// committed.
func (s *stager) countDocuments(state *storage.State) (docs, passages int) {
	passages = int(s.docSets.Passages.GetCardinality())
	return int(state.Live) - passages + int(state.PassageParents), passages
}

// commit makes all staged documents visible in one transaction. complete adds operations to that
// transaction; it may change the state, and the document sets of the stager. Late ids are entered
// after it.
func (s *stager) commit(
	ctx context.Context, complete func(*storage.Tx, *storage.Generation, *storage.State) error,
) error {
	// Queue everything that is still open: passages, postings, fields.
	s.endPassages()
	if err := s.endSegment(ctx); err != nil {
		return err
	}
	if err := s.mergeFields(ctx); err != nil {
		return err
	}
	// Commit the queue, the operations of the caller, the late ids, and the state.
	state := s.state
	state.NextSegment = s.segment.ID // the segment that endSegment began stays empty
	state.PassageParents += s.parentCount
	return s.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(s.generation)
		if err != nil {
			return err
		}
		if err := (&transaction{ops: s.ops, ids: s.ids}).execute(g); err != nil {
			return err
		}
		if err := complete(tx, g, &state); err != nil {
			return err
		}
		sortIDs(s.lateIDs)
		for i := range s.lateIDs {
			if err := s.lateIDs[i].put(g); err != nil {
				return err
			}
		}
		if err := g.PutDocSets(&state, s.docSets); err != nil {
			return err
		}
		return g.PutState(state)
	})
}
