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

// A build stages documents in transactions that readers do not see. With each it stores a
// checkpoint: the state that it needs to continue, as of the last complete chunk. A build that
// finds a checkpoint of the same input and options removes everything that was staged after it,
// restores its memory from the staged documents, and continues with the next document. So the file
// is that of an uninterrupted build, to the byte.

// checkpoint is the stored state of a build.
type checkpoint struct {
	// Tag is a digest of input and options.
	Tag        string
	Generation uint64
	// State has the complete segments, Segment is the open one.
	State   storage.State
	Segment storage.Segment
	// Run is the document whose passages were being staged, Passage the id of the last of them,
	// Parents the number of documents that had been staged as passages.
	Run     stagedID
	Passage string
	Parents uint32
	// FieldsFrom is the first document of the run of fields that is not written yet.
	FieldsFrom uint32
	// Batch is the start of the batch with the first document after the checkpoint.
	Batch batchStart
	// Train describes the training of the codec, SampleDocs is the number of documents in its
	// sample.
	Train      codec.TrainReport
	SampleDocs int
}

// batchStart is the first document of a batch, with the counts before it.
type batchStart struct {
	Doc, Empty, Clamped int
	SumSq               float64
	Tokens, Zero        int64
}

// inputDigest returns a digest of everything that decides the content of a build: the input, as the
// caller names it and as far as the source shows it, and the options and version of the program.
func (o *BuildOptions) inputDigest(src vectors.Source, backend string, build storage.Build) (string, error) {
	sum := sha256.New()
	text, err := json.Marshal([]any{
		Version(), storage.FormatVersion, storage.FeatureVersion, o.Input, backend, src.Dim(), src.Len(), build,
		o.Nbits, o.Centroids, o.SampleDocs, o.Iterations, o.NoDimScales, o.NoCentroidScales, o.Unnormalized,
		o.Memory, o.Model, chunkBytes,
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

// findCheckpoint returns the checkpoint from which a build can continue, or nil. It removes the
// remains of another build.
func findCheckpoint(f *storage.File, tag string) (*checkpoint, error) {
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

// checkpointCodec returns the codec of the interrupted build.
func checkpointCodec(f *storage.File, c *checkpoint) (*codec.Quantizer, error) {
	_, k, cutoffs, err := f.Staged(c.Generation)
	if err != nil {
		return nil, err
	}
	return newQuantizer(f.Path(), k, cutoffs)
}

// updateCheckpoint sets the checkpoint to the state of the stager, at the end of a chunk.
func (s *stager) updateCheckpoint() {
	if s.checkpoint == nil {
		return
	}
	c := s.checkpoint
	c.State, c.Segment, c.FieldsFrom, c.Batch = s.state, s.segment, s.fieldsFrom, s.currentBatch
	c.Run, c.Passage, c.Parents = s.parentRun, s.lastPassage, s.parentCount
	c.State.Segments = slices.Clone(s.state.Segments)
	c.Segment.Chunks = slices.Clone(s.segment.Chunks)
	s.hasCheckpoint = true
}

// restore gives a new stager the state of a checkpoint.
func (s *stager) restore(ctx context.Context, c *checkpoint) error {
	s.state, s.segment, s.fieldsFrom, s.currentBatch = c.State, c.Segment, c.FieldsFrom, c.Batch
	s.parentRun, s.lastPassage, s.parentCount = c.Run, c.Passage, c.Parents
	err := s.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(s.generation)
		if err != nil {
			return err
		}
		// Remove everything that was staged after the checkpoint.
		staged := c.State
		staged.NextSegment = c.Segment.ID // its postings have not been written yet
		openParent := c.State.Docs
		if c.Run.ID != "" {
			openParent = c.Run.First
		}
		if err := g.RemoveBeyond(staged, openParent); err != nil {
			return err
		}
		// Restore the memory from the staged documents.
		s.docSets.Payload = g.StagedPayloads()
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
	s.updateCheckpoint()
	s.resumableDocs = int(c.State.Docs)
	if s.postings.memoryBytes() > s.segmentBytes { // the segment was about to end
		return s.endSegment(ctx)
	}
	return nil
}

// restorePassages finds the passages among the staged documents by their payloads.
func (s *stager) restorePassages(ctx context.Context, g *storage.Generation) error {
	if s.parentCount == 0 && s.parentRun.ID == "" {
		return nil
	}
	for it := s.docSets.Payload.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		ordinal := it.Next()
		payload, err := g.StagedPayload(ordinal)
		if err != nil {
			return err
		}
		if vectors.HasPassage(payload) {
			s.docSets.Passages.Add(ordinal)
		}
	}
	return nil
}

// restorePostings gathers the postings of the open segment from its staged codes.
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
			s.addPostings(codes[:int(n)*s.codeBytes], next)
			codes = codes[int(n)*s.codeBytes:]
			next++
		}
	}
	if next != s.state.Docs {
		what := fmt.Sprintf("%d staged documents of %d", next, s.state.Docs)
		return &storage.CorruptError{Path: s.file.Path(), What: what}
	}
	return nil
}

// addPostings adds the codes of a document to the postings.
func (s *stager) addPostings(codes []byte, ordinal uint32) {
	for ; len(codes) > 0; codes = codes[s.codeBytes:] {
		var code uint32
		if s.codeBytes == 2 {
			code = uint32(binary.LittleEndian.Uint16(codes))
		} else {
			code = binary.LittleEndian.Uint32(codes)
		}
		s.postings.addPair(code, ordinal)
	}
}
