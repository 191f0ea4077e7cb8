package index

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// A build stages documents in transactions that nobody sees. With each it notes what it
// needs to go on, as of the last chunk that was complete then; a build that finds such a
// note of the same input and options removes what came after, fills its memory from what
// is staged, and goes on with the next document. So the file is that of a build that was
// not interrupted, to the byte.

// checkpoint is the note.
type checkpoint struct {
	// Tag stands for input and options.
	Tag        string
	Generation uint64
	// State has the segments that are complete, Segment is the open one.
	State   storage.State
	Segment storage.Segment
	// Run is the document whose passages were being staged, Passage the last of them, Parents how
	// many documents had been staged as passages.
	Run     staged
	Passage string
	Parents uint32
	// FieldsFrom is the first document of the run of fields that has not been written.
	FieldsFrom uint32
	// Batch is the batch of documents that the first one behind the checkpoint is of.
	Batch batchStart
	// Train is how the codec was trained, SampleDocs on how many documents.
	Train      codec.TrainReport
	SampleDocs int
}

// batchStart is where a batch of documents begins, and what was counted before.
type batchStart struct {
	Doc, Empty, Clamped int
	SumSq               float64
	Tokens, Zero        int64
}

// tag stands for what decides the content of a build: the same input, as the caller
// says and as far as the source shows, and the same options of the same program.
func (o *BuildOptions) tag(src vectors.Source, backend string, build storage.Build) (string, error) {
	sum := sha256.New()
	text, err := json.Marshal([]any{
		Version(), storage.FormatVersion, storage.FeatureVersion, o.Input, backend, src.Dim(), src.Len(), build, o.Nbits, o.Centroids, o.SampleDocs,
		o.Iterations, o.NoDimScales, o.NoCentroidScales, o.Unnormalized, o.Memory, o.Model, chunkBytes,
	})
	if err != nil {
		return "", err
	}
	sum.Write(text)
	if o.Codec != nil {
		c := o.Codec.Kernel()
		sum.Write(c.Centroids.Data)
		text, err := json.Marshal([]any{c.Codebook, c.DimScale, c.CentroidScale, c.FactorMax, o.Codec.Cutoffs})
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	for i := range src.Len() {
		sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(src.Rows(i))))
		sum.Write([]byte(src.ID(i)))
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// resumable finds the checkpoint that a build may go on from; nil without. What is
// left of another build is removed.
func resumable(f *storage.File, tag string) (*checkpoint, error) {
	var c checkpoint
	ok, err := f.Building(&c)
	if err == nil && ok && c.Tag == tag {
		return &c, nil
	}
	if err != nil && !errors.Is(err, storage.ErrCorrupt) {
		return nil, err
	}
	return nil, f.Discard()
}

// stagedCodec is the codec of a build that goes on.
func stagedCodec(f *storage.File, c *checkpoint) (*codec.Quantizer, error) {
	_, k, cutoffs, err := f.Staged(c.Generation)
	if err != nil {
		return nil, err
	}
	return quantizerOf(f.Path(), k, cutoffs)
}

// noteCheckpoint notes where the stager is, at the end of a chunk.
func (s *stager) noteCheckpoint() {
	if s.note == nil {
		return
	}
	s.note.State, s.note.Segment, s.note.FieldsFrom, s.note.Batch = s.state, s.segment, s.fieldsFrom, s.batch
	s.note.Run, s.note.Passage, s.note.Parents = s.run, s.passage, s.parents
	s.note.State.Segments = slices.Clone(s.state.Segments)
	s.note.Segment.Chunks = slices.Clone(s.segment.Chunks)
	s.marked = true
}

// restore brings a new stager to where a checkpoint was.
func (s *stager) restore(ctx context.Context, c *checkpoint) error {
	s.state, s.segment, s.fieldsFrom, s.batch = c.State, c.Segment, c.FieldsFrom, c.Batch
	s.run, s.passage, s.parents = c.Run, c.Passage, c.Parents
	err := s.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(s.generation)
		if err != nil {
			return err
		}
		beyond := c.State
		beyond.NextSegment = c.Segment.ID // whose lists have yet to be written
		open := c.State.Docs
		if c.Run.ID != "" {
			open = c.Run.First
		}
		if err := g.Keep(beyond, open); err != nil {
			return err
		}
		s.sets.Payload = g.StagedPayloads()
		if err := s.restorePassages(ctx, g); err != nil {
			return err
		}
		if err := s.restorePostings(ctx, g); err != nil {
			return err
		}
		for doc := c.FieldsFrom; doc < c.State.Docs; doc++ {
			p, err := g.StagedPayload(doc)
			if err != nil {
				return err
			}
			if err := s.fields.Add(ctx, doc, slices.Clone(p)); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	s.noteCheckpoint()
	s.noted = int(c.State.Docs)
	if s.postings.bytes() > s.segmentBytes { // it was about to end
		return s.endSegment(ctx)
	}
	return nil
}

// restorePassages finds the passages by the payloads that are staged.
func (s *stager) restorePassages(ctx context.Context, g *storage.Generation) error {
	if s.parents == 0 && s.run.ID == "" {
		return nil
	}
	for it := s.sets.Payload.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		ordinal := it.Next()
		payload, err := g.StagedPayload(ordinal)
		if err != nil {
			return err
		}
		if vectors.HasPassage(payload) {
			s.sets.Passages.Add(ordinal)
		}
	}
	return nil
}

// restorePostings gathers the postings of the open segment from its codes.
func (s *stager) restorePostings(ctx context.Context, g *storage.Generation) error {
	next := s.segment.FirstDoc
	for _, number := range s.segment.Chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		first, lengths, codes, err := g.StagedChunk(number)
		if err != nil {
			return err
		}
		tokens := uint64(0)
		for _, n := range lengths {
			tokens += uint64(n)
		}
		if first != next || uint64(len(codes)) != tokens*uint64(s.codeBytes) {
			return &storage.CorruptError{Path: s.file.Path(), What: fmt.Sprintf("staged chunk %d", number)}
		}
		for _, n := range lengths {
			s.notePostings(codes[:int(n)*s.codeBytes], next)
			codes = codes[int(n)*s.codeBytes:]
			next++
		}
	}
	if next != s.state.Docs {
		return &storage.CorruptError{Path: s.file.Path(), What: fmt.Sprintf("%d staged documents of %d", next, s.state.Docs)}
	}
	return nil
}

// notePostings notes the codes of a document.
func (s *stager) notePostings(codes []byte, ordinal uint32) {
	for ; len(codes) > 0; codes = codes[s.codeBytes:] {
		var code uint32
		if s.codeBytes == 2 {
			code = uint32(binary.LittleEndian.Uint16(codes))
		} else {
			code = binary.LittleEndian.Uint32(codes)
		}
		s.postings.note(code, ordinal)
	}
}
