package keywords

import (
	"encoding/json"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage"
)

// The file is a bbolt database. Bucket "plaid-keywords" has
//
//	state       JSON: the state of the index, and the segments of the file
//	gone        roaring bitmap: the tombstones of the index in that state
//	dead N      roaring bitmap: documents of segment N that are not current
//
// each with a checksum. Bucket "plaid-keywords-segments" has a bucket for each segment. A segment that
// the state does not name was left by an interrupted Sync; the next Sync removes it.
var (
	rootBucket     = []byte("plaid-keywords")
	bucketSegments = []byte("plaid-keywords-segments")
	keyState       = []byte("state")
	keyTombstones  = []byte("gone")
)

func keyDead(segment uint32) []byte { return append([]byte("dead"), bigEndianKey(segment)...) }

// version of the file format. Sync rebuilds a file of another version, with the same settings.
const version = 2

// state describes the content of the file.
type state struct {
	Version  int           `json:"version"`
	Settings Settings      `json:"settings"`
	Stamp    storage.Stamp `json:"stamp"`
	Docs     uint32        `json:"docs"` // ordinals of the index, including deleted ones
	// PayloadUpdates counts the payload updates of the index.
	PayloadUpdates uint64         `json:"payload_updates"`
	NextSegment    uint32         `json:"next_segment"`
	Segments       []segmentState `json:"segments"`
}

// snapshot is the decoded state of the file in one transaction.
type snapshot struct {
	tx         int // id of the transaction
	state      state
	tombstones *roaring.Bitmap
	segments   []segmentSnapshot
	docs       int    // documents that have text
	tokens     uint64 // of these documents
}

// segmentSnapshot is a segment that the state names, with its dead documents.
type segmentSnapshot struct {
	segmentState
	*segment
	dead *roaring.Bitmap // nil means none
}

// snapshotAt returns the snapshot of a transaction. It returns nil if the file has no state, or a
// state of another version.
func (ix *Index) snapshotAt(tx *bolt.Tx) (*snapshot, error) {
	ix.cache.Lock()
	defer ix.cache.Unlock()
	if ix.damaged {
		return nil, ErrDamaged
	}
	if ix.lastSnapshot != nil && ix.lastSnapshot.tx == tx.ID() {
		return ix.lastSnapshot, nil
	}
	st, err := readState(tx)
	if err != nil || st == nil {
		return nil, err
	}
	ix.settings = &st.Settings // a rebuild needs them even if the rest is damaged
	if st.Version != version {
		return nil, nil
	}
	p, err := readSnapshot(tx, st, ix.lastSnapshot)
	if err != nil {
		return nil, err
	}
	if !tx.Writable() {
		ix.lastSnapshot = p
	}
	return p, nil
}

// readState returns nil if the file has no state.
func readState(tx *bolt.Tx) (*state, error) {
	root := tx.Bucket(rootBucket)
	if root == nil || tx.Bucket(bucketSegments) == nil {
		return nil, nil
	}
	sealed := root.Get(keyState)
	if sealed == nil {
		return nil, nil
	}
	text, ok := verifyChecksum(keyState, sealed)
	var st state
	if !ok || json.Unmarshal(text, &st) != nil {
		return nil, ErrDamaged
	}
	return &st, nil
}

// readSnapshot reads the snapshot of a state. It reuses the document tables of an earlier snapshot.
func readSnapshot(tx *bolt.Tx, st *state, before *snapshot) (p *snapshot, err error) {
	root := tx.Bucket(rootBucket)
	p = &snapshot{tx: tx.ID(), state: *st}
	if p.tombstones, err = readBitmap(root, keyTombstones); err != nil {
		return nil, err
	}
	tables := map[uint32]*segment{}
	if before != nil {
		for _, s := range before.segments {
			tables[s.ID] = s.segment
		}
	}
	for _, st := range p.state.Segments {
		s := segmentSnapshot{segmentState: st, segment: tables[st.ID]}
		if s.segment == nil {
			b := segmentBucket(tx, st.ID)
			if b == nil {
				return nil, ErrDamaged
			}
			table, ok := verifyChecksum(segmentKey(st.ID, keyDocs), b.Get(keyDocs))
			if !ok {
				return nil, ErrDamaged
			}
			if s.segment, err = decodeDocs(table); err != nil {
				return nil, err
			}
		}
		if st.Dead > 0 {
			if s.dead, err = readBitmap(root, keyDead(st.ID)); err != nil {
				return nil, err
			}
		}
		if len(s.docs) != st.Docs || s.dead != nil && s.dead.GetCardinality() != uint64(st.Dead) {
			return nil, ErrDamaged
		}
		p.segments = append(p.segments, s)
		p.docs += st.Live
		p.tokens += st.Count
	}
	return p, nil
}

func segmentBucket(tx *bolt.Tx, id uint32) *bolt.Bucket {
	if b := tx.Bucket(bucketSegments); b != nil {
		return b.Bucket(bigEndianKey(id))
	}
	return nil
}

func readBitmap(b *bolt.Bucket, key []byte) (*roaring.Bitmap, error) {
	data, ok := verifyChecksum(key, b.Get(key))
	if !ok {
		return nil, ErrDamaged
	}
	set := roaring.New()
	if err := set.UnmarshalBinary(data); err != nil { // copies: data is valid in the transaction only
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return set, nil
}

func writeBitmap(b *bolt.Bucket, key []byte, set *roaring.Bitmap) error {
	set = set.Clone()
	set.RunOptimize()
	data, err := set.ToBytes()
	if err != nil {
		return err
	}
	return b.Put(key, withChecksum(key, data))
}

func (s *state) writeTo(b *bolt.Bucket) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return b.Put(keyState, withChecksum(keyState, text))
}
