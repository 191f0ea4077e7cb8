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

// checkVacant returns an error if path has an index that a build may not replace. It does not wait
// for readers.
func checkVacant(ctx context.Context, path string, o BuildOptions) error {
	if o.Force {
		return nil
	}
	existing, err := storage.Open(ctx, path, storage.Options{LockTimeout: o.LockTimeout})
	switch {
	case err == nil:
		return errors.Join(existsError(path), existing.Close())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, storage.ErrUnfinished): // remains of a build need no Force
	case isEmptyFile(path):
	default:
		return err
	}
	return nil
}

// createFile opens path for a build, and reports whether there was no file before.
func createFile(ctx context.Context, path string, o BuildOptions) (f *storage.File, created bool, err error) {
	deadline := time.Now().Add(o.LockTimeout)
	if err := checkVacant(ctx, path, o); err != nil {
		return nil, false, err
	}
	o.LockTimeout = max(0, time.Until(deadline))
	f, err = storage.Open(ctx, path, storage.Options{
		Write:       true,
		Create:      true,
		Resume:      o.Resume,
		LockTimeout: o.LockTimeout,
		Logger:      o.Logger,
	})
	if err != nil {
		return nil, false, err
	}
	// Without the lock, another build may have finished since checkVacant: look for its index.
	v, err := f.Snapshot()
	if errors.Is(err, storage.ErrUnfinished) {
		return f, f.Created(), nil
	}
	if err == nil {
		err = errors.Join(existsError(path), v.Close())
	}
	if o.Force { // replaces it, or a damaged one
		return f, false, nil
	}
	return nil, false, errors.Join(err, f.Close())
}

func existsError(path string) error {
	return fmt.Errorf("%s: %w", path, storage.ErrExists)
}

func isEmptyFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// createAndFill creates a file, calls fill, and closes the file. After an error it rolls back.
func createAndFill(
	ctx context.Context, path string, o BuildOptions, fill func(f *storage.File, created bool) error,
) (err error) {
	file, created, err := createFile(ctx, path, o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = rollBack(file, created, err)
		} else {
			err = file.Close()
		}
	}()
	return fill(file, created)
}

// rollBack restores the content that the path had before a failed build, and closes the file.
func rollBack(f *storage.File, created bool, cause error) error {
	if created {
		err := f.Remove() // while the lock still excludes others
		if err == nil && errors.Is(cause, storage.ErrOutcomeUnknown) {
			cause = fmt.Errorf("%s was removed again: %s", f.Path(), cause) // %s: the outcome is known now
		}
		return errors.Join(cause, err, f.Close())
	}
	if !errors.Is(cause, storage.ErrOutcomeUnknown) {
		cause = errors.Join(cause, f.Discard())
	}
	return errors.Join(cause, f.Close())
}
