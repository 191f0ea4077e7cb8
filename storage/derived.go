package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// DerivedFile is a file of bbolt next to an index, with data derived from the index, such as
// keywords. On damaged pages bbolt panics or loops for ever, and then does not release its file lock,
// descriptor and mutexes. A DerivedFile returns a [CorruptError] instead, and can be closed after it.
type DerivedFile struct {
	path   string
	db     *bolt.DB
	file   *os.File
	write  bool
	broken atomic.Bool // bbolt panicked, and may hold its own mutexes for ever
}

// DerivedOptions are the options of [OpenDerived].
type DerivedOptions struct {
	// Write acquires the exclusive lock, and creates the file if it does not exist.
	Write bool
	// LockTimeout is how long to wait for the lock. 0 means not to wait.
	LockTimeout time.Duration
	// PageSize is the page size of a new file. 0 means that of the system.
	PageSize int
}

// lockPollInterval is how long WhileLocked waits between two attempts.
const lockPollInterval = 50 * time.Millisecond

// OpenDerived opens a file, after checking the pages that could make bbolt panic.
//
// Errors: that of ctx, [ErrLocked], [ErrCorrupt], [fs.ErrNotExist], and other errors of the system.
func OpenDerived(ctx context.Context, path string, o DerivedOptions) (*DerivedFile, error) {
	var d *DerivedFile
	err := WhileLocked(ctx, o.LockTimeout, func() (err error) {
		d, err = openDerived(ctx, path, o)
		return err
	})
	return d, err
}

// WhileLocked calls try until it returns no [ErrLocked], or until the timeout. 0 means one call.
func WhileLocked(ctx context.Context, timeout time.Duration, try func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		if err := try(); !errors.Is(err, ErrLocked) || time.Now().After(deadline) {
			return err
		}
		if files.HookWaiting != nil {
			files.HookWaiting("")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPollInterval):
		}
	}
}

// openDerived is OpenDerived without waiting for the lock.
func openDerived(ctx context.Context, path string, o DerivedOptions) (d *DerivedFile, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil && !(o.Write && errors.Is(err, fs.ErrNotExist)):
		return nil, boltfile.WithPath(path, err)
	case err == nil && !info.Mode().IsRegular(): // opening a pipe would block
		return nil, fmt.Errorf("%s: it is a %s", path, boltfile.KindOf(info))
	}
	flag := os.O_RDONLY
	if o.Write {
		flag = os.O_RDWR | os.O_CREATE
	}
	file, err := files.OpenFile(path, flag, 0o666)
	if err != nil {
		return nil, boltfile.WithPath(path, err)
	}
	defer func() {
		if err != nil {
			closeUnlessClosed(file) // unless bbolt has closed it
		}
	}()
	if err := boltfile.Lock(ctx, file, o.Write, time.Time{}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if info, err = file.Stat(); err != nil {
		return nil, boltfile.WithPath(path, err)
	}
	if named, err := os.Stat(path); err != nil || !os.SameFile(named, info) {
		// The process that replaced it holds the lock of the new file.
		return nil, fmt.Errorf("%s: %w: it was replaced", path, ErrLocked)
	}
	d = &DerivedFile{path: path, file: file, write: o.Write}
	if err := d.checkPages(ctx, info.Size()); err != nil {
		return nil, err
	}
	if err := d.openDB(o.PageSize); err != nil {
		return nil, err
	}
	return d, nil
}

// checkPages checks the pages that could make bbolt panic or loop. For reading, the branches of the tree
// suffice, since they lead to all pages.
func (d *DerivedFile) checkPages(ctx context.Context, size int64) error {
	if size == 0 && d.write {
		return nil // bbolt creates the first pages
	}
	if err := checkMeta(d.file); err != nil {
		// errors.New hides an ErrNotIndex: this file need not be an index.
		return corruptError(d.path, errors.New(err.Error()), "bbolt's first pages")
	}
	checkTree := boltfile.CheckNewest
	if !d.write {
		checkTree = boltfile.CheckBranches
	}
	if err := checkTree(ctx, d.file); err != nil {
		return treeError(ctx, d.path, err)
	}
	return nil
}

// openDB lets bbolt open the file.
func (d *DerivedFile) openDB(pageSize int) (err error) {
	defer Guard(d.path, &err)()
	bo := optionsFor(d.file, d.write)
	bo.PageSize = pageSize
	d.db, err = bolt.Open(d.path, 0, bo)
	if errors.Is(err, berrors.ErrTimeout) {
		err = ErrLocked
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	return nil
}

// Writes reports whether the file was opened for writing.
func (d *DerivedFile) Writes() bool { return d.write }

// View calls fn with a read transaction.
func (d *DerivedFile) View(fn func(*bolt.Tx) error) (err error) {
	defer Guard(d.path, &err)()
	var tx *bolt.Tx
	err = d.markBrokenByPanic(func() error {
		tx, err = d.db.Begin(false)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	defer func() { _ = tx.Rollback() }()
	return fn(tx)
}

// Update calls fn with a transaction that is committed if it returns nil.
func (d *DerivedFile) Update(fn func(*bolt.Tx) error) (err error) {
	defer Guard(d.path, &err)()
	return d.markBrokenByPanic(func() error { return d.db.Update(fn) })
}

// markBrokenByPanic calls a function of bbolt that holds mutexes, and sets d.broken if it panics, since a
// panic leaves the mutexes locked.
func (d *DerivedFile) markBrokenByPanic(call func() error) error {
	returned := false
	defer func() {
		if !returned {
			d.broken.Store(true)
		}
	}()
	err := call()
	returned = true
	return err
}

// Close closes the file. No transaction may run.
func (d *DerivedFile) Close() error {
	if d.broken.Load() {
		files.Unlock(d.file) // before Close, since bbolt's mapping keeps the open file, and its lock, alive
		return d.file.Close()
	}
	return d.db.Close()
}
