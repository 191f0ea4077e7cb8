package index

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Bytes of one chunk's arrays, and of the values that one transaction writes
// before it is committed. Both bound memory. (Of the budget, only the size of the
// sample and, in large collections, of segments depend.)
var (
	chunkBytes = 4 << 20 // variables, so that tests see many chunks and transactions
	stageBytes = 8 << 20
	// minSegmentBytes is what the postings of a segment may take, however small the
	// budget.
	minSegmentBytes int64 = 16 << 20
	segmentShare    int64 = 4 // one of so many bytes of the budget is for them
)

// docBytes is what a document takes in the table of its chunk, beside its id.
const docBytes = 8

// stager writes encoded documents behind the committed ones of a generation,
// in transactions of bounded size. Nobody sees them until commit.
type stager struct {
	file      *storage.File
	gen       uint64
	codeBytes int
	// segmentBytes bounds the memory of gathered postings: a segment ends when
	// they exceed it.
	segmentBytes int64

	state storage.State // grows; its segments below the staged ones are committed already
	seg   storage.Segment
	post  *postings

	fields *fieldRuns
	before *Snapshot // what the documents are added to; nil: nothing

	// note, where set, is put into each transaction, so that a build can go on.
	note       *checkpoint
	marked     bool   // it says where
	fieldsFrom uint32 // the first document that fields has
	batch      batchStart

	table                     storage.DocTable
	codes, factors, residuals []byte
	chunk                     int // bytes that these will take

	ops     []func(*storage.Generation) error // of the next transaction
	opBytes int
}

func newStager(f *storage.File, gen uint64, centroids int, state storage.State, memory int64) *stager {
	s := &stager{
		file: f, gen: gen, codeBytes: storage.CodeBytes(centroids),
		segmentBytes: max(memory/segmentShare, minSegmentBytes), state: state, post: newPostings(centroids), fields: newFieldRuns(memory),
	}
	s.beginSegment()
	return s
}

func (s *stager) beginSegment() {
	s.seg = storage.Segment{ID: s.state.NextSegment, FirstDoc: s.state.Docs}
	s.state.NextSegment++
}

func (s *stager) do(bytes int, op func(*storage.Generation) error) {
	s.ops = append(s.ops, op)
	s.opBytes += bytes
}

// encoded is a document on its way into the file.
type encoded struct {
	id string
	// fresh: the id is to be entered now; it must not be there.
	fresh                     bool
	payload                   []byte // to be stored; nil: none
	keepPayload               bool   // a payload is in the file already
	again                     bool   // the document is in the file already, and its fields are derived
	codes, factors, residuals []byte
}

// stage writes one document behind the others. The slices are copied.
func (s *stager) stage(ctx context.Context, d encoded) error {
	if s.state.Docs >= storage.MaxDocs {
		return ErrTooMany
	}
	ordinal := s.state.Docs
	codes, id := d.codes, d.id
	tokens := len(codes) / s.codeBytes
	if tokens > storage.MaxTokens {
		return fmt.Errorf("document %q: %w: %d tokens", id, ErrTooMany, tokens)
	}
	if d.fresh {
		if err := checkID(id); err != nil {
			return fmt.Errorf("document %d: %w", ordinal, err)
		}
	}
	size := docBytes + len(id) + len(codes) + len(d.factors) + len(d.residuals)
	if s.chunk+size > chunkBytes {
		if err := s.endChunk(ctx); err != nil {
			return err
		}
	}
	s.chunk += size
	s.table.Lengths = append(s.table.Lengths, uint32(tokens))
	s.table.IDs = append(s.table.IDs, id)
	s.table.Payloads = append(s.table.Payloads, d.keepPayload || d.payload != nil)
	s.codes = append(s.codes, codes...)
	s.factors = append(s.factors, d.factors...)
	s.residuals = append(s.residuals, d.residuals...)
	s.list(codes, ordinal)
	if d.fresh {
		s.do(len(id)+64, func(g *storage.Generation) error {
			if g.HasID(id) {
				return fmt.Errorf("document %d: %w: %q", ordinal, ErrDuplicateID, id)
			}
			return g.PutID(id, ordinal)
		})
	}
	if d.payload != nil {
		p := append([]byte{}, d.payload...)
		s.do(len(p)+64, func(g *storage.Generation) error { return g.PutPayload(ordinal, p) })
	}
	if !d.again {
		s.fields.builder.Add(ordinal, d.payload)
		if s.fields.builder.Bytes() > s.fields.limit {
			if err := s.endFields(); err != nil {
				return err
			}
			s.fieldsFrom = ordinal + 1
		}
	}
	s.state.Docs++
	s.seg.Docs++
	s.seg.Tokens += uint64(tokens)
	s.state.Tokens += uint64(tokens)
	if s.post.bytes() > s.segmentBytes {
		return s.endSegment(ctx)
	}
	return s.flush(ctx, stageBytes) // payloads can be larger than all else
}

// checkID refuses ids that the file or an export could not hold; sources of
// package vectors have done so already.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: is empty", vectors.ErrID)
	case len(id) > vectors.MaxIDBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", vectors.ErrID, len(id), vectors.MaxIDBytes)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("%w: %q is not UTF-8 or has a control character", vectors.ErrID, id)
	}
	return nil
}

// hole stages the place of a document that is gone.
func (s *stager) hole(ctx context.Context) error {
	return s.stage(ctx, encoded{again: true})
}

// endFields writes what has been derived from payloads so far as a run.
func (s *stager) endFields() error {
	if s.fields.builder.Empty() {
		return nil
	}
	run, err := s.fields.take(&s.state)
	s.do(run.bytes, run.put)
	return err
}

// mergeFields writes the last run, with those that it takes in.
func (s *stager) mergeFields(ctx context.Context) error {
	if s.before != nil && !s.fields.builder.Empty() && s.state.NextFieldRun == s.before.State().NextFieldRun {
		old, err := s.fields.absorb(ctx, s.before, &s.state)
		if err != nil {
			return err
		}
		for _, id := range old {
			s.do(0, func(g *storage.Generation) error { return g.DeleteFieldRun(id) })
		}
	}
	return s.endFields()
}

func (s *stager) endChunk(ctx context.Context) error {
	if len(s.table.Lengths) == 0 {
		return nil
	}
	number := s.state.NextChunk
	s.state.NextChunk++
	s.seg.Chunks = append(s.seg.Chunks, number)
	s.table.First = s.state.Docs - uint32(len(s.table.Lengths))
	table, codes, factors, residuals := s.table, s.codes, s.factors, s.residuals
	s.do(s.chunk, func(g *storage.Generation) error {
		return g.PutChunk(number, &table, codes, factors, residuals)
	})
	s.table, s.chunk = storage.DocTable{}, 0
	s.codes = make([]byte, 0, cap(codes))
	s.factors = make([]byte, 0, cap(factors))
	s.residuals = make([]byte, 0, cap(residuals))
	s.mark()
	return s.flush(ctx, stageBytes)
}

// flush commits the gathered operations once they exceed limit bytes.
func (s *stager) flush(ctx context.Context, limit int) error {
	if s.opBytes <= limit {
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.file.Update(func(tx *storage.Tx) error {
		if err := tx.MarkStaging(); err != nil {
			return err
		}
		if s.marked {
			if err := tx.PutBuilding(s.note); err != nil {
				return err
			}
		}
		g, err := tx.Generation(s.gen)
		if err != nil {
			return err
		}
		return s.run(g)
	})
}

func (s *stager) run(g *storage.Generation) error {
	for _, op := range s.ops {
		if err := op(g); err != nil {
			return err
		}
	}
	clear(s.ops)
	s.ops, s.opBytes = s.ops[:0], 0
	return nil
}

func (s *stager) endSegment(ctx context.Context) error {
	if err := s.endChunk(ctx); err != nil {
		return err
	}
	if s.seg.Docs > 0 {
		id := s.seg.ID
		err := s.post.blocks(func(block uint32, data []byte) error {
			s.seg.Blocks++
			s.do(len(data), func(g *storage.Generation) error { return g.PutPostings(id, block, data) })
			return s.flush(ctx, stageBytes)
		})
		if err != nil {
			return err
		}
		s.state.Segments = append(s.state.Segments, s.seg)
		s.beginSegment()
	}
	s.post.reset()
	return nil
}

// commit makes everything visible in one transaction. more adds to that
// transaction; it may change the state.
func (s *stager) commit(ctx context.Context, more func(*storage.Tx, *storage.Generation, *storage.State) error) error {
	if err := s.endSegment(ctx); err != nil {
		return err
	}
	if err := s.mergeFields(ctx); err != nil {
		return err
	}
	state := s.state
	state.NextSegment = s.seg.ID
	return s.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(s.gen)
		if err != nil {
			return err
		}
		if err := s.run(g); err != nil {
			return err
		}
		if err := more(tx, g, &state); err != nil {
			return err
		}
		return g.PutState(state)
	})
}
