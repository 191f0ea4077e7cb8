package storage

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/files"
)

// On Windows a file is as long as its mapping, so that a writer cannot map from the beginning all
// the space into which its file may grow. It remaps the file as that grows.
//
// bbolt waits with remapping until no read transaction is open, but a snapshot has one as long as it
// is open. So snapshots of such a writer read through a second, read-only mapping of the same file.
// A second mapping that has become too small stays until its snapshots are closed. The writer must
// not reuse the pages that they read: to ensure that, a snapshot also has a read transaction of the
// writer's own mapping (readSnapshot.guard), which reads nothing and does not hold the mapping lock.

// readSnapshot is the read transaction of a snapshot.
type readSnapshot struct {
	tx    *bolt.Tx
	guard *bolt.Tx         // keeps the writer from reusing pages, nil unless the writer remaps the file
	from  *readOnlyMapping // the mapping that tx reads, nil unless the writer remaps the file
}

// readOnlyMapping is a read-only mapping of a file that this process writes.
type readOnlyMapping struct {
	db   *bolt.DB
	size int64 // of the mapping, in bytes
	uses int   // its snapshots, plus 1 while it is the newest; guarded by File.mu
}

// boltMappingLock returns the lock that keeps bbolt from remapping the file while a read transaction is
// open, or nil if this version of bbolt has no lock of that name.
func boltMappingLock(db *bolt.DB) *sync.RWMutex {
	lock := reflect.ValueOf(db).Elem().FieldByName("mmaplock")
	if !lock.IsValid() || lock.Type() != reflect.TypeFor[sync.RWMutex]() {
		return nil
	}
	return (*sync.RWMutex)(unsafe.Pointer(lock.UnsafeAddr()))
}

// snapshotInSecondMapping begins a read transaction of the committed state in the second mapping. The caller
// holds f.mu, and no commit is in progress: so the transaction and its guard are of one state, and
// neither waits.
func (f *File) snapshotInSecondMapping(h *handle) (*readSnapshot, error) {
	guard, err := h.db.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	h.remapLock.RUnlock() // which Begin has locked: the guard must not block remapping
	s := &readSnapshot{guard: guard}
	if err = h.remapForReading(guard.Size()); err == nil {
		s.tx, err = h.readMapping.db.Begin(false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.path, err), h.endGuard(guard))
	}
	s.from = h.readMapping
	s.from.uses++
	return s, nil
}

// endGuard ends the guard of a snapshot.
func (h *handle) endGuard(guard *bolt.Tx) error {
	h.remapLock.RLock() // which Rollback unlocks
	return guard.Rollback()
}

// remapForReading replaces the second mapping if it is smaller than minSize bytes. The caller holds
// File.mu.
func (h *handle) remapForReading(minSize int64) (err error) {
	if h.readMapping != nil && h.readMapping.size >= minSize {
		return nil
	}
	info, err := h.file.Stat()
	if err != nil {
		return err
	}
	defer Guard(h.file.Name(), &err)()
	const write = false
	var db *bolt.DB
	err = files.Duplicate(h.file, func(file *os.File) (err error) {
		db, err = bolt.Open(h.file.Name(), 0, optionsFor(file, write))
		return err
	})
	if err != nil {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		return err
	}
	old := h.readMapping
	h.readMapping = &readOnlyMapping{db: db, size: info.Size(), uses: 1}
	if runtime.GOOS != "windows" { // in tests on other systems, the mapping is larger than the file
		h.readMapping.size = roundMapSize(info.Size())
	}
	return old.release()
}

// release removes one use, and closes the mapping after the last. The caller holds File.mu.
func (m *readOnlyMapping) release() error {
	if m == nil {
		return nil
	}
	if m.uses--; m.uses > 0 {
		return nil
	}
	return m.db.Close()
}

// endSnapshot ends the read transaction of a snapshot.
func (f *File) endSnapshot(h *handle, s *readSnapshot) error {
	err := s.tx.Rollback()
	if s.guard == nil {
		return err
	}
	err = errors.Join(err, h.endGuard(s.guard))
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(err, s.from.release())
}
