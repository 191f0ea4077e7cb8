package keywords

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

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
	keyGone        = []byte("gone")
)

func keyDead(segment uint32) []byte { return append([]byte("dead"), key32(segment)...) }

// version of the file. One of another version is made anew.
const version = 1

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

// picture is the state of the file at one transaction, decoded.
type picture struct {
	tx       int
	state    state
	gone     *roaring.Bitmap
	segments []shown
	docs     int // that have text
	tokens   uint64
}

type shown struct {
	segmentState
	*segment
	dead *roaring.Bitmap // nil: none
}

const lockPoll = 50 * time.Millisecond

// How a file is opened.
type opening int

const (
	toRead opening = iota
	toWrite
	toCreate  // where it is not there
	toReplace // by an empty one
)

// open opens the file in the place of the one that is open. errDamaged and
// fs.ErrNotExist leave none open.
func (ix *Index) open(ctx context.Context, how opening) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ix.closeFile(); err != nil {
		return err
	}
	info, err := os.Stat(ix.path)
	switch {
	case err != nil && !(how >= toCreate && errors.Is(err, fs.ErrNotExist)):
		return err
	case err == nil && info.IsDir():
		return fmt.Errorf("%s: is a folder", ix.path)
	case err == nil && how == toReplace:
		// Two processes may do so at once. Both files are complete in the end, and
		// the one that is there then stays.
		if err := os.Remove(ix.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	write := how != toRead
	deadline := time.Now().Add(ix.o.LockTimeout)
	for {
		err := guarded(ix.path, func() (err error) {
			ix.db, err = bolt.Open(ix.path, 0o666, &bolt.Options{ReadOnly: !write, Timeout: 1, FreelistType: bolt.FreelistMapType})
			return err
		})
		switch {
		case err == nil:
			ix.write = write
			return nil
		case errors.Is(err, berrors.ErrTimeout):
			err = fmt.Errorf("%s: %w", ix.path, storage.ErrLocked)
			if time.Now().After(deadline) {
				return err
			}
		default:
			return damage(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// damage tells a damaged file from what the system refuses.
func damage(err error) error {
	var path *fs.PathError
	var sys *os.SyscallError
	if errors.As(err, &path) || errors.As(err, &sys) || errors.Is(err, errDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// closeFile is for who holds ix.mu.
func (ix *Index) closeFile() error {
	if ix.db == nil {
		return nil
	}
	db := ix.db
	ix.db = nil
	ix.cache.Lock()
	ix.last = nil
	ix.cache.Unlock()
	return db.Close()
}

// picture is what a transaction shows; nil if nothing was made yet.
func (ix *Index) picture(tx *bolt.Tx) (*picture, error) {
	ix.cache.Lock()
	defer ix.cache.Unlock()
	if ix.damaged {
		return nil, errDamaged
	}
	if ix.last != nil && ix.last.tx == tx.ID() {
		return ix.last, nil
	}
	p, err := readPicture(tx, ix.last)
	if err == nil && p != nil && !tx.Writable() {
		ix.last = p
	}
	return p, err
}

// readPicture reads the state; tables are taken from the picture before, if there.
func readPicture(tx *bolt.Tx, before *picture) (*picture, error) {
	root := tx.Bucket(rootBucket)
	if root == nil || tx.Bucket(bucketSegments) == nil {
		return nil, nil
	}
	sealed := root.Get(keyState)
	if sealed == nil {
		return nil, nil
	}
	text, ok := unseal(keyState, sealed)
	p := &picture{tx: tx.ID()}
	if !ok || json.Unmarshal(text, &p.state) != nil {
		return nil, errDamaged
	}
	if p.state.Version != version {
		return nil, nil
	}
	var err error
	if p.gone, err = readSet(root, keyGone); err != nil {
		return nil, err
	}
	known := map[uint32]*segment{}
	if before != nil {
		for _, s := range before.segments {
			known[s.ID] = s.segment
		}
	}
	for _, st := range p.state.Segments {
		s := shown{segmentState: st, segment: known[st.ID]}
		if s.segment == nil {
			b := segmentBucket(tx, st.ID)
			if b == nil {
				return nil, errDamaged
			}
			table, ok := unseal(keyIn(st.ID, keyDocs), b.Get(keyDocs))
			if !ok {
				return nil, errDamaged
			}
			if s.segment, err = decodeDocs(table); err != nil {
				return nil, err
			}
		}
		if st.Dead > 0 {
			if s.dead, err = readSet(root, keyDead(st.ID)); err != nil {
				return nil, err
			}
		}
		if len(s.docs) != st.Docs || s.dead != nil && s.dead.GetCardinality() != uint64(st.Dead) {
			return nil, errDamaged
		}
		p.segments = append(p.segments, s)
		p.docs += st.Live
		p.tokens += st.Count
	}
	return p, nil
}

func segmentBucket(tx *bolt.Tx, id uint32) *bolt.Bucket {
	if b := tx.Bucket(bucketSegments); b != nil {
		return b.Bucket(key32(id))
	}
	return nil
}

func readSet(b *bolt.Bucket, key []byte) (*roaring.Bitmap, error) {
	data, ok := unseal(key, b.Get(key))
	if !ok {
		return nil, errDamaged
	}
	set := roaring.New()
	if err := set.UnmarshalBinary(data); err != nil { // into memory of its own
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return set, nil
}

func writeSet(b *bolt.Bucket, key []byte, set *roaring.Bitmap) error {
	set = set.Clone()
	set.RunOptimize()
	data, err := set.ToBytes()
	if err != nil {
		return err
	}
	return b.Put(key, seal(key, data))
}

func (s *state) write(b *bolt.Bucket) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return b.Put(keyState, seal(keyState, text))
}
