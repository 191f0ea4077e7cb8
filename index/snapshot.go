package index

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// Snapshot is the index at one moment. It is safe for concurrent use until
// Close, and it keeps showing the same documents whatever happens to the index. It
// has the methods of [storage.Snapshot], with a Close of its own.
type Snapshot struct {
	*fileSnapshot
	ix    *Index
	state *snapshotState
	once  sync.Once
}

// fileSnapshot hides what a snapshot shows: to close it is not for those who share it.
type fileSnapshot = storage.Snapshot

// Snapshot returns the index as it is now, after each change that has returned.
// Taking one is cheap, and waits for no change; close it when done, since the space
// of what is replaced meanwhile is not reused before.
func (ix *Index) Snapshot() (*Snapshot, error) {
	for {
		p, err := ix.acquireState()
		if err != nil {
			return nil, err
		}
		if p != nil {
			return &Snapshot{fileSnapshot: p.fileSnapshot, ix: ix, state: p}, nil
		}
		if err := ix.ensureCurrent(context.Background()); err != nil {
			return nil, err
		}
	}
}

// Close ends the snapshot. It may be called more than once.
func (s *Snapshot) Close() error {
	var err error
	s.once.Do(func() { err = s.ix.releaseState(s.state) })
	return err
}

// Version is a number: snapshots of the same show the same state of the same index. It
// says nothing in another process.
func (s *Snapshot) Version() uint64 { return s.state.version }

// Quantizer is the codec that the documents were encoded with.
func (s *Snapshot) Quantizer() *codec.Quantizer { return s.state.codec }

// Scorer is the backend prepared for the codec.
func (s *Snapshot) Scorer() kernels.Scorer { return s.state.scorer }

// Backend is the name of the kernels in use.
func (s *Snapshot) Backend() string { return s.ix.backend.Name() }

// Dim is the vector dimension.
func (s *Snapshot) Dim() int { return s.Header().Dim }

// Len is the number of live documents.
func (s *Snapshot) Len() int { return int(s.State().Live) }

// LiveSet has one bit an ordinal, set for documents that a search may return:
// those that are neither deleted nor empty. It is not to be changed. Snapshots of one
// content have the same slice.
func (s *Snapshot) LiveSet() (set []uint64, count int) {
	return s.state.live.words, s.state.live.docs
}

// StoredDocument is what an index holds of a document beside its vectors.
type StoredDocument struct {
	// ID is the name from outside, Ordinal the place in the order of insertion.
	ID      string
	Ordinal uint32
	// Tokens is how many token vectors it has.
	Tokens int
	// Payload is what is stored beside it; nil if nothing is.
	Payload []byte
}

// Has tells whether the index has a live document of this id now. For many ids take a
// [Snapshot] and ask its Ordinal.
func (ix *Index) Has(id string) (bool, error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return false, err
	}
	defer snap.Close()
	_, ok, err := snap.Ordinal(id)
	return ok, err
}

// Get returns the document of an id as it is now, [ErrNotFound] if there is none. The
// result is the caller's.
func (ix *Index) Get(id string) (*StoredDocument, error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	d, err := snap.Get(id)
	if err != nil {
		return nil, err
	}
	d.Payload = bytes.Clone(d.Payload)
	return d, nil
}

// Get returns the document of an id, [ErrNotFound] if there is none. Its payload is
// valid until the snapshot is closed.
func (s *Snapshot) Get(id string) (*StoredDocument, error) {
	ordinal, ok, err := s.Ordinal(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s: %w: %.100q", s.Path(), ErrNotFound, id)
	}
	return s.At(ordinal)
}

// At returns the live document of an ordinal, [ErrNotFound] if there is none. Its payload
// is valid until the snapshot is closed.
func (s *Snapshot) At(ordinal uint32) (*StoredDocument, error) {
	chunk, doc, ok := s.Locate(ordinal)
	if !ok || !s.Live(ordinal) {
		return nil, fmt.Errorf("%s: %w: ordinal %d", s.Path(), ErrNotFound, ordinal)
	}
	_, offsets := s.ChunkDocs(chunk)
	payload, err := s.Payload(ordinal)
	if err != nil {
		return nil, err
	}
	return &StoredDocument{ID: s.ID(ordinal), Ordinal: ordinal, Tokens: int(offsets[doc+1] - offsets[doc]), Payload: payload}, nil
}

// liveSet is what [Snapshot.LiveSet] returns.
type liveSet struct {
	words []uint64
	docs  int
}

func newLiveSet(v *storage.Snapshot) liveSet {
	set := liveSet{words: make([]uint64, (int(v.State().Docs)+63)/64)}
	set.addFrom(v, 0)
	set.countDocs()
	return set
}

// nextLiveSet is the live set of a view, given an older one and its live set. A
// document stays what it is until it is deleted, and new ones come at the end. So
// words are copied, and only documents that are new or were deleted are looked at.
// Where nothing has changed it is the same slice.
func nextLiveSet(v, older *storage.Snapshot, olderSet liveSet) liveSet {
	oldDocs, docs := older.State().Docs, v.State().Docs
	dead, olderDead := v.Tombstones(), older.Tombstones()
	if v.Lineage() != older.Lineage() || olderDead.AndCardinality(dead) != olderDead.GetCardinality() {
		return newLiveSet(v)
	}
	if docs == oldDocs && dead == olderDead && v.Chunks() == older.Chunks() && v.SharedChunks(older) == v.Chunks() {
		return olderSet
	}
	set := liveSet{words: make([]uint64, (int(docs)+63)/64)}
	copy(set.words, olderSet.words)
	set.addFrom(v, oldDocs)
	if dead != olderDead {
		set.removeDeleted(roaring.AndNot(dead, olderDead), 0)
	}
	set.countDocs()
	return set
}

// addFrom sets the documents from an ordinal on that are neither empty nor deleted.
func (set *liveSet) addFrom(v *storage.Snapshot, from uint32) {
	chunk, doc, ok := v.Locate(from)
	if !ok {
		return
	}
	for ; chunk < v.Chunks(); chunk++ {
		first, offsets := v.ChunkDocs(chunk)
		for ; doc < len(offsets)-1; doc++ {
			if offsets[doc] < offsets[doc+1] {
				ordinal := first + uint32(doc)
				set.words[ordinal/64] |= 1 << (ordinal % 64)
			}
		}
		doc = 0
	}
	set.removeDeleted(v.Tombstones(), from)
}

// removeDeleted takes documents away, from an ordinal on.
func (set *liveSet) removeDeleted(dead *roaring.Bitmap, from uint32) {
	it := dead.Iterator()
	it.AdvanceIfNeeded(from)
	for it.HasNext() {
		ordinal := it.Next()
		set.words[ordinal/64] &^= 1 << (ordinal % 64)
	}
}

func (set *liveSet) countDocs() {
	set.docs = 0
	for _, w := range set.words {
		set.docs += bits.OnesCount64(w)
	}
}

// Warm reads what searches read and checks its checksums: codes, residuals, factors,
// posting lists, and ids. The first searches of an index do that otherwise, each for
// the documents that it meets, which makes them slower. It uses so many
// goroutines (0: one a processor), which call progress (nil: none is wanted). What is
// read stays checked for all snapshots of the file; whether the system keeps its pages in
// memory is not up to this program.
//
// Errors: [storage.ErrCorrupt], and that of the context.
func (s *Snapshot) Warm(ctx context.Context, threads int, progress func(Progress)) error {
	total := s.Chunks() + s.Segments()
	var done atomic.Int64
	err := parallel.Do(ctx, total, threads, func(i int) (err error) {
		defer storage.Guard(s.Path(), &err)()
		if i < s.Chunks() {
			_, err = s.Chunk(i, storage.All)
		} else {
			err = s.warmPostings(ctx, i-s.Chunks())
		}
		if n := done.Add(1); progress != nil && err == nil {
			progress(Progress{"warm", n, int64(total), "parts"})
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.CheckIDs()
}

func (s *Snapshot) warmPostings(ctx context.Context, segment int) error {
	for c := 0; c < s.Header().Centroids; c += storage.PostingBlock {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := s.Postings(segment, uint32(c)); err != nil {
			return err
		}
	}
	return nil
}
