package index

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// CopyFrom says which documents of an index are copied.
type CopyFrom struct {
	*Snapshot
	// Docs are their ordinals; nil: all live documents. Others are passed over.
	Docs *roaring.Bitmap
}

// CopyOptions for Copy and Split. The zero value, or nil, is a good choice.
type CopyOptions struct {
	// Force, LockTimeout, Memory, Logger and Progress as for Build.
	Force       bool
	LockTimeout time.Duration
	Memory      int64
	Logger      *slog.Logger
	Progress    func(Progress)
}

// CopyReport says what was copied.
type CopyReport struct {
	Path     string `json:"path"`     // of the new index
	Docs     int    `json:"docs"`     // in it
	Passages int    `json:"passages"` // in which some of them are stored
	Tokens   uint64 `json:"tokens"`   // of these documents
}

// Copy makes an index file at path of documents of others, in their order, as they are
// encoded: no vector is decoded, and codes, residuals and factors are the same to the
// byte. Ids and payloads come along, ordinals count anew, and what was deleted stays
// behind. Header and model are those of the first index. All must have one codec
// ([*CodecError]), and no two documents one id ([ErrDuplicateID]). Stored search
// parameters come along where all indexes have the same. Without any document it is
// the codec alone, as [Train] makes it.
//
// A copy of all documents of one index that was just built has its digest; so has one
// state the parts that [Split] made of it by range.
//
// After an error the path holds what it held before, as after one of [Build].
func Copy(ctx context.Context, path string, from []CopyFrom, opts *CopyOptions) (r *CopyReport, err error) {
	o, be, err := copyOptions(from, opts)
	if err != nil {
		return nil, err
	}
	var clamped uint64
	for _, f := range from {
		clamped += f.State().Clamped
	}
	c := &copier{options: o, clamped: clamped}
	for _, f := range from {
		c.total += f.countOrdinals()
	}
	b := BuildOptions{Force: o.Force, LockTimeout: o.LockTimeout, Logger: o.Logger}
	err = createAndFill(ctx, path, b, func(file *storage.File, created bool) (err error) {
		if r, err = c.copyInto(ctx, file, from); err == nil && !created {
			_ = newIndex(file, be, o.Logger).compactAfterBuild(ctx, o.Memory) // which logs why it could not
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Path = path
	return r, nil
}

func copyOptions(from []CopyFrom, opts *CopyOptions) (o CopyOptions, be kernels.Backend, err error) {
	o = valueOrZero(opts)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	if len(from) == 0 {
		return o, nil, fmt.Errorf("%w: nothing to copy from", ErrOption)
	}
	for _, f := range from[1:] {
		if err := checkSameCodec(from[0].Snapshot, f.Snapshot); err != nil {
			return o, nil, err
		}
	}
	be, err = kernels.Select("")
	return o, be, err
}

func (f *CopyFrom) includes(ordinal uint32) bool {
	return f.Live(ordinal) && (f.Docs == nil || f.Docs.Contains(ordinal))
}

func (f *CopyFrom) countOrdinals() int64 {
	if f.Docs == nil {
		return int64(f.Len())
	}
	live := liveDocs(f.fileSnapshot)
	live.And(f.Docs)
	return int64(live.GetCardinality())
}

// copier is one copy, or several that share the documents of an index among them.
type copier struct {
	options     CopyOptions
	done, total int64  // documents
	clamped     uint64 // tokens that have not been given to a copy yet

	largestFactorTokens uint64 // tokens of this copy with the largest factor: those that were clamped, and few more
}

// copyInto copies into a file that is not seen yet.
func (c *copier) copyInto(ctx context.Context, file *storage.File, from []CopyFrom) (*CopyReport, error) {
	first := from[0].Snapshot
	h := first.Header()
	for _, f := range from {
		if h.Model == nil {
			h.Model = f.Header().Model
		}
	}
	gen, err := putEmptyGeneration(file, h, first.Codec(), first.Cutoffs())
	if err != nil {
		return nil, err
	}
	c.largestFactorTokens = 0
	stage := newStager(file, gen, h.Centroids, storage.State{}, c.options.Memory)
	var drift driftSum
	for i := range from {
		before := stage.state.Tokens
		if err := c.stageFrom(ctx, stage, &from[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", from[i].Path(), err)
		}
		drift.add(from[i].State(), stage.state.Tokens-before)
	}
	defaults := commonDefaults(from)
	r := &CopyReport{Tokens: stage.state.Tokens}
	err = stage.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens = s.Docs, s.Tokens
		s.Clamped = min(c.largestFactorTokens, c.clamped)
		c.clamped -= s.Clamped
		s.AddedTokens, s.AddedSumSq = drift.tokens, drift.sumSq
		r.Docs, r.Passages = stage.countDocuments(s)
		if defaults != nil {
			if err := tx.PutDefaults(gen, defaults); err != nil {
				return err
			}
		}
		return errors.Join(tx.MakeCurrent(gen), putBuilt(tx))
	})
	return r, err
}

// stageFrom stages the documents of one index.
func (c *copier) stageFrom(ctx context.Context, stage *stager, from *CopyFrom) (err error) {
	defer storage.Guard(from.Path(), &err)()
	for i := range from.Chunks() {
		first, offsets := from.ChunkDocs(i)
		var ch *kernels.Chunk
		for d := range len(offsets) - 1 {
			ordinal := first + uint32(d)
			if !from.includes(ordinal) {
				continue
			}
			if ch == nil {
				if ch, err = from.Chunk(i, storage.All); err != nil {
					return err
				}
			}
			payload, err := from.Payload(ordinal)
			if err != nil {
				return err
			}
			tokens := chunkTokens(ch, d, from.Codec())
			d := encoded{id: from.ID(ordinal), payload: payload, tokens: tokens}
			if from.Passages().Contains(ordinal) {
				d.parent, _ = from.PassageOf(ordinal)
			}
			if err := stage.appendDocument(ctx, d); err != nil {
				return err
			}
			for factors := tokens.factors; len(factors) > 0; factors = factors[2:] {
				if binary.LittleEndian.Uint16(factors) == math.MaxInt16 {
					c.largestFactorTokens++
				}
			}
			c.done++
		}
		reportProgress(c.options.Progress, Progress{"copy", c.done, c.total, "documents"})
	}
	stage.endPassages() // another index may begin with a document of the same id
	return nil
}

// driftSum gathers what copies know of documents that were added after the training:
// how many tokens, and by how much they miss. Of an index of which a part is copied it
// is the part's share.
type driftSum struct {
	tokens uint64
	sumSq  float64
}

func (d *driftSum) add(state storage.State, copied uint64) {
	share := 1.0
	if copied < state.LiveTokens {
		share = float64(copied) / float64(state.LiveTokens)
	}
	d.tokens += uint64(math.Round(share * float64(state.AddedTokens)))
	d.sumSq += float64(share * state.AddedSumSq)
}

// commonDefaults are the stored search parameters that hold for all indexes. A record that
// cannot be read is none: the copy is searched as well without.
func commonDefaults(from []CopyFrom) *storage.Defaults {
	parameters := make([]*storage.Defaults, len(from))
	for i := range from {
		parameters[i], _ = from[i].Defaults()
	}
	return storage.CommonDefaults(parameters)
}

// SplitBy says which documents are together in a part.
type SplitBy string

const (
	// ByHash puts documents where [HashShard] says, as [Shards.Add] does with new ones.
	ByHash SplitBy = "hash"
	// ByRange puts neighbours together, and about as many tokens into each part. Passages of
	// a document are all where the first of them is.
	ByRange SplitBy = "range"
)

// Split makes n index files of one, in a new folder, as [Copy] copies; together they
// are a set. The folder appears when all are complete. A part may have no documents.
func Split(ctx context.Context, from *Snapshot, dir string, n int, by SplitBy, opts *CopyOptions) (parts []CopyReport, err error) {
	if n < 1 || n > maxShards {
		return nil, fmt.Errorf("%w: %d parts; 1 to %d are possible", ErrOption, n, maxShards)
	}
	if by != ByHash && by != ByRange {
		return nil, fmt.Errorf("%w: split by %q; there are %s and %s", ErrOption, by, ByHash, ByRange)
	}
	o, _, err := copyOptions([]CopyFrom{{Snapshot: from}}, opts)
	if err != nil {
		return nil, err
	}
	folder, err := files.CreateAtomicFolder(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	c := &copier{options: o, total: int64(from.Len()), clamped: from.State().Clamped}
	parts = make([]CopyReport, n)
	for i, docs := range assignDocuments(from, n, by) {
		name := ShardFileName(i, n)
		r, err := c.copyShard(ctx, filepath.Join(folder.Path(), name), CopyFrom{from, docs})
		if err != nil {
			return nil, err
		}
		r.Path = filepath.Join(dir, name)
		parts[i] = *r
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return parts, folder.Commit()
}

const maxShards = 1 << 16

// ShardFileName is the name of a file of a split, such that their order is that of names.
func ShardFileName(i, n int) string {
	return fmt.Sprintf("shard-%0*d.plaid", max(len(fmt.Sprint(n-1)), 3), i)
}

// copyShard makes one file of a split.
func (c *copier) copyShard(ctx context.Context, path string, from CopyFrom) (r *CopyReport, err error) {
	file, err := storage.Open(ctx, path, storage.Options{Write: true, Create: true, Logger: c.options.Logger})
	if err != nil {
		return nil, err
	}
	r, err = c.copyInto(ctx, file, []CopyFrom{from})
	return r, errors.Join(err, file.Close())
}

// assignDocuments gives each part its documents.
func assignDocuments(from *Snapshot, n int, by SplitBy) []*roaring.Bitmap {
	docs := make([]*roaring.Bitmap, n)
	for i := range docs {
		docs[i] = roaring.New()
	}
	st := from.State()
	tokens := uint64(0)
	var lastDocument string // document
	shard := 0              // of it
	for chunk := range from.Chunks() {
		first, offsets := from.ChunkDocs(chunk)
		for d := range len(offsets) - 1 {
			ordinal := first + uint32(d)
			if !from.Live(ordinal) {
				continue
			}
			if id := from.DocumentOf(ordinal); id != lastDocument { // its passages are in a row
				lastDocument, shard = id, HashShard(id, n)
				if by == ByRange {
					shard = int(min(float64(tokens)/float64(max(st.LiveTokens, 1))*float64(n), float64(n-1)))
				}
			}
			docs[shard].Add(ordinal)
			tokens += uint64(offsets[d+1] - offsets[d])
		}
	}
	return docs
}
