package store

import (
	"errors"
	"sync"
	"syscall"
)

// disk remembers that the disk was full.
type disk struct {
	mu   sync.Mutex
	full bool
	free uint64 // bytes, when it was found full
}

// muchFree is how many bytes must have come free before a disk counts as not full any
// more, though nothing was written since.
const muchFree = 16 << 20

// diskFull is the error by which a disk is known to be full, or a share of it; nil: it is
// none.
func diskFull(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) {
			return full
		}
	}
	return nil
}

// noteDisk looks whether something failed since the disk is full. That it did not fail
// shows the contrary, where much was written.
func (s *Store) noteDisk(err error, wrote bool) {
	full := diskFull(err) != nil
	if !full && (err != nil || !wrote) {
		return
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if full && !s.disk.full {
		s.o.Logger.Error("the disk is full: changes are refused until there is room", "folder", s.dir)
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
	if s.disk.full && known && free >= s.disk.free+muchFree {
		s.disk.full = false
	}
	return s.disk.full, free, known
}
