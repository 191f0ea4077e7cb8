package index

import (
	"context"
	"errors"

	"github.com/plaid-ir/plaid/storage"
)

// Info describes an index.
type Info struct {
	Path           string         `json:"path"`            // of the file
	FormatVersion  int            `json:"format_version"`  // which programs must know to read it
	FeatureVersion int            `json:"feature_version"` // which programs may pass over; see docs/formats.md
	Generation     uint64         `json:"generation"`      // counts how often all was coded anew
	Built          *Built         `json:"built,omitempty"` // nil in files of the first programs
	Digest         string         `json:"digest"`          // of the content; see storage.View.Inspect
	CodecDigest    string         `json:"codec_digest"`    // see Snapshot.CodecDigest
	Header         storage.Header `json:"header"`          // how documents are coded, and how that was trained
	Docs           uint32         `json:"docs"`            // live
	Deleted        uint32         `json:"deleted_docs"`    // documents that were deleted or replaced since the first build
	// Ordinals is how many were given out, of MaxOrdinals that there are. Documents
	// that were deleted keep theirs for good, and a few bytes each.
	Ordinals      uint32        `json:"ordinals"`
	MaxOrdinals   uint32        `json:"max_ordinals"`
	Tokens        uint64        `json:"tokens"`         // live
	DeletedTokens uint64        `json:"deleted_tokens"` // of deleted documents, until the index is compacted
	Clamped       uint64        `json:"clamped_tokens"` // tokens whose factor did not fit; see [storage.State]
	Drift         Drift         `json:"drift"`          // how well the codec fits what was added
	Segments      int           `json:"segments"`       // runs of documents that were added together
	Chunks        int           `json:"chunks"`         // blocks of documents
	Pages         storage.Pages `json:"pages"`          // of the file
	Sizes         storage.Sizes `json:"bytes"`          // where the bytes of the file are
	// BytesPerToken is what each stored token takes: codes, residuals, factors,
	// documents, ids and postings; neither codec nor payload, nor what is derived of it.
	BytesPerToken float64 `json:"bytes_per_token"`
	// Defaults are the stored search parameters, nil without any.
	Defaults *storage.Defaults `json:"search_defaults,omitempty"`
	// Applied is the last entry of a log that was done to the index; see [Entry].
	Applied uint64 `json:"applied,omitempty"`
}

// Info describes the index as it is now. Asked of the process that changes the
// index, it tells also what is held for its snapshots; see [storage.Pages].
func (ix *Index) Info(ctx context.Context) (in *Info, err error) {
	s, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Info(ctx)
}

// Info walks the whole index.
func (s *Snapshot) Info(ctx context.Context) (*Info, error) {
	st := s.State()
	format, feature := s.Versions()
	in := &Info{
		Path: s.Path(), FormatVersion: format, FeatureVersion: feature,
		Generation: s.Generation(), Header: s.Header(),
		Docs: st.Live, Deleted: st.Docs - st.Live, Ordinals: st.Docs, MaxOrdinals: storage.MaxDocs,
		Tokens: st.LiveTokens, DeletedTokens: st.Tokens - st.LiveTokens,
		Clamped: st.Clamped, Drift: s.Drift(), Segments: s.Segments(), Chunks: s.Chunks(),
	}
	var err error
	if in.Digest, in.Sizes, err = s.Inspect(ctx); err != nil {
		return nil, err
	}
	if in.CodecDigest, err = s.CodecDigest(); err != nil {
		return nil, err
	}
	if in.Pages, err = s.Pages(); err != nil {
		return nil, err
	}
	var built Built
	if ok, err := s.Note(noteBuilt, &built); err != nil {
		return nil, err
	} else if ok {
		in.Built = &built
	}
	if in.Defaults, err = s.Defaults(); err != nil {
		return nil, err
	}
	applied, err := s.Applied()
	if err != nil {
		return nil, err
	}
	in.Applied = applied.Sequence
	if st.Tokens > 0 {
		in.BytesPerToken = float64(in.Sizes.Total()-in.Sizes.Codec-in.Sizes.Payload-in.Sizes.Fields) / float64(st.Tokens)
	}
	return in, nil
}

// Vectors decodes a document: [tokens, dim], row-major.
func (s *Snapshot) Vectors(ordinal uint32) (v []float32, err error) {
	defer storage.Guard(s.Path(), &err)()
	chunk, doc, ok := s.Locate(ordinal)
	if !ok || !s.Live(ordinal) {
		return nil, ErrNotFound
	}
	ch, err := s.Chunk(chunk, storage.All)
	if err != nil {
		return nil, err
	}
	lo, hi := int(ch.Offsets[doc]), int(ch.Offsets[doc+1])
	v = make([]float32, (hi-lo)*s.Dim())
	s.Quantizer().DecodeTokens(v, ch, lo, hi)
	return v, nil
}

// Verify looks at every byte of the index as it is now: checksums, the pages of the
// B+tree, and that codes, postings and ids agree. The error wraps [storage.ErrCorrupt].
func (ix *Index) Verify(ctx context.Context) (err error) {
	s, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Verify(ctx)
}
