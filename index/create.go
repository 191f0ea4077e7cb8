package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/plaid-ir/plaid/storage"
)

// vacant says so if there is an index without waiting for readers to go.
func vacant(ctx context.Context, path string, o BuildOptions) error {
	if o.Force {
		return nil
	}
	there, err := storage.Open(ctx, path, storage.Options{LockTimeout: o.LockTimeout})
	switch {
	case err == nil:
		return errors.Join(exists(path), there.Close())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, storage.ErrUnfinished): // what an interrupted build left needs no force
	case isEmpty(path):
	default:
		return err
	}
	return nil
}

// create opens path for a build, and tells whether it had no file before.
func create(ctx context.Context, path string, o BuildOptions) (f *storage.File, created bool, err error) {
	deadline := time.Now().Add(o.LockTimeout)
	if err := vacant(ctx, path, o); err != nil {
		return nil, false, err
	}
	o.LockTimeout = max(0, time.Until(deadline))
	f, err = storage.Open(ctx, path, storage.Options{Write: true, Create: true, Resume: o.Resume, LockTimeout: o.LockTimeout, Logger: o.Logger})
	if err != nil {
		return nil, false, err
	}
	v, err := f.Snapshot() // another build may have come first
	if errors.Is(err, storage.ErrUnfinished) {
		return f, f.Created(), nil
	}
	if err == nil {
		err = errors.Join(exists(path), v.Close())
	}
	if o.Force {
		return f, false, nil
	}
	return nil, false, errors.Join(err, f.Close())
}

func exists(path string) error {
	return fmt.Errorf("%s: %w", path, storage.ErrExists)
}

func isEmpty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// made is [create], fill, and undo after an error; the file is closed.
func made(ctx context.Context, path string, o BuildOptions, fill func(f *storage.File, created bool) error) (err error) {
	file, created, err := create(ctx, path, o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = undo(file, created, err)
		} else {
			err = file.Close()
		}
	}()
	return fill(file, created)
}

// undo leaves the path as it was before a build that failed.
func undo(f *storage.File, created bool, failed error) error {
	if created {
		err := f.Remove() // while the lock keeps others from it
		if err == nil && errors.Is(failed, storage.ErrOutcomeUnknown) {
			failed = fmt.Errorf("%s was removed again: %s", f.Path(), failed) // so it is known
		}
		return errors.Join(failed, err, f.Close())
	}
	if !errors.Is(failed, storage.ErrOutcomeUnknown) {
		failed = errors.Join(failed, f.Discard())
	}
	return errors.Join(failed, f.Close())
}
