package storage

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// Refresh looks whether the file that was opened for reading has been replaced
// and, if so, opens the one that has its path now and shows accept a view of
// it. If accept returns nil, the view is its own and later views are of the new
// file too; the old one is closed with its last view. After an error everything
// stays as it was.
//
// Errors: those of [Open] and [File.View], and what accept returns.
func (f *File) Refresh(ctx context.Context, accept func(*View) error) (changed bool, err error) {
	if f.write {
		return false, fmt.Errorf("%s: it is open for writing, and stays the file that it is", f.path)
	}
	f.writer.Lock() // one at a time
	defer f.writer.Unlock()
	old, err := f.acquire()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.release(old)) }()
	// A program that writes into the file instead of replacing it heeds no lock;
	// what it leaves may be sound all the same.
	if info, err := os.Stat(f.path); err != nil {
		return false, boltfile.WithPath(f.path, err)
	} else if was := old.opened; os.SameFile(info, was) && info.Size() == was.Size() && info.ModTime().Equal(was.ModTime()) {
		return false, nil
	}
	fresh, err := Open(ctx, f.path, Options{Logger: f.log})
	if err != nil {
		return false, err
	}
	v, err := fresh.ViewAfter(ctx, nil)
	if err != nil {
		return false, errors.Join(err, fresh.Close())
	}
	h := fresh.handle
	v.file = f // which counts the references of h from here on
	if err := accept(v); err != nil {
		return false, errors.Join(err, v.Close(), f.release(h))
	}
	f.mu.Lock()
	previous := f.handle // not nil: Close waits for f.writer
	f.handle = h
	f.mu.Unlock()
	return true, f.release(previous)
}

// Writable tells whether the file was opened for writing.
func (f *File) Writable() bool { return f.write }
