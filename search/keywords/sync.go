package keywords

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// segmentMerges decides, by bytes, which segments a new one absorbs. It limits a transaction, and its
// memory, to about twice a segment, unless many documents are dead. It is a variable so that tests
// can have large segments.
var segmentMerges = storage.MergePolicy{Largest: 32 << 20, Full: 32 << 20}

// syncPoint is the state of the index that the last Sync of this process reached.
type syncPoint struct {
	lineage uint64
	stamp   storage.Stamp
}

// Sync updates the keywords to a snapshot: with [Options.Write] in the file, otherwise in a
// temporary one, unless the file has this state already. It reads the changes since the last Sync,
// or all documents, and does nothing if there are no changes. All changes become visible at once.
// After an error, or a kill at any moment, the file has its earlier state, and the next Sync
// continues from there.
//
// Segments are merged by [storage.MergePolicy], and also if more than a quarter of one is dead.
//
// Errors: [storage.ErrLocked], and the errors of reading the snapshot and of writing.
func (ix *Index) Sync(ctx context.Context, snap *index.Snapshot) (err error) {
	select {
	case ix.syncing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-ix.syncing }()
	if err := ctx.Err(); err != nil {
		return err
	}
	stamp, err := snap.Stamp()
	if err != nil {
		return err
	}
	if ix.file == nil && !ix.options.Write { // another process may have made it by now
		if err := ix.reopenExisting(ctx); err != nil {
			return err
		}
	}
	if current, err := ix.showsState(stamp); err != nil || current {
		if current {
			ix.lastSync = syncPoint{snap.Lineage(), stamp}
		}
		return err
	}
	if ix.file == nil || !ix.file.Writes() {
		if err = ix.openForWriting(ctx); err != nil {
			return err
		}
	}
	for retried := false; ; retried = true {
		err = ix.updateFile(ctx, snap, stamp)
		if !errors.Is(err, ErrDamaged) || retried {
			break
		}
		ix.log.Warn("keywords are damaged, and made anew", "file", ix.path, "error", err)
		if err := ix.replaceWithEmpty(ctx); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	ix.lastSync = syncPoint{snap.Lineage(), stamp}
	return nil
}

// showsState reports whether the file has a state of the index.
func (ix *Index) showsState(stamp storage.Stamp) (current bool, err error) {
	err = ix.withSnapshot(func(_ *bolt.Tx, p *snapshot) error {
		current = p.state.Stamp == stamp
		return nil
	})
	if errors.Is(err, ErrNotSynced) || errors.Is(err, ErrDamaged) {
		return false, nil
	}
	return current, err
}

// updateFile does the work of Sync in a file that is open for writing.
func (ix *Index) updateFile(ctx context.Context, snap *index.Snapshot, stamp storage.Stamp) error {
	var snapshotBefore *snapshot
	err := ix.file.View(func(tx *bolt.Tx) (err error) {
		snapshotBefore, err = ix.snapshotAt(tx)
		return err
	})
	if err != nil {
		return damagedError(err)
	}
	settingsFit := func(s Settings) bool { return ix.options.Settings == nil || ix.options.Settings.equalTo(s) }
	if b := snapshotBefore; b != nil && b.state.Stamp == stamp && settingsFit(b.state.Settings) {
		return nil // another process has updated it meanwhile
	}
	changes, err := ix.findChanges(ctx, snap, snapshotBefore)
	if err != nil {
		return err
	}
	w := &writer{ix: ix, ctx: ctx, before: snapshotBefore, changes: changes}
	w.state = state{
		Version:        version,
		Settings:       changes.settings,
		Stamp:          stamp,
		Docs:           snap.State().Docs,
		PayloadUpdates: snap.State().PayloadUpdates,
	}
	if snapshotBefore != nil {
		w.state.NextSegment = snapshotBefore.state.NextSegment
	}
	return w.write(snap)
}

// changes are the differences between the file and a snapshot.
type changes struct {
	settings   Settings
	rebuild    bool              // nothing in the file is reused
	newlyDead  []*roaring.Bitmap // for each segment, its documents that are no longer current. nil means none
	read       *roaring.Bitmap   // ordinals to read
	tombstones *roaring.Bitmap   // of the snapshot
}

// findChanges returns the differences between the file, whose snapshot is p or nil, and the index.
func (ix *Index) findChanges(ctx context.Context, snap *index.Snapshot, p *snapshot) (*changes, error) {
	c := &changes{read: roaring.New(), tombstones: snap.Tombstones()}
	if ix.options.Settings != nil {
		c.settings = *ix.options.Settings
	} else if p != nil {
		c.settings = p.state.Settings
	} else if last := ix.lastSettings(); last != nil {
		c.settings = *last // the file was damaged
	} else {
		c.settings = Settings{Tokenizer: Unicode61}
	}
	docCount := snap.State().Docs
	if p == nil || !p.state.Settings.equalTo(c.settings) {
		c.rebuildAll(docCount)
		return c, nil
	}
	c.newlyDead = make([]*roaring.Bitmap, len(p.segments))
	// The changes are known if the file has the state of the last Sync, and snap is a later state of
	// the same lineage.
	follows := ix.lastSync == (syncPoint{snap.Lineage(), p.state.Stamp}) && docCount >= p.state.Docs &&
		p.tombstones.AndCardinality(c.tombstones) == p.tombstones.GetCardinality()
	changed, known := snap.PayloadsChanged(p.state.PayloadUpdates)
	if !follows || !known {
		return c, c.compareChecksums(ctx, snap, p)
	}
	for it := changed.Iterator(); it.HasNext(); {
		if ordinal := it.Next(); ordinal < p.state.Docs && !p.tombstones.Contains(ordinal) {
			c.markDead(p, ordinal)
			c.read.Add(ordinal)
		}
	}
	c.read.AddRange(uint64(p.state.Docs), uint64(docCount))
	c.read.AndNot(c.tombstones)
	for it := roaring.AndNot(c.tombstones, p.tombstones).Iterator(); it.HasNext(); {
		c.markDead(p, it.Next())
	}
	return c, nil
}

// rebuildAll makes Sync read all documents, because nothing in the file can be reused.
func (c *changes) rebuildAll(docs uint32) {
	c.rebuild, c.newlyDead = true, nil
	c.read.Clear()
	c.read.AddRange(0, uint64(docs))
	c.read.AndNot(c.tombstones)
}

// markDead marks the current record of an ordinal dead.
func (c *changes) markDead(p *snapshot, ordinal uint32) {
	for i := range p.segments {
		s := &p.segments[i]
		if d, ok := s.localNumber(ordinal); ok && (s.dead == nil || !s.dead.Contains(d)) {
			if c.newlyDead[i] == nil {
				c.newlyDead[i] = roaring.New()
			}
			c.newlyDead[i].Add(d)
		}
	}
}

// compareChecksums finds the documents that differ by the checksums of their payloads.
func (c *changes) compareChecksums(ctx context.Context, snap *index.Snapshot, p *snapshot) error {
	const absent = storage.PayloadChecksum(math.MaxUint64)
	docs := snap.State().Docs
	stored := make([]storage.PayloadChecksum, max(docs, p.state.Docs))
	for i := range stored {
		stored[i] = absent
	}
	for _, s := range p.segments {
		for d, x := range s.docs {
			if s.dead != nil && s.dead.Contains(uint32(d)) {
				continue
			}
			if int64(x.ordinal) >= int64(len(stored)) {
				return ErrDamaged
			}
			stored[x.ordinal] = x.sum
		}
	}
	next := uint32(0)
	stale, equalCount := roaring.New(), 0
	compareUpTo := func(upTo uint32, sum storage.PayloadChecksum) { // the documents in between have no payload
		for ; next <= upTo && next < docs; next++ {
			current := storage.PayloadChecksum(0)
			if next == upTo {
				current = sum
			}
			if !snap.Live(next) {
				current = absent
			} else if c.settings.IDs {
				current = withID(current, snap.ID(next))
			}
			switch {
			case stored[next] == current:
				equalCount++
			case current != absent:
				c.read.Add(next)
				fallthrough
			default:
				if stored[next] != absent {
					stale.Add(next)
				}
			}
		}
	}
	err := snap.VisitPayloadChecksums(ctx, 0, func(ordinal uint32, sum storage.PayloadChecksum) error {
		compareUpTo(ordinal, sum)
		return nil
	})
	if err != nil {
		return err
	}
	if docs > 0 {
		compareUpTo(docs-1, 0)
	}
	for o := docs; o < uint32(len(stored)); o++ {
		if stored[o] != absent {
			stale.Add(o)
		}
	}
	if equalCount == 0 { // another index, or nothing worth keeping
		c.rebuildAll(docs)
		return nil
	}
	for it := stale.Iterator(); it.HasNext(); {
		c.markDead(p, it.Next())
	}
	return nil
}

// withID returns the checksum of a document that is searched by its id, too. In a rebuilt index
// another document may have the same payload.
func withID(sum storage.PayloadChecksum, id string) storage.PayloadChecksum {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id)
	return sum ^ storage.PayloadChecksum(h.Sum64())
}

// writer writes the changes of one Sync.
type writer struct {
	ix  *Index
	ctx context.Context
	*changes
	before *snapshot // nil if the file is empty
	state  state
	staged []segmentSnapshot // written, but not named by the state yet
}

// write reads the changed documents in batches, writes all but the last as segments, and commits.
func (w *writer) write(snap *index.Snapshot) error {
	if err := w.removeUnnamedSegments(); err != nil {
		return err
	}
	b, a := newBatch(), newAnalyzer(w.settings)
	a.stopRequested = func() bool { return w.ctx.Err() != nil }
	var texts []string
	total, done := int64(w.read.GetCardinality()), int64(0)
	for it := w.read.Iterator(); it.HasNext(); done++ {
		ordinal := it.Next()
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if w.ix.options.Progress != nil && done%1024 == 0 {
			w.ix.options.Progress(done, total)
		}
		payload, err := snap.Payload(ordinal)
		if err != nil {
			return err
		}
		sum := storage.PayloadChecksum(0)
		if payload != nil {
			sum = storage.ChecksumPayload(ordinal, payload)
			texts = payloadTexts(texts[:0], payload, w.settings.Fields)
		} else {
			texts = texts[:0]
		}
		if w.settings.IDs {
			id := snap.ID(ordinal)
			sum, texts = withID(sum, id), append(texts, id)
		}
		b.add(ordinal, sum, a, texts)
		if err := w.ctx.Err(); err != nil { // the analyzer may have stopped within the document
			return err
		}
		if b.bytes >= w.ix.options.Memory {
			if err := w.stageBatch(b); err != nil {
				return err
			}
			b = newBatch()
		}
	}
	if w.ix.options.Progress != nil && total > 0 {
		w.ix.options.Progress(total, total)
	}
	return w.updateChecked(func(tx *bolt.Tx) error { return w.commit(tx, b) })
}

// beforeCommit, where a test sets it, can fail a transaction.
var beforeCommit func() error

// updateChecked runs a write transaction, and explains its errors.
func (w *writer) updateChecked(update func(*bolt.Tx) error) error {
	return w.ix.temporaryFileError(damagedError(w.ix.file.Update(func(tx *bolt.Tx) error {
		if err := update(tx); err != nil || beforeCommit == nil {
			return err
		}
		return beforeCommit()
	})))
}

// removeUnnamedSegments removes the segments that the state does not name: an interrupted Sync left
// them.
func (w *writer) removeUnnamedSegments() error {
	return w.updateChecked(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(rootBucket); err != nil {
			return err
		}
		segments, err := tx.CreateBucketIfNotExists(bucketSegments)
		if err != nil {
			return err
		}
		named := map[uint32]bool{}
		if w.before != nil {
			for _, s := range w.before.segments {
				named[s.ID] = true
			}
		}
		var unnamed [][]byte
		c := segments.Cursor()
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			if len(k) != 4 || !named[binary.BigEndian.Uint32(k)] {
				unnamed = append(unnamed, slices.Clone(k))
			}
		}
		for _, k := range unnamed {
			if err := segments.DeleteBucket(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// stageBatch writes a batch as a segment that the state does not name yet.
func (w *writer) stageBatch(b *batch) error {
	return w.updateChecked(func(tx *bolt.Tx) error {
		st, seg, err := writeSegment(w.ctx, tx, w.newSegmentID(), []*mergeSource{{termSource: b.sortedSource()}})
		w.staged = append(w.staged, segmentSnapshot{segmentState: st, segment: seg})
		return err
	})
}

func (w *writer) newSegmentID() uint32 {
	w.state.NextSegment++
	return w.state.NextSegment - 1
}

// commit merges segments and makes all changes visible.
func (w *writer) commit(tx *bolt.Tx, b *batch) error {
	root := tx.Bucket(rootBucket)
	unmerged := w.segmentsWithDead()
	if w.rebuild && w.before != nil {
		for _, s := range w.before.segments {
			if err := w.removeSegment(tx, s); err != nil {
				return err
			}
		}
	}
	// Choose the segments to merge: by the policy, and those with many dead documents.
	segmentBytes := func(s segmentSnapshot) uint64 { return uint64(s.Bytes) }
	unmergedCount := storage.UnmergedCount(segmentMerges, unmerged, segmentBytes, uint64(b.bytes))
	merge := slices.Clone(unmerged[unmergedCount:])
	unmerged = slices.DeleteFunc(unmerged[:unmergedCount], func(s segmentSnapshot) bool {
		manyDead := 4*s.Dead > s.Docs
		if manyDead {
			merge = append(merge, s)
		}
		return manyDead
	})
	if len(b.docs) == 0 && len(merge) == 1 && merge[0].Dead == 0 {
		unmerged, merge = append(unmerged, merge[0]), nil // merging would only copy it
	}
	if len(b.docs) > 0 || len(merge) > 0 {
		var sources []*mergeSource
		slices.SortFunc(merge, func(x, y segmentSnapshot) int { return int(x.ID) - int(y.ID) })
		for _, s := range merge {
			src, err := newSegmentSource(tx, s.ID, s.segment)
			if err != nil {
				return err
			}
			sources = append(sources, &mergeSource{termSource: src, dead: s.dead})
		}
		if len(b.docs) > 0 {
			sources = append(sources, &mergeSource{termSource: b.sortedSource()})
		}
		written, _, err := writeSegment(w.ctx, tx, w.newSegmentID(), sources)
		if err != nil {
			return err
		}
		for _, s := range merge {
			if err := w.removeSegment(tx, s); err != nil {
				return err
			}
		}
		if written.Docs > 0 {
			unmerged = append(unmerged, segmentSnapshot{segmentState: written})
		} else if err := tx.Bucket(bucketSegments).DeleteBucket(bigEndianKey(written.ID)); err != nil {
			return err
		}
	}
	// Write the new state.
	for _, s := range unmerged {
		w.state.Segments = append(w.state.Segments, s.segmentState)
		if s.dead != nil {
			if err := writeBitmap(root, keyDead(s.ID), s.dead); err != nil {
				return err
			}
		}
	}
	if err := writeBitmap(root, keyTombstones, w.tombstones); err != nil {
		return err
	}
	return w.state.writeTo(root)
}

// removeSegment removes a segment.
func (w *writer) removeSegment(tx *bolt.Tx, s segmentSnapshot) error {
	if err := tx.Bucket(rootBucket).Delete(keyDead(s.ID)); err != nil {
		return err
	}
	return tx.Bucket(bucketSegments).DeleteBucket(bigEndianKey(s.ID))
}

// segmentsWithDead returns the segments of the file with all their dead documents, and the staged
// ones.
func (w *writer) segmentsWithDead() []segmentSnapshot {
	var segments []segmentSnapshot
	if w.before != nil && !w.rebuild {
		for i, s := range w.before.segments {
			if newlyDead := w.newlyDead[i]; newlyDead != nil {
				for it := newlyDead.Iterator(); it.HasNext(); {
					if n := s.docs[it.Next()].length; n > 0 {
						s.Live--
						s.Count -= uint64(n)
					}
				}
				if s.dead != nil {
					newlyDead = roaring.Or(s.dead, newlyDead)
				}
				s.dead, s.Dead = newlyDead, int(newlyDead.GetCardinality())
			}
			segments = append(segments, s)
		}
	}
	return append(segments, w.staged...)
}
