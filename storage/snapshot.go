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

// On Windows a writer maps its file anew as it grows, instead of having mapped from the
// beginning what it can grow to: there a file is as long as its mapping.
//
// To map the file anew bbolt waits until no read transaction is open, and views have one
// for as long as they live. So views of such a writer read through a second, read-only
// mapping of the same file, and a mapping that the file has outgrown stays until its
// views are closed. What they read must not be written over meanwhile: a read transaction
// of the writer's own mapping sees to that, one that reads nothing and does not hold
// the lock of the mapping.

// readSnapshot is a read transaction of a view.
type readSnapshot struct {
	tx    *bolt.Tx
	guard *bolt.Tx       // keeps the pages, where the writer maps anew; nil elsewhere
	from  *secondMapping // where tx reads then
}

// secondMapping is a read-only mapping of a file that this process writes.
type secondMapping struct {
	db   *bolt.DB
	size int64 // of the mapping
	uses int   // snapshots, and being the newest; guarded by File.mu
}

// mappingLock is the lock that a read transaction holds against mapping anew. It is nil
// if bbolt has none of that name.
func mappingLock(db *bolt.DB) *sync.RWMutex {
	lock := reflect.ValueOf(db).Elem().FieldByName("mmaplock")
	if !lock.IsValid() || lock.Type() != reflect.TypeFor[sync.RWMutex]() {
		return nil
	}
	return (*sync.RWMutex)(unsafe.Pointer(lock.UnsafeAddr()))
}

// snapshotBeside begins a read transaction of the committed state in the second mapping.
// f.mu is held, and nothing is being committed: so both transactions are of one state,
// and neither has to wait.
func (f *File) snapshotBeside(h *handle) (*readSnapshot, error) {
	guard, err := h.db.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	h.mapping.RUnlock()
	s := &readSnapshot{guard: guard}
	if err = h.mapForReading(guard.Size()); err == nil {
		s.tx, err = h.readMapping.db.Begin(false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.path, err), h.endGuard(guard))
	}
	s.from = h.readMapping
	s.from.uses++
	return s, nil
}

func (h *handle) endGuard(guard *bolt.Tx) error {
	h.mapping.RLock() // which Rollback gives back
	return guard.Rollback()
}

// mapForReading makes the second mapping one of so much of the file at least. File.mu is held.
func (h *handle) mapForReading(least int64) (err error) {
	if h.readMapping != nil && h.readMapping.size >= least {
		return nil
	}
	info, err := h.file.Stat()
	if err != nil {
		return err
	}
	defer Guard(h.file.Name(), &err)()
	var db *bolt.DB
	err = files.Duplicate(h.file, func(file *os.File) (err error) {
		db, err = bolt.Open(h.file.Name(), 0, optionsFor(file, false))
		return err
	})
	if err != nil {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		return err
	}
	old := h.readMapping
	h.readMapping = &secondMapping{db: db, size: info.Size(), uses: 1}
	if runtime.GOOS != "windows" { // where there is more of a mapping than of its file
		h.readMapping.size = mapStep(info.Size())
	}
	return old.release()
}

// release is called with File.mu held.
func (m *secondMapping) release() error {
	if m == nil {
		return nil
	}
	if m.uses--; m.uses > 0 {
		return nil
	}
	return m.db.Close()
}

// endSnapshot ends a read transaction of a view.
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
