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
	Path           string         `json:"path"`            // path of the file
	FormatVersion  int            `json:"format_version"`  // programs must support it to read the file
	FeatureVersion int            `json:"feature_version"` // programs may ignore it; see docs/formats.md
	Generation     uint64         `json:"generation"`      // number of times that all documents were encoded
	Built          *Built         `json:"built,omitempty"` // nil if unknown
	Digest         string         `json:"digest"`          // of the content; see storage.Snapshot.Inspect
	CodecDigest    string         `json:"codec_digest"`    // see Snapshot.CodecDigest
	Header         storage.Header `json:"header"`          // the encoding of documents, and its training
	Docs           uint32         `json:"docs"`            // live documents
	Passages       uint32         `json:"passages"`        // passages in which some of them are stored
	// Deleted counts the ordinals that were deleted or replaced since the first build.
	Deleted uint32 `json:"deleted_docs"`
	// Ordinals is the number of ordinals that were assigned, of at most MaxOrdinals. Deleted
	// documents keep theirs for good, and a few bytes each.
	Ordinals      uint32        `json:"ordinals"`
	MaxOrdinals   uint32        `json:"max_ordinals"`
	Tokens        uint64        `json:"tokens"`         // tokens of live documents
	DeletedTokens uint64        `json:"deleted_tokens"` // tokens of deleted documents, until compaction
	Clamped       uint64        `json:"clamped_tokens"` // tokens whose factor did not fit; see [storage.State]
	Drift         Drift         `json:"drift"`          // how well the codec fits added documents
	Segments      int           `json:"segments"`       // groups of documents that were added together
	Chunks        int           `json:"chunks"`         // runs of documents in the file
	Pages         storage.Pages `json:"pages"`          // pages of the file
	Sizes         storage.Sizes `json:"bytes"`          // bytes of the file by use
	// BytesPerToken is the size of a stored token: codes, residuals, factors, document tables, ids
	// and postings; neither codec nor payloads, nor fields derived from payloads.
	BytesPerToken float64 `json:"bytes_per_token"`
	// Defaults are the stored search parameters, or nil.
	Defaults *storage.Defaults `json:"search_defaults,omitempty"`
	// Applied is the last entry of a log that was applied to the index; see [Entry].
	Applied uint64 `json:"applied,omitempty"`
}

// Info describes the current state of the index. In the process that changes the index, it includes
// the pages held for its snapshots; see [storage.Pages].
func (ix *Index) Info(ctx context.Context) (in *Info, err error) {
	s, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Info(ctx)
}

// Info walks the whole index and describes it.
func (s *Snapshot) Info(ctx context.Context) (*Info, error) {
	st := s.State()
	format, feature := s.Versions()
	in := &Info{
		Path:           s.Path(),
		FormatVersion:  format,
		FeatureVersion: feature,
		Generation:     s.Generation(),
		Header:         s.Header(),
		Docs:           st.Documents(),
		Passages:       st.Passages,
		Deleted:        st.Docs - st.Live,
		Ordinals:       st.Docs,
		MaxOrdinals:    storage.MaxDocs,
		Tokens:         st.LiveTokens,
		DeletedTokens:  st.Tokens - st.LiveTokens,
		Clamped:        st.Clamped,
		Drift:          s.Drift(),
		Segments:       s.Segments(),
		Chunks:         s.Chunks(),
	}
	// Read the digests, the pages and the notes.
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
		notCounted := in.Sizes.Codec + in.Sizes.Payload + in.Sizes.Fields
		in.BytesPerToken = float64(in.Sizes.Total()-notCounted) / float64(st.Tokens)
	}
	return in, nil
}

// Vectors returns the decoded vectors of a document: [tokens, dim], row-major.
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

// Verify reads every byte of the current state of the index: it verifies checksums and the pages of
// the B+tree, and checks that codes, postings and ids agree. The error wraps [storage.ErrCorrupt].
func (ix *Index) Verify(ctx context.Context) (err error) {
	s, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Verify(ctx)
}

// Drift describes how well the codec of an index fits the documents that were added since its
// training.
type Drift struct {
	// Trained is the number of tokens that the index had when its codec was trained. 0 means that
	// it was not trained, or that the number is unknown.
	Trained uint64 `json:"trained_tokens"`
	// TrainRMSE is the root mean square error of the decoded vectors of the training sample; 0
	// means unknown.
	TrainRMSE float64 `json:"train_rmse"`
	// Added is the number of tokens that were added since, including those deleted again; AddedRMSE
	// is their error.
	Added     uint64  `json:"added_tokens"`
	AddedRMSE float64 `json:"added_rmse"`
	// Ratio is AddedRMSE / TrainRMSE, or 0 if one of them is unknown. Documents like those of the
	// training have 1.1 to 1.4, other kinds of documents 2 and more.
	Ratio float64 `json:"ratio"`
	// Centroids is the number of centroids of the index, Wanted the number that a build of the
	// current tokens would train.
	Centroids int `json:"centroids"`
	Wanted    int `json:"wanted_centroids"`
}

// Drift returns the drift of the index. It only reads counters.
func (s *Snapshot) Drift() Drift {
	h, state := s.Header(), s.State()
	d := Drift{
		Trained:   h.Build.Tokens,
		TrainRMSE: h.Build.RMSE,
		Added:     state.AddedTokens,
		AddedRMSE: rootMeanSquare(state.AddedSumSq, int64(state.AddedTokens)),
		Centroids: h.Centroids,
		Wanted:    codec.DefaultK(int64(state.LiveTokens)),
	}
	if d.TrainRMSE > 0 && d.Added > 0 {
		d.Ratio = d.AddedRMSE / d.TrainRMSE
	}
	return d
}

// Defaults returns the search parameters that are stored with the index, or nil. Do not change them.
func (s *Snapshot) Defaults() (*storage.Defaults, error) { return s.state.defaults() }

// SetDefaults stores search parameters with the index, in one transaction. nil removes them. From
// the next snapshot on, searches use them for parameters that they do not set. They survive
// additions, deletions and compaction, and are lost when the index is built again. They do not
// change its digest.
//
// Errors: [ErrOption] for parameters out of range, [storage.ErrReadOnly],
// [storage.ErrOutcomeUnknown], and those of writing.
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

// copyDefaults copies the parameters into a rewritten index. A damaged record is left behind: only
// speed and recall depend on it.
func copyDefaults(tx *storage.Tx, gen uint64, snap *Snapshot) error {
	if d, err := snap.Defaults(); err == nil && d != nil {
		return tx.PutDefaults(gen, d)
	}
	return nil
}

// createGeneration creates a generation for documents of a codec, which is invisible until a commit
// makes it current.
func createGeneration(
	f *storage.File, c *codec.Quantizer, build storage.Build, model *storage.Model, normalize bool,
) (gen uint64, err error) {
	k := c.Kernel()
	h := storage.Header{
		Dim:          c.Dim,
		Nbits:        c.Nbits,
		Centroids:    c.K,
		CentroidType: k.Centroids.Type.String(),
		Step:         k.Codebook.Step,
		GridScale:    k.Codebook.Scale,
		FactorMax:    k.FactorMax,
		Normalize:    normalize,
		Model:        model,
		Build:        build,
	}
	for _, g := range k.Codebook.Grid {
		h.Grid = append(h.Grid, int(g))
	}
	return putEmptyGeneration(f, h, k, c.Cutoffs)
}

// putEmptyGeneration creates an invisible generation from a header and a codec.
func putEmptyGeneration(
	f *storage.File, h storage.Header, c *kernels.Codec, cutoffs []float32,
) (gen uint64, err error) {
	err = f.Update(func(tx *storage.Tx) (err error) {
		gen, err = tx.NewGeneration(h, c, cutoffs)
		return err
	})
	return gen, err
}

// Built is the time and the program version of a build. It is not part of the digest.
type Built struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
}

const noteBuilt = "built"

// readBuilt returns the time and version of the build, nil if they were not recorded.
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

// release is the version that the linker flags of a release set. Tags of the repository are not
// versions of a module in one of its folders, so the build information does not have it.
var release string

// Version returns the version of the program: the release, or the version in its build information.
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
