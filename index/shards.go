package index

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Shards is a group of open indexes with the same codec, which are searched and changed as one.
// Each document is in one of them. Ordinals count in each, so together they may have more documents
// than one index can.
//
// A change of several documents is made in one shard after the other. Until it is done in all of
// them, or has failed, snapshots show the state before it, so that searches of this process see all
// of it or nothing. A process that dies in the middle leaves some shards changed and the others
// not; so does an error, which is then a [*ShardsError].
//
// It is safe for concurrent use.
type Shards struct {
	files     []*Index
	ownsFiles bool // Close closes the files

	writeLock ctxMutex // serializes changes through the Shards

	mu     sync.Mutex
	codecs []*kernels.Codec // the codec of each file that was compared and found equal
	frozen *shardsState     // state that is shown during a change, or nil
}

// ShardsError reports a change that was made in some shards and failed in another.
type ShardsError struct {
	Path string   // of the file in which it failed
	Done []string // files in which it is done
	Err  error
}

func (e *ShardsError) Error() string {
	return fmt.Sprintf("%v; the change is done in %d other shards", e.Err, len(e.Done))
}

// Unwrap returns the cause.
func (e *ShardsError) Unwrap() error { return e.Err }

// ShardPaths returns the index files of a path: the files of a folder whose names end in .plaid, in
// the order of their names, or the file itself.
func ShardPaths(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, nil // opening it reports the error
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".plaid" && !e.IsDir() {
			paths = append(paths, filepath.Join(path, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: %w: a folder without files *.plaid", path, storage.ErrNotIndex)
	}
	return paths, nil
}

// OpenShards opens index files as one. Their order decides the order of documents with equal
// scores, and the shard of new documents.
//
// Errors: those of [Open], [*CodecError], [storage.ErrModel], and [ErrOption] for a file that is
// named twice.
func OpenShards(ctx context.Context, paths []string, opts *Options) (s *Shards, err error) {
	o := valueOrZero(opts)
	timeout := o.LockTimeout
	o.LockTimeout = 0 // while waiting for one file, hold no lock of the others
	err = storage.WhileLocked(ctx, timeout, func() (err error) {
		s, err = openFiles(ctx, paths, &o)
		return err
	})
	return s, err
}

// openFiles opens each file once, without waiting for locks.
func openFiles(ctx context.Context, paths []string, o *Options) (_ *Shards, err error) {
	var files []*Index
	defer func() {
		if err != nil {
			for _, ix := range files {
				err = errors.Join(err, ix.Close())
			}
		}
	}()
	var infos []os.FileInfo
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, errors.Unwrap(err)) // without "stat"
		}
		for j, other := range infos {
			if os.SameFile(info, other) {
				return nil, fmt.Errorf("%w: %s and %s are the same file", ErrOption, paths[j], paths[i])
			}
		}
		infos = append(infos, info)
		ix, err := Open(ctx, path, o)
		if err != nil {
			return nil, err
		}
		files = append(files, ix)
	}
	s, err := NewShards(files...)
	if err != nil {
		return nil, err
	}
	s.ownsFiles = true
	return s, nil
}

// NewShards groups indexes that the caller has opened, and closes after the Shards.
func NewShards(files ...*Index) (*Shards, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: shards need at least one index", ErrOption)
	}
	s := &Shards{files: files, writeLock: make(ctxMutex, 1), codecs: make([]*kernels.Codec, len(files))}
	snap, err := s.Snapshot()
	if err != nil {
		return nil, err
	}
	return s, snap.Close()
}

// Files returns the indexes.
func (s *Shards) Files() []*Index { return s.files }

// Close closes the indexes that OpenShards opened. Snapshots stay valid until they are closed.
func (s *Shards) Close() error {
	s.writeLock <- struct{}{}
	defer s.writeLock.unlock()
	var errs []error
	if s.ownsFiles {
		for _, ix := range s.files {
			errs = append(errs, ix.Close())
		}
	}
	return errors.Join(errs...)
}

// shardsState is shared by snapshots of the shards that were taken together.
type shardsState struct {
	snaps []*Snapshot
	refs  int // guarded by Shards.mu
}

// ShardsSnapshot is one state of all shards: a snapshot of each, with the same codec. It is safe
// for concurrent use until Close.
type ShardsSnapshot struct {
	shards *Shards
	state  *shardsState
	once   sync.Once
}

// Snapshot returns the current state of the shards. It does not show a part of a change that is in
// progress.
func (s *Shards) Snapshot() (*ShardsSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := s.currentState()
	if err != nil {
		return nil, err
	}
	state.refs++
	return &ShardsSnapshot{shards: s, state: state}, nil
}

// currentState returns the state to show. The caller holds s.mu.
func (s *Shards) currentState() (_ *shardsState, err error) {
	if s.frozen != nil {
		return s.frozen, nil
	}
	state := &shardsState{snaps: make([]*Snapshot, 0, len(s.files))}
	defer func() {
		if err != nil {
			err = errors.Join(err, state.close())
		}
	}()
	for i, ix := range s.files {
		snap, err := ix.Snapshot()
		if err != nil {
			return nil, err
		}
		state.snaps = append(state.snaps, snap)
		if s.codecs[i] == snap.Codec() && s.codecs[0] == state.snaps[0].Codec() { // compared before
			continue
		}
		if err := checkSameCodec(state.snaps[0], snap); err != nil {
			return nil, err
		}
		s.codecs[i] = snap.Codec()
	}
	return state, nil
}

// close closes the snapshots of the state.
func (state *shardsState) close() error {
	var errs []error
	for _, snap := range state.snaps {
		errs = append(errs, snap.Close())
	}
	return errors.Join(errs...)
}

// release drops a reference, and closes the state with the last.
func (s *Shards) release(state *shardsState) error {
	s.mu.Lock()
	state.refs--
	last := state.refs == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	return state.close()
}

// JoinSnapshots joins snapshots of several indexes, which the caller closes after the result.
// codecGroups caches the comparisons of codecs between calls: codecs that were found equal have the
// same number.
//
// Errors: [*CodecError], [storage.ErrModel].
func JoinSnapshots(codecGroups map[*kernels.Codec]int, snaps ...*Snapshot) (*ShardsSnapshot, error) {
	if len(codecGroups) > 1024 { // most of these codecs are of files that were replaced
		clear(codecGroups)
	}
	// groupOf returns the number of the snapshot's codec, a new number for an unknown codec.
	groupOf := func(snap *Snapshot) int {
		if codecGroups[snap.Codec()] == 0 {
			codecGroups[snap.Codec()] = len(codecGroups) + 1
		}
		return codecGroups[snap.Codec()]
	}
	for _, snap := range snaps {
		first, other := groupOf(snaps[0]), groupOf(snap)
		if first == other {
			continue
		}
		if err := checkSameCodec(snaps[0], snap); err != nil {
			return nil, err
		}
		for c, group := range codecGroups {
			if group == other {
				codecGroups[c] = first
			}
		}
	}
	s := &ShardsSnapshot{state: &shardsState{snaps: snaps}}
	s.once.Do(func() {}) // there is nothing to close
	return s, nil
}

// Snapshots returns the snapshots of the shards, in their order. They are closed with s.
func (s *ShardsSnapshot) Snapshots() []*Snapshot { return s.state.snaps }

// Len returns the number of live ordinals.
func (s *ShardsSnapshot) Len() int64 {
	n := int64(0)
	for _, snap := range s.state.snaps {
		n += int64(snap.Len())
	}
	return n
}

// FindShard returns the first shard with a live ordinal of an id, or -1 if none has it.
func (s *ShardsSnapshot) FindShard(id string) (shard int, ordinal uint32, err error) {
	for i, snap := range s.state.snaps {
		ordinal, ok, err := snap.Ordinal(id)
		if err != nil || ok {
			return i, ordinal, err
		}
	}
	return -1, 0, nil
}

// Close releases the snapshot. It may be called more than once.
func (s *ShardsSnapshot) Close() error {
	var err error
	s.once.Do(func() { err = s.shards.release(s.state) })
	return err
}

// sourceSubset is a source with some documents of another, in ascending order.
type sourceSubset struct {
	vectors.Source
	docs []int
}

func (s *sourceSubset) Len() int        { return len(s.docs) }
func (s *sourceSubset) Rows(i int) int  { return s.Source.Rows(s.docs[i]) }
func (s *sourceSubset) ID(i int) string { return s.Source.ID(s.docs[i]) }
func (s *sourceSubset) Close() error    { return nil }

// Docs implements [vectors.Source].
func (s *sourceSubset) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return readDocuments(ctx, s.Source, s.docs[from:to])
}
