package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

func (c *Collection) countRequests(rs []*request, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &c.counts
	n.Groups++
	n.Writing += took
	for _, r := range rs {
		switch {
		case r.err != nil:
			n.Failed++
		case r.kind == updating:
			n.Updates++
			n.Documents += uint64(r.receipt.Stored.Documents)
		case r.kind == deleting:
			n.Deletions++
			n.Deleted += uint64(r.affected.Documents)
		}
	}
}

// Stats describes the collection as it is now. A collection without documents has
// zeros.
func (c *Collection) Stats(ctx context.Context) (collection.Stats, error) {
	st := collection.Stats{Growth: collection.GrowthStats{Stage: collection.StageEmpty}, Queue: c.queue.statistics(), FileBytes: c.fileBytes()}
	c.mu.Lock()
	st.Counts = c.counts
	c.mu.Unlock()
	v, err := c.Snapshot(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return st, nil
	} else if err != nil {
		return st, err
	}
	s, h := v.snap.State(), v.snap.Header()
	st.Documents, st.Passages, st.Deleted = uint64(v.snap.Documents()), uint64(s.Passages), uint64(s.Docs-s.Live)
	st.Tokens, st.Metadata = s.LiveTokens, documentsWithMetadata(v.snap)
	st.Dim, st.Nbits, st.Centroids, st.Generation, st.Model = v.Dim(), h.Nbits, h.Centroids, v.snap.Generation(), h.Model
	st.Growth = collection.GrowthStats{Stage: c.store.opts.Growth.CodedBy(&h).Stage, Drift: v.snap.Drift()}
	st.Growth.Advice = c.store.opts.Growth.Advice(st.Growth.Stage, st.Growth.Drift)
	if st.Defaults, err = v.snap.Defaults(); err != nil { // searches do without a damaged record
		c.log.Warn("what searches were seen to find could not be read", "error", err)
	}
	st.Sampled = v.sampledRecall(st.Defaults)
	c.mu.Lock()
	st.Growth.Training = c.growth.running != nil
	if c.growth.failure != nil {
		st.Growth.Failed = c.growth.failure.Error()
	}
	c.mu.Unlock()
	return st, v.Close()
}

// documentsWithMetadata counts the documents that have metadata. All passages have some, which say
// so.
func documentsWithMetadata(snap *index.Snapshot) uint64 {
	st := snap.State()
	return snap.Payloads() - min(snap.Payloads(), uint64(st.Passages)) + uint64(st.PassageParents)
}

// diskState remembers that the disk was full.
type diskState struct {
	mu   sync.Mutex
	full bool
	free uint64 // bytes, when it was found full
}

// minFreed is how many bytes must have come free before a disk counts as not full any
// more, though nothing was written since.
const minFreed = 16 << 20

// diskFullError is the error by which a disk is known to be full, or a share of it; nil: it is
// none.
func diskFullError(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) {
			return full
		}
	}
	return nil
}

// noteDisk notes whether something failed because the disk is full. A success shows that it is
// not, if something was written.
func (s *Store) noteDisk(err error, wrote bool) {
	full := diskFullError(err) != nil
	if !full && (err != nil || !wrote) {
		return
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if full && !s.disk.full {
		s.opts.Logger.Error("the disk is full: changes are refused until there is room", "folder", s.dir)
	}
	s.disk.full = full
	if full && s.dir != "" {
		s.disk.free, _ = freeBytes(s.dir)
	}
}

// Disk says whether the disk was full when something was last written, and how many bytes
// are free now, if that is known.
func (s *Store) Disk() (full bool, free uint64, known bool) {
	if s.dir != "" {
		free, known = freeBytes(s.dir)
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.disk.full && known && free >= s.disk.free+minFreed {
		s.disk.full = false
	}
	return s.disk.full, free, known
}

// runGuarded does something, and makes an error ([storage.ErrInternal]) of a panic in it, which
// is logged and counted: it is a fault of one request or collection, and no reason to end
// all others.
func (s *Store) runGuarded(log *slog.Logger, task string, do func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			s.panics.Add(1)
			log.Error("a panic", "in", task, "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: a panic in %s: %v", storage.ErrInternal, task, fault)
		}
	}()
	do()
	return nil
}

// countPanic counts a panic that is an error already.
func (s *Store) countPanic(err error) {
	if errors.Is(err, storage.ErrInternal) {
		s.panics.Add(1)
	}
}

// Panics is how many panics there were in work that is no request's own goroutine.
func (s *Store) Panics() uint64 { return s.panics.Load() }
