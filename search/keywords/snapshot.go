package keywords

import (
	"encoding/json"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage"
)

// The file is of bbolt. Bucket "plaid-keywords" has
//
//	state       JSON: what the file shows, and of which segments it is made
//	gone        roaring bitmap: the tombstones of the index at that time
//	dead N      roaring bitmap: documents of segment N that are not current
//	segments    a bucket for each segment
//
// all but the bucket with a checksum. A segment that the state does not name was left
// by a Sync that did not end, and goes with the next one.
var (
	rootBucket     = []byte("plaid-keywords")
	bucketSegments = []byte("plaid-keywords-segments")
	keyState       = []byte("state")
	keyTombstones  = []byte("gone")
)

func keyDead(segment uint32) []byte { return append([]byte("dead"), bigEndianKey(segment)...) }

// version of the file. One of another version is made again, with its settings.
const version = 2

// state is what the file shows.
type state struct {
	Version  int           `json:"version"`
	Settings Settings      `json:"settings"`
	Stamp    storage.Stamp `json:"stamp"`
	Docs     uint32        `json:"docs"` // ordinals given out
	// PayloadUpdates is that of the index.
	PayloadUpdates uint64         `json:"payload_updates"`
	NextSegment    uint32         `json:"next_segment"`
	Segments       []segmentState `json:"segments"`
}

// snapshot is the state of the file at one transaction, decoded.
type snapshot struct {
	tx         int
	state      state
	tombstones *roaring.Bitmap
	segments   []openSegment
	docs       int // that have text
	tokens     uint64
}

type openSegment struct {
	segmentState
	*segment
	dead *roaring.Bitmap // nil: none
}

// snapshotAt is what a transaction shows; nil if nothing was made yet.
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
	ix.settings = &st.Settings // whatever becomes of the rest
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

// readState is nil where there is none.
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

// readSnapshot reads what belongs to a state; tables are taken from the picture before, if
// there.
func readSnapshot(tx *bolt.Tx, st *state, before *snapshot) (p *snapshot, err error) {
	root := tx.Bucket(rootBucket)
	p = &snapshot{tx: tx.ID(), state: *st}
	if p.tombstones, err = readBitmap(root, keyTombstones); err != nil {
		return nil, err
	}
	known := map[uint32]*segment{}
	if before != nil {
		for _, s := range before.segments {
			known[s.ID] = s.segment
		}
	}
	for _, st := range p.state.Segments {
		s := openSegment{segmentState: st, segment: known[st.ID]}
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
	if err := set.UnmarshalBinary(data); err != nil { // into memory of its own
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
