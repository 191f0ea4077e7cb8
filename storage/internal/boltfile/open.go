package boltfile

import (
	"context"
	"errors"
	"fmt"
	"github.com/plaid-ir/plaid/internal/files"
	"io/fs"
	"os"
	"time"
)

// Errors that the package storage hands on under its own names.
var (
	ErrCorrupt = errors.New("index is corrupt")
	ErrLocked  = errors.New("index is locked: it is open elsewhere")
)

// WithPath puts the path in front of an error of the system, which says it behind the call.
func WithPath(path string, err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// KindOf names what is no regular file.
func KindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "folder"
	}
	return "special file"
}

// Lock waits for a file's lock, until ctx ends: to write an exclusive one.
func Lock(ctx context.Context, f *os.File, write bool, deadline time.Time) error {
	err := files.WaitLock(ctx, f, write, deadline, files.HookWaiting)
	if errors.Is(err, files.ErrLocked) {
		return ErrLocked
	}
	return err
}
