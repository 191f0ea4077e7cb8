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

// Snapshot is one state of the index. It is safe for concurrent use until Close, and shows the same
// documents however the index changes. It has the methods of [storage.Snapshot], with a Close of
// its own.
type Snapshot struct {
	*fileSnapshot
	ix    *Index
	state *snapshotState
	once  sync.Once
}

// fileSnapshot is embedded under an unexported name: the callers of a Snapshot must not close the
// storage snapshot that they share.
type fileSnapshot = storage.Snapshot

// Snapshot returns the current state of the index, which includes each change that has returned.
// Taking one is cheap and waits for no change. Close it when done: the space of replaced data is
// not reused before.
func (ix *Index) Snapshot() (*Snapshot, error) {
	for {
		state, err := ix.acquireState()
		if err != nil {
			return nil, err
		}
		if state != nil {
			return &Snapshot{fileSnapshot: state.fileSnapshot, ix: ix, state: state}, nil
		}
		if err := ix.ensureCurrent(context.Background()); err != nil {
			return nil, err
		}
	}
}

// Close releases the snapshot. It may be called more than once.
func (s *Snapshot) Close() error {
	var err error
	s.once.Do(func() { err = s.ix.releaseState(s.state) })
	return err
}

// Version returns a number that identifies the state: snapshots with the same version show the same
// state of the same index. It means nothing in another process.
func (s *Snapshot) Version() uint64 { return s.state.version }

// Quantizer returns the codec that the documents were encoded with.
func (s *Snapshot) Quantizer() *codec.Quantizer { return s.state.codec }

// Scorer returns the backend prepared for the codec.
func (s *Snapshot) Scorer() kernels.Scorer { return s.state.scorer }

// Backend returns the name of the kernels in use.
func (s *Snapshot) Backend() string { return s.ix.backend.Name() }

// Dim returns the dimension of the vectors.
func (s *Snapshot) Dim() int { return s.Header().Dim }

// Len returns the number of live ordinals.
func (s *Snapshot) Len() int { return int(s.State().Live) }

// LiveSet returns one bit for each ordinal, set for documents that a search may return: those that
// are neither deleted nor empty. Do not change it. Snapshots with the same content have the same
// slice.
func (s *Snapshot) LiveSet() (set []uint64, count int) {
	return s.state.live.words, s.state.live.docs
}

// StoredDocument is a document of an index without its vectors.
type StoredDocument struct {
	// ID is the name from outside, Ordinal the position in the order of insertion.
	ID      string
	Ordinal uint32
	// Tokens is the number of its token vectors.
	Tokens int
	// Payload is the metadata stored with it, or nil.
	Payload []byte
}

// Has reports whether the index has a live document of this id now. For many ids, take a [Snapshot]
// and call its Ordinal.
func (ix *Index) Has(id string) (bool, error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return false, err
	}
	defer snap.Close()
	_, ok, err := snap.Ordinal(id)
	return ok, err
}

// Get returns the document of an id in the current state, or [ErrNotFound]. The result is the
// caller's.
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

// Get returns the document of an id, or [ErrNotFound]. Its payload is valid until the snapshot is
// closed.
func (s *Snapshot) Get(id string) (*StoredDocument, error) {
	ordinal, ok, err := s.Ordinal(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s: %w: %.100q", s.Path(), ErrNotFound, id)
	}
	return s.DocumentAt(ordinal)
}

// DocumentAt returns the live document of an ordinal, or [ErrNotFound]. Its payload is valid until the
// snapshot is closed.
func (s *Snapshot) DocumentAt(ordinal uint32) (*StoredDocument, error) {
	chunk, doc, ok := s.Locate(ordinal)
	if !ok || !s.Live(ordinal) {
		return nil, fmt.Errorf("%s: %w: ordinal %d", s.Path(), ErrNotFound, ordinal)
	}
	_, offsets := s.ChunkDocs(chunk)
	payload, err := s.Payload(ordinal)
	if err != nil {
		return nil, err
	}
	return &StoredDocument{
		ID:      s.ID(ordinal),
		Ordinal: ordinal,
		Tokens:  int(offsets[doc+1] - offsets[doc]),
		Payload: payload,
	}, nil
}

// liveSet is the result of [Snapshot.LiveSet].
type liveSet struct {
	words []uint64
	docs  int
}

// newLiveSet computes the live set from all documents of a file.
func newLiveSet(snap *storage.Snapshot) liveSet {
	set := liveSet{words: make([]uint64, (int(snap.State().Docs)+63)/64)}
	set.addFrom(snap, 0)
	set.countDocs()
	return set
}

// nextLiveSet computes the live set of snap from that of an older snapshot. Documents only change by
// being deleted, and new ones come at the end: so the words are copied, and only new and deleted
// documents are visited. If nothing has changed, the result is the same slice.
func nextLiveSet(snap, older *storage.Snapshot, olderSet liveSet) liveSet {
	oldDocs, docs := older.State().Docs, snap.State().Docs
	dead, olderDead := snap.Tombstones(), older.Tombstones()
	stillDead := olderDead.AndCardinality(dead) == olderDead.GetCardinality()
	if snap.Lineage() != older.Lineage() || !stillDead { // unrelated content
		return newLiveSet(snap)
	}
	if docs == oldDocs && dead == olderDead &&
		snap.Chunks() == older.Chunks() && snap.SharedChunks(older) == snap.Chunks() {
		return olderSet
	}
	set := liveSet{words: make([]uint64, (int(docs)+63)/64)}
	copy(set.words, olderSet.words)
	set.addFrom(snap, oldDocs)
	if dead != olderDead {
		set.removeDeleted(roaring.AndNot(dead, olderDead), 0)
	}
	set.countDocs()
	return set
}

// addFrom sets the documents that are neither empty nor deleted, from the ordinal from on.
func (set *liveSet) addFrom(snap *storage.Snapshot, from uint32) {
	chunk, doc, ok := snap.Locate(from)
	if !ok {
		return
	}
	for ; chunk < snap.Chunks(); chunk++ {
		first, offsets := snap.ChunkDocs(chunk)
		for ; doc < len(offsets)-1; doc++ {
			if offsets[doc] < offsets[doc+1] {
				ordinal := first + uint32(doc)
				set.words[ordinal/64] |= 1 << (ordinal % 64)
			}
		}
		doc = 0
	}
	set.removeDeleted(snap.Tombstones(), from)
}

// removeDeleted clears the ordinals in dead that are at least from.
func (set *liveSet) removeDeleted(dead *roaring.Bitmap, from uint32) {
	it := dead.Iterator()
	it.AdvanceIfNeeded(from)
	for it.HasNext() {
		ordinal := it.Next()
		set.words[ordinal/64] &^= 1 << (ordinal % 64)
	}
}

// countDocs updates docs from words.
func (set *liveSet) countDocs() {
	set.docs = 0
	for _, w := range set.words {
		set.docs += bits.OnesCount64(w)
	}
}

// Warm reads everything that searches read and verifies its checksums: codes, residuals, factors,
// posting lists and ids. Otherwise the first searches of an index do this for the documents that
// they visit, which makes them slower. threads is the number of goroutines (0 means one for each
// processor); they call progress unless it is nil. Verified data counts as verified for all
// snapshots of the file; whether the operating system keeps its pages in memory is outside of this
// program.
//
// Errors: [storage.ErrCorrupt], and that of the context.
func (s *Snapshot) Warm(ctx context.Context, threads int, progress func(Progress)) error {
	total := s.Chunks() + s.Segments()
	var done atomic.Int64
	err := parallel.Do(ctx, total, threads, func(i int) (err error) {
		defer storage.Guard(s.Path(), &err)() // turns a fault of the mapped file into an error
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

// warmPostings reads the posting lists of a segment, a block at a time.
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
