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

// CopyFrom selects the documents of an index that are copied.
type CopyFrom struct {
	*Snapshot
	// Docs, if not nil, are their ordinals; otherwise all live documents are copied. Ordinals that
	// are not live are ignored.
	Docs *roaring.Bitmap
}

// CopyOptions configures Copy and Split. The zero value, or nil, is a good choice.
type CopyOptions struct {
	// Force, LockTimeout, Memory, Logger and Progress are as in [BuildOptions].
	Force       bool
	LockTimeout time.Duration
	Memory      int64
	Logger      *slog.Logger
	Progress    func(Progress)
}

// CopyReport describes a new index.
type CopyReport struct {
	Path     string `json:"path"`     // path of the new index
	Docs     int    `json:"docs"`     // documents in it
	Passages int    `json:"passages"` // passages in which some of them are stored
	Tokens   uint64 `json:"tokens"`   // tokens of these documents
}

// Copy creates an index file at path from documents of other indexes, in their order and with their
// encodings: no vector is decoded, and codes, residuals and factors are the same to the byte. Ids
// and payloads are copied, ordinals count from 0, and deleted documents are left behind. Header and
// model are those of the first index. All indexes must have the same codec ([*CodecError]), and all
// documents different ids ([ErrDuplicateID]). Stored search parameters are copied if all indexes
// have the same. Without any document the result is the codec alone, as [Train] makes it.
//
// A copy of all documents of an index that was just built has the digest of that index. So has a
// copy of the files that [Split] made of it by range.
//
// After an error the path has its old content, as after an error of [Build].
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
			_ = newIndex(file, be, o.Logger).compactAfterBuild(ctx, o.Memory) // logs why it could not
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Path = path
	return r, nil
}

// copyOptions completes the options, and checks that all indexes have the same codec.
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

// includes reports whether an ordinal is live and selected.
func (f *CopyFrom) includes(ordinal uint32) bool {
	return f.Live(ordinal) && (f.Docs == nil || f.Docs.Contains(ordinal))
}

// countOrdinals returns the number of ordinals to copy.
func (f *CopyFrom) countOrdinals() int64 {
	if f.Docs == nil {
		return int64(f.Len())
	}
	live := liveDocs(f.fileSnapshot)
	live.And(f.Docs)
	return int64(live.GetCardinality())
}

// copier makes one copy, or several that divide the documents of an index.
type copier struct {
	options     CopyOptions
	done, total int64  // documents
	clamped     uint64 // clamped tokens of the sources that are not attributed to a copy yet

	// largestFactorTokens counts the tokens of this copy with the largest factor: those that were
	// clamped, and a few more.
	largestFactorTokens uint64
}

// copyInto copies into a file that is not visible yet.
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
	stager := newStager(file, gen, h.Centroids, storage.State{}, c.options.Memory)
	var drift driftSum
	for i := range from {
		before := stager.state.Tokens
		if err := c.stageFrom(ctx, stager, &from[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", from[i].Path(), err)
		}
		drift.add(from[i].State(), stager.state.Tokens-before)
	}
	defaults := commonDefaults(from)
	r := &CopyReport{Tokens: stager.state.Tokens}
	err = stager.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens = s.Docs, s.Tokens
		s.Clamped = min(c.largestFactorTokens, c.clamped)
		c.clamped -= s.Clamped
		s.AddedTokens, s.AddedSumSq = drift.tokens, drift.sumSq
		r.Docs, r.Passages = stager.countDocuments(s)
		if defaults != nil {
			if err := tx.PutDefaults(gen, defaults); err != nil {
				return err
			}
		}
		return errors.Join(tx.MakeCurrent(gen), putBuilt(tx))
	})
	return r, err
}

// stageFrom stages the selected documents of one index.
func (c *copier) stageFrom(ctx context.Context, stager *stager, from *CopyFrom) (err error) {
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
			doc := encoded{id: from.ID(ordinal), payload: payload, tokens: tokens}
			if from.Passages().Contains(ordinal) {
				doc.parent, _ = from.PassageOf(ordinal)
			}
			if err := stager.appendDocument(ctx, doc); err != nil {
				return err
			}
			for factors := tokens.factors; len(factors) > 0; factors = factors[2:] {
				if binary.LittleEndian.Uint16(factors) == math.MaxInt16 { // the largest stored factor
					c.largestFactorTokens++
				}
			}
			c.done++
		}
		reportProgress(c.options.Progress, Progress{"copy", c.done, c.total, "documents"})
	}
	stager.endPassages() // the next index may begin with a document of the same id
	return nil
}

// driftSum adds up the drift of the sources: the tokens that were added after the training, and the
// sum of their squared errors. A partial copy gets its share by tokens.
type driftSum struct {
	tokens uint64
	sumSq  float64
}

// add adds the drift of a source, given the number of its tokens that were copied.
func (d *driftSum) add(state storage.State, copied uint64) {
	share := 1.0
	if copied < state.LiveTokens {
		share = float64(copied) / float64(state.LiveTokens)
	}
	d.tokens += uint64(math.Round(share * float64(state.AddedTokens)))
	d.sumSq += float64(share * state.AddedSumSq) // the conversion forbids FMA, which some processors lack
}

// commonDefaults returns the stored search parameters that all indexes have in common. A record
// that cannot be read counts as absent: the copy works without it.
func commonDefaults(from []CopyFrom) *storage.Defaults {
	parameters := make([]*storage.Defaults, len(from))
	for i := range from {
		parameters[i], _ = from[i].Defaults()
	}
	return storage.CommonDefaults(parameters)
}

// SplitBy is the rule that assigns documents to shards.
type SplitBy string

const (
	// ByHash assigns documents by [HashShard], as [Shards.Add] does with new ones.
	ByHash SplitBy = "hash"
	// ByRange assigns consecutive documents to the same shard, and about as many tokens to each.
	// All passages of a document go to the shard of the first.
	ByRange SplitBy = "range"
)

// Split makes n index files from one, in a new folder, as [Copy] does; together they can be opened
// as shards. The folder appears when all of them are complete. A shard may have no documents.
func Split(
	ctx context.Context, from *Snapshot, dir string, n int, by SplitBy, opts *CopyOptions,
) (shards []CopyReport, err error) {
	if n < 1 || n > maxShards {
		return nil, fmt.Errorf("%w: %d shards; 1 to %d are possible", ErrOption, n, maxShards)
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
	shards = make([]CopyReport, n)
	for i, docs := range assignDocuments(from, n, by) {
		name := ShardFileName(i, n)
		r, err := c.copyShard(ctx, filepath.Join(folder.Path(), name), CopyFrom{from, docs})
		if err != nil {
			return nil, err
		}
		r.Path = filepath.Join(dir, name)
		shards[i] = *r
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return shards, folder.Commit()
}

const maxShards = 1 << 16

// ShardFileName returns the name of file i of n; names sort in the order of the files.
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

// assignDocuments returns the ordinals of each shard.
func assignDocuments(from *Snapshot, n int, by SplitBy) []*roaring.Bitmap {
	docs := make([]*roaring.Bitmap, n)
	for i := range docs {
		docs[i] = roaring.New()
	}
	state := from.State()
	tokens := uint64(0)
	var lastDocument string
	shard := 0 // of lastDocument
	for chunk := range from.Chunks() {
		first, offsets := from.ChunkDocs(chunk)
		for d := range len(offsets) - 1 {
			ordinal := first + uint32(d)
			if !from.Live(ordinal) {
				continue
			}
			if id := from.DocumentOf(ordinal); id != lastDocument { // passages of a document are in a row
				lastDocument, shard = id, HashShard(id, n)
				if by == ByRange {
					fraction := float64(tokens) / float64(max(state.LiveTokens, 1)) // of the tokens before id
					shard = int(min(fraction*float64(n), float64(n-1)))
				}
			}
			docs[shard].Add(ordinal)
			tokens += uint64(offsets[d+1] - offsets[d])
		}
	}
	return docs
}
