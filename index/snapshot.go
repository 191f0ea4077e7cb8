package index

import (
	"context"
	"sync"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// Snapshot is the index at one moment. It is safe for concurrent use until
// Close, and it keeps showing the same documents whatever happens to the index. It
// has the methods of [storage.View], with a Close of its own.
type Snapshot struct {
	*view
	ix      *Index
	picture *picture
	once    sync.Once
}

// view hides what a snapshot shows: to close it is not for those who share it.
type view = storage.View

// Snapshot returns the index as it is now, after each change that has returned.
// Taking one is cheap, and waits for no change; close it when done, since the space
// of what is replaced meanwhile is not reused before.
func (ix *Index) Snapshot() (*Snapshot, error) {
	for {
		p, err := ix.hold()
		if err != nil {
			return nil, err
		}
		if p != nil {
			return &Snapshot{view: p.view, ix: ix, picture: p}, nil
		}
		if err := ix.load(context.Background()); err != nil {
			return nil, err
		}
	}
}

// Close ends the snapshot. It may be called more than once.
func (s *Snapshot) Close() error {
	var err error
	s.once.Do(func() { err = s.ix.release(s.picture) })
	return err
}

// Version is a number: snapshots of the same show the same state of the same index. It
// says nothing in another process.
func (s *Snapshot) Version() uint64 { return s.picture.number }

// Quantizer is the codec that the documents were encoded with.
func (s *Snapshot) Quantizer() *codec.Quantizer { return s.picture.codec }

// Scorer is the backend prepared for the codec.
func (s *Snapshot) Scorer() kernels.Scorer { return s.picture.scorer }

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
	return s.picture.live.words, s.picture.live.docs
}
