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

// DerivedFile is a file of bbolt beside an index, of data that are derived from it, such
// as keywords. bbolt panics on damaged pages, or follows them in circles, and then leaves
// its lock, descriptor and mutexes as they are: here that is a [CorruptError], after which
// the file can be closed.
type DerivedFile struct {
	path   string
	db     *bolt.DB
	file   *os.File
	write  bool
	broken atomic.Bool // bbolt may hold its own mutexes for ever
}

// DerivedOptions say how to open a file.
type DerivedOptions struct {
	// Write takes the exclusive lock, and makes the file where it is not there.
	Write bool
	// LockTimeout is how long to wait for the lock; 0: not at all.
	LockTimeout time.Duration
	// PageSize of a file that is made; 0: that of the system.
	PageSize int
}

// derivedPoll is how long to wait between two tries.
const derivedPoll = 50 * time.Millisecond

// OpenDerived opens a file.
//
// Errors: that of ctx, [ErrLocked], [ErrCorrupt], [fs.ErrNotExist], and what the system
// refuses. Nothing is left open after an error.
func OpenDerived(ctx context.Context, path string, o DerivedOptions) (*DerivedFile, error) {
	var d *DerivedFile
	err := WhileLocked(ctx, o.LockTimeout, func() (err error) {
		d, err = openDerived(ctx, path, o)
		return err
	})
	return d, err
}

// WhileLocked calls try again and again while it returns [ErrLocked], until the timeout;
// 0: it calls it once.
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
		case <-time.After(derivedPoll):
		}
	}
}

func openDerived(ctx context.Context, path string, o DerivedOptions) (d *DerivedFile, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil && !(o.Write && errors.Is(err, fs.ErrNotExist)):
		return nil, boltfile.WithPath(path, err)
	case err == nil && !info.Mode().IsRegular(): // a pipe would make us wait
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
			closeLeft(file) // unless bbolt has closed it
		}
	}()
	if err := boltfile.Lock(ctx, file, o.Write, time.Time{}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if info, err = file.Stat(); err != nil {
		return nil, boltfile.WithPath(path, err)
	}
	if named, err := os.Stat(path); err != nil || !os.SameFile(named, info) {
		return nil, fmt.Errorf("%s: %w: it was replaced", path, ErrLocked) // who did so has the lock of the new one
	}
	d = &DerivedFile{path: path, file: file, write: o.Write}
	if err := d.check(ctx, info.Size()); err != nil {
		return nil, err
	}
	if err := d.start(o.PageSize); err != nil {
		return nil, err
	}
	return d, nil
}

// check finds out what would make bbolt panic, or go round for ever. A reader looks at the
// branches of the tree only, which lead it everywhere.
func (d *DerivedFile) check(ctx context.Context, size int64) error {
	if size == 0 && d.write {
		return nil // bbolt makes its first pages
	}
	if err := checkMeta(d.file); err != nil {
		return corrupt(d.path, errors.New(err.Error()), "bbolt's first pages") // it may say "no index", which it need not be
	}
	check := boltfile.CheckNewest
	if !d.write {
		check = boltfile.CheckBranches
	}
	if err := check(ctx, d.file); err != nil {
		return treeFault(ctx, d.path, err)
	}
	return nil
}

func (d *DerivedFile) start(pageSize int) (err error) {
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

// Writes tells whether the file was opened for that.
func (d *DerivedFile) Writes() bool { return d.write }

// View calls fn with a transaction that reads.
func (d *DerivedFile) View(fn func(*bolt.Tx) error) (err error) {
	defer Guard(d.path, &err)()
	var tx *bolt.Tx
	err = d.brokenByPanic(func() error {
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
	return d.brokenByPanic(func() error { return d.db.Update(fn) })
}

// brokenByPanic calls bbolt where it holds mutexes of its own, which a panic leaves locked.
func (d *DerivedFile) brokenByPanic(call func() error) error {
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
		files.Unlock(d.file) // what bbolt has mapped keeps the open file alive
		return d.file.Close()
	}
	return d.db.Close()
}
