// Package index builds, opens and changes index files.
//
//	[Build], [Import]      make an index
//	[Open] → [Index]       opens one
//	[Index.Snapshot]       a consistent picture to search, however the index changes meanwhile
//	[Index.Add], [Index.Delete], [Index.Compact]
//	[Index.Verify], [Index.Info], [Snapshot.Export]
//
// Every change is atomic and durable when its method returns: a program that
// dies leaves the index as it was before. Documents are named by string ids
// from outside and by ordinals, given out in order of insertion and never
// renumbered, inside.
package index

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// Errors of this package, beside those of storage (ErrNotIndex, ErrCorrupt,
// ErrLocked, ErrVersion, ErrExists …) and vectors; test with errors.Is.
var (
	// ErrNoDocuments: a build without documents.
	ErrNoDocuments = errors.New("no documents")
	// ErrNoTokens: a build from documents that are all empty.
	ErrNoTokens = errors.New("every document is empty: there is nothing to train on")
	// ErrDimension: vectors of another dimension than the index.
	ErrDimension = errors.New("dimension differs from that of the index")
	// ErrDuplicateID: an id that is in the index, or twice in the input.
	ErrDuplicateID = errors.New("id is in the index already")
	// ErrNotFound: no live document has the id.
	ErrNotFound = errors.New("no such document")
	// ErrTooMany: more documents than ordinals.
	ErrTooMany = errors.New("too many documents")
	// ErrOption: an option out of range.
	ErrOption = errors.New("bad option")
)

// Options for Open. The zero value, or nil, opens for reading.
type Options struct {
	// Write allows Add, Delete and Compact, and takes the file's exclusive lock.
	Write bool
	// LockTimeout is how long to wait for another process; 0: not at all.
	LockTimeout time.Duration
	// Backend names the kernels; "": the best there is.
	Backend string
	// Logger hears of repairs and rewrites; nil: nobody does.
	Logger *slog.Logger
}

// Index is an open index. It is safe for concurrent use: any number of
// snapshots may be read while one goroutine at a time changes the index.
type Index struct {
	file    *storage.File
	backend kernels.Backend
	log     *slog.Logger

	write sync.Mutex // held by changes

	mu      sync.Mutex
	current *picture // nil until asked for, and after a change
	closed  bool
}

// Open opens the index file at path.
func Open(path string, o *Options) (*Index, error) {
	if o == nil {
		o = &Options{}
	}
	be, err := kernels.Select(o.Backend)
	if err != nil {
		return nil, err
	}
	f, err := storage.Open(path, storage.Options{Write: o.Write, LockTimeout: o.LockTimeout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	ix := newIndex(f, be, o.Logger)
	s, err := ix.Snapshot() // what cannot be read is an error here, not at the first search
	if err != nil {
		return nil, errors.Join(err, ix.Close())
	}
	return ix, errors.Join(s.Close())
}

func newIndex(f *storage.File, be kernels.Backend, log *slog.Logger) *Index {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Index{file: f, backend: be, log: log}
}

// Path is the index file.
func (ix *Index) Path() string { return ix.file.Path() }

// Backend is the name of the kernels in use.
func (ix *Index) Backend() string { return ix.backend.Name() }

// Close closes the index. Snapshots that are still open stay valid, and keep
// the file open, until they are closed too. It may be called more than once.
func (ix *Index) Close() error {
	ix.write.Lock()
	defer ix.write.Unlock()
	ix.mu.Lock()
	ix.closed = true
	ix.mu.Unlock()
	return errors.Join(ix.forget(), ix.file.Close())
}

// picture is a view shared by the snapshots taken between two changes.
type picture struct {
	view   *storage.View
	codec  *codec.Codec
	scorer kernels.Scorer
	refs   int // guarded by Index.mu; one is the index's own

	liveOnce sync.Once
	live     []uint64
	liveDocs int

	defaults func() (*storage.Defaults, error)
}

// Snapshot is the index at one moment. It is safe for concurrent use until
// Close, and it keeps showing the same documents whatever happens to the index.
type Snapshot struct {
	*storage.View
	ix   *Index
	p    *picture
	once sync.Once
}

// Snapshot returns the index as it is now. Taking one is cheap; close it when
// done, since the space of what is replaced meanwhile is not reused before.
func (ix *Index) Snapshot() (*Snapshot, error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return nil, fmt.Errorf("%s: %w", ix.Path(), storage.ErrClosed)
	}
	if ix.current == nil {
		v, err := ix.file.View()
		if err != nil {
			return nil, err
		}
		p, err := ix.newPicture(v)
		if err != nil {
			return nil, errors.Join(err, v.Close())
		}
		ix.current = p
	}
	ix.current.refs++
	return &Snapshot{View: ix.current.view, ix: ix, p: ix.current}, nil
}

func (ix *Index) newPicture(v *storage.View) (*picture, error) {
	c, err := codec.New(*v.Codec())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ix.Path(), err)
	}
	if cut := v.Cutoffs(); cut != nil {
		if c, err = c.WithCutoffs(cut); err != nil {
			return nil, fmt.Errorf("%s: %w", ix.Path(), err)
		}
	}
	s, err := ix.backend.Scorer(v.Codec())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ix.Path(), err)
	}
	return &picture{view: v, codec: c, scorer: s, refs: 1, defaults: sync.OnceValues(v.Defaults)}, nil
}

// forget drops the shared view, so that the next snapshot sees a change.
func (ix *Index) forget() error {
	ix.mu.Lock()
	p := ix.current
	ix.current = nil
	ix.mu.Unlock()
	if p == nil {
		return nil
	}
	return ix.release(p)
}

func (ix *Index) release(p *picture) error {
	ix.mu.Lock()
	p.refs--
	last := p.refs == 0
	ix.mu.Unlock()
	if !last {
		return nil
	}
	return p.view.Close()
}

// Close ends the snapshot. It may be called more than once.
func (s *Snapshot) Close() error {
	var err error
	s.once.Do(func() { err = s.ix.release(s.p) })
	return err
}

// Quantizer is the codec that the documents were encoded with.
func (s *Snapshot) Quantizer() *codec.Codec { return s.p.codec }

// Scorer is the backend prepared for the codec.
func (s *Snapshot) Scorer() kernels.Scorer { return s.p.scorer }

// Backend is the name of the kernels in use.
func (s *Snapshot) Backend() string { return s.ix.backend.Name() }

// Dim is the vector dimension.
func (s *Snapshot) Dim() int { return s.Header().Dim }

// Len is the number of live documents.
func (s *Snapshot) Len() int { return int(s.State().Live) }

// LiveSet has one bit an ordinal, set for documents that a search may return:
// those that are neither deleted nor empty. It is not to be changed.
func (s *Snapshot) LiveSet() (set []uint64, count int) {
	p := s.p
	p.liveOnce.Do(func() {
		p.live = make([]uint64, (int(s.State().Docs)+63)/64)
		for i := range s.Chunks() {
			first, offsets := s.ChunkDocs(i)
			for d := range len(offsets) - 1 {
				ordinal := first + uint32(d)
				if offsets[d] < offsets[d+1] && s.Live(ordinal) {
					p.live[ordinal/64] |= 1 << (ordinal % 64)
					p.liveDocs++
				}
			}
		}
	})
	return p.live, p.liveDocs
}
