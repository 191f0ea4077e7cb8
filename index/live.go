package index

import (
	"math/bits"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/storage"
)

// liveSet is what [Snapshot.LiveSet] returns.
type liveSet struct {
	words []uint64
	docs  int
}

func newLiveSet(v *storage.View) liveSet {
	l := liveSet{words: make([]uint64, (int(v.State().Docs)+63)/64)}
	l.setFrom(v, 0)
	l.count()
	return l
}

// nextLiveSet is the live set of a view, given an older one and its live set. A
// document stays what it is until it is deleted, and new ones come at the end. So
// words are copied, and only documents that are new or were deleted are looked at.
// Where nothing has changed it is the same slice.
func nextLiveSet(v, older *storage.View, was liveSet) liveSet {
	from, docs := older.State().Docs, v.State().Docs
	dead, deadThen := v.Tombstones(), older.Tombstones()
	if v.Lineage() != older.Lineage() || deadThen.AndCardinality(dead) != deadThen.GetCardinality() {
		return newLiveSet(v)
	}
	if docs == from && dead == deadThen && v.Chunks() == older.Chunks() && v.SharedChunks(older) == v.Chunks() {
		return was
	}
	l := liveSet{words: make([]uint64, (int(docs)+63)/64)}
	copy(l.words, was.words)
	l.setFrom(v, from)
	if dead != deadThen {
		l.clear(roaring.AndNot(dead, deadThen), 0)
	}
	l.count()
	return l
}

// setFrom sets the documents from an ordinal on that are neither empty nor deleted.
func (l *liveSet) setFrom(v *storage.View, from uint32) {
	chunk, doc, ok := v.Locate(from)
	if !ok {
		return
	}
	for ; chunk < v.Chunks(); chunk++ {
		first, offsets := v.ChunkDocs(chunk)
		for ; doc < len(offsets)-1; doc++ {
			if offsets[doc] < offsets[doc+1] {
				ordinal := first + uint32(doc)
				l.words[ordinal/64] |= 1 << (ordinal % 64)
			}
		}
		doc = 0
	}
	l.clear(v.Tombstones(), from)
}

// clear takes documents away, from an ordinal on.
func (l *liveSet) clear(dead *roaring.Bitmap, from uint32) {
	it := dead.Iterator()
	it.AdvanceIfNeeded(from)
	for it.HasNext() {
		ordinal := it.Next()
		l.words[ordinal/64] &^= 1 << (ordinal % 64)
	}
}

func (l *liveSet) count() {
	l.docs = 0
	for _, w := range l.words {
		l.docs += bits.OnesCount64(w)
	}
}
