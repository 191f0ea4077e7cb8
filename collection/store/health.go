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

// countRequests adds the answered requests of one group to the counters. took is the time for all of them.
func (c *Collection) countRequests(rs []*request, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := &c.counts
	counts.Groups++
	counts.Writing += took
	for _, r := range rs {
		switch {
		case r.err != nil:
			counts.Failed++
		case r.kind == updating:
			counts.Updates++
			counts.Documents += uint64(r.receipt.Stored.Documents)
		case r.kind == deleting:
			counts.Deletions++
			counts.Deleted += uint64(r.affected.Documents)
		}
	}
}

// Stats describes the present state of the collection. Without documents all counts are zero.
func (c *Collection) Stats(ctx context.Context) (collection.Stats, error) {
	st := collection.Stats{
		Growth:    collection.GrowthStats{Stage: collection.StageEmpty},
		Queue:     c.queue.statistics(),
		FileBytes: c.fileBytes(),
	}
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
	st.Dim, st.Nbits, st.Centroids = v.Dim(), h.Nbits, h.Centroids
	st.Generation, st.Model = v.snap.Generation(), h.Model
	st.Growth = collection.GrowthStats{Stage: c.store.opts.Growth.EncodingOf(&h).Stage, Drift: v.snap.Drift()}
	st.Growth.Advice = c.store.opts.Growth.Advice(st.Growth.Stage, st.Growth.Drift)
	if st.Defaults, err = v.snap.Defaults(); err != nil { // searches work without a damaged record
		c.log.Warn("the stored search defaults cannot be read", "error", err)
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

// documentsWithMetadata counts the documents that have metadata. Every passage has metadata, which says that it is a
// passage; a document of passages counts once.
func documentsWithMetadata(snap *index.Snapshot) uint64 {
	st := snap.State()
	return snap.Payloads() - min(snap.Payloads(), uint64(st.Passages)) + uint64(st.PassageParents)
}

// diskState remembers that the disk was full.
type diskState struct {
	mu   sync.Mutex
	full bool
	free uint64 // bytes that were free when it was found full
}

// minFreed is how many bytes must have been freed before a full disk counts as usable again without a successful
// write.
const minFreed = 16 << 20

// diskFullError returns the error in err that says that the disk, or the quota, is full, nil if none does.
func diskFullError(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) {
			return full
		}
	}
	return nil
}

// noteDisk updates whether the disk is full after an operation that ended with err. A success clears the state only if
// something was written.
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

// Disk reports whether the disk was full at the last write, and how many bytes are free now, if that is known.
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

// runGuarded calls run. A panic in it is logged, counted, and returned as [storage.ErrInternal]: it is a fault of one
// request or collection and must not end the others.
func (s *Store) runGuarded(log *slog.Logger, task string, run func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			s.panics.Add(1)
			log.Error("a panic", "in", task, "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: a panic in %s: %v", storage.ErrInternal, task, fault)
		}
	}()
	run()
	return nil
}

// countPanic counts a panic that has been turned into an error already.
func (s *Store) countPanic(err error) {
	if errors.Is(err, storage.ErrInternal) {
		s.panics.Add(1)
	}
}

// Panics returns the number of panics in background work, which no request's goroutine reports.
func (s *Store) Panics() uint64 { return s.panics.Load() }
