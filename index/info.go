package index

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// Info describes an index.
type Info struct {
	Path           string         `json:"path"`            // of the file
	FormatVersion  int            `json:"format_version"`  // which programs must know to read it
	FeatureVersion int            `json:"feature_version"` // which programs may pass over; see docs/formats.md
	Generation     uint64         `json:"generation"`      // counts how often all was coded anew
	Built          *Built         `json:"built,omitempty"` // nil where it is not noted
	Digest         string         `json:"digest"`          // of the content; see storage.View.Inspect
	CodecDigest    string         `json:"codec_digest"`    // see Snapshot.CodecDigest
	Header         storage.Header `json:"header"`          // how documents are coded, and how that was trained
	Docs           uint32         `json:"docs"`            // live
	Passages       uint32         `json:"passages"`        // in which some of them are stored
	Deleted        uint32         `json:"deleted_docs"`    // ordinals that were deleted or replaced since the first build
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
		Docs: st.Documents(), Passages: st.Passages, Deleted: st.Docs - st.Live, Ordinals: st.Docs, MaxOrdinals: storage.MaxDocs,
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
	if in.Built, err = readBuilt(s.fileSnapshot); err != nil {
		return nil, err
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
	ch, err := s.ChunkFor(chunk, storage.All, uint32(doc))
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

// Drift says how well the codec of an index fits what was added to it since it was
// trained.
type Drift struct {
	// Trained is how many tokens the index had when its codec was trained; 0: it was not
	// trained, or it is not known.
	Trained uint64 `json:"trained_tokens"`
	// TrainRMSE is the root mean square error of decoded vectors of the training sample;
	// 0: it is not known.
	TrainRMSE float64 `json:"train_rmse"`
	// Added is how many tokens were added since, those deleted again included, AddedRMSE
	// their error.
	Added     uint64  `json:"added_tokens"`
	AddedRMSE float64 `json:"added_rmse"`
	// Ratio of the two errors; 0 where one is not known. Documents like those of the
	// training have 1.1 to 1.4, those of another kind 2 and more.
	Ratio float64 `json:"ratio"`
	// Centroids is how many the index has, Wanted how many a build would train for as
	// many tokens as there are now.
	Centroids int `json:"centroids"`
	Wanted    int `json:"wanted_centroids"`
}

// Drift of the index; it costs nothing.
func (s *Snapshot) Drift() Drift {
	h, st := s.Header(), s.State()
	d := Drift{
		Trained: h.Build.Tokens, TrainRMSE: h.Build.RMSE, Added: st.AddedTokens, AddedRMSE: rootMeanSquare(st.AddedSumSq, int64(st.AddedTokens)),
		Centroids: h.Centroids, Wanted: codec.DefaultK(int64(st.LiveTokens)),
	}
	if d.TrainRMSE > 0 && d.Added > 0 {
		d.Ratio = d.AddedRMSE / d.TrainRMSE
	}
	return d
}

// Defaults returns the search parameters that are stored with the index; nil if
// there are none. They are not to be changed.
func (s *Snapshot) Defaults() (*storage.Defaults, error) { return s.state.defaults() }

// SetDefaults stores search parameters with the index, in one transaction; nil
// removes them. Searches that name none of their own use them from the next
// snapshot on. They stay with the index through additions, deletions and
// compaction, and go when it is built anew. Its digest does not depend on them.
//
// Errors: [ErrOption] for parameters out of range, [storage.ErrReadOnly],
// [storage.ErrOutcomeUnknown], and what writing fails with.
func (ix *Index) SetDefaults(d *storage.Defaults) error {
	if d != nil {
		if err := d.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrOption, err)
		}
	}
	ix.writeLock <- struct{}{}
	defer ix.writeLock.unlock()
	return ix.afterChange(ix.file.Update(func(tx *storage.Tx) error {
		gen, err := tx.Current()
		if err != nil {
			return err
		}
		return tx.PutDefaults(gen, d)
	}))
}

// copyDefaults brings the parameters along into a rewritten index. A damaged
// record stays behind: nothing but speed and recall hangs on it.
func copyDefaults(tx *storage.Tx, gen uint64, snap *Snapshot) error {
	if d, err := snap.Defaults(); err == nil && d != nil {
		return tx.PutDefaults(gen, d)
	}
	return nil
}

// createGeneration makes a generation that nobody sees yet, for documents of a codec.
func createGeneration(f *storage.File, c *codec.Quantizer, build storage.Build, model *storage.Model, normalize bool) (gen uint64, err error) {
	k := c.Kernel()
	h := storage.Header{
		Dim: c.Dim, Nbits: c.Nbits, Centroids: c.K, CentroidType: k.Centroids.Type.String(),
		Step: k.Codebook.Step, GridScale: k.Codebook.Scale, FactorMax: k.FactorMax, Normalize: normalize, Model: model, Build: build,
	}
	for _, g := range k.Codebook.Grid {
		h.Grid = append(h.Grid, int(g))
	}
	return putEmptyGeneration(f, h, k, c.Cutoffs)
}

// putEmptyGeneration makes a generation that nobody sees yet.
func putEmptyGeneration(f *storage.File, h storage.Header, c *kernels.Codec, cutoffs []float32) (gen uint64, err error) {
	err = f.Update(func(tx *storage.Tx) (err error) {
		gen, err = tx.NewGeneration(h, c, cutoffs)
		return err
	})
	return gen, err
}

// Built is when and with what an index was made; it is no part of its digest.
type Built struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
}

const noteBuilt = "built"

// readBuilt is nil where nothing is noted.
func readBuilt(v *storage.Snapshot) (*Built, error) {
	var built Built
	if ok, err := v.Note(noteBuilt, &built); err != nil || !ok {
		return nil, err
	}
	return &built, nil
}

func putBuilt(tx *storage.Tx) error {
	return tx.PutNote(noteBuilt, Built{Time: time.Now().UTC().Truncate(time.Second), Version: Version()})
}

// release is the version that the linker flags of a release set: tags of the repository are
// not those of a module in one of its folders.
var release string

// Version of the program: of its release, else from its build information.
func Version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
