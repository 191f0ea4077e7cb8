package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
)

// Backup implements [collection.Backuper]: one index file of all shards, as that of a
// folder is. It is made in the folder of the front, and checked, before the first byte.
func (c *shards) Backup(ctx context.Context, out io.Writer) (r *index.BackupReport, err error) {
	if c.f.op == nil {
		return nil, unable("a backup")
	}
	v, err := c.View(ctx) // says why there is none
	if err != nil {
		return nil, err
	}
	if err := v.Close(); err != nil {
		return nil, err
	}
	dir, remove, err := operate.Scratch(c.f.c.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	path := filepath.Join(dir, "whole.plaid")
	began := time.Now()
	copied, err := c.f.op.Backup(ctx, c.id, path, dir)
	if err != nil {
		return nil, answered(err)
	}
	r = &index.BackupReport{Docs: copied.Docs, Tokens: copied.Tokens}
	r.Seconds.Write = time.Since(began).Seconds()
	if err := verified(ctx, path); err != nil {
		return nil, err
	}
	r.Seconds.Check = time.Since(began).Seconds() - r.Seconds.Write
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	r.Size, err = io.Copy(out, &untilDone{ctx, in})
	r.Written = r.Size
	return r, err
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

func verified(ctx context.Context, path string) error {
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	return errors.Join(ix.Verify(ctx), ix.Close())
}

// Restore implements [collection.Restorer].
func (f *Front) Restore(ctx context.Context, name string, in io.Reader) error {
	return f.fill(ctx, name, "a restored backup", func(path string) (err error) {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, &untilDone{ctx, in})
		return errors.Join(err, file.Close())
	})
}

// Import implements [collection.Restorer].
func (f *Front) Import(ctx context.Context, name, dir string) (r *index.ImportReport, err error) {
	err = f.fill(ctx, name, "an import", func(path string) (err error) {
		r, err = index.Import(ctx, dir, path, &index.ImportOptions{Threads: f.c.Threads, Backend: f.c.Backend, Logger: f.log})
		return err
	})
	return r, err
}

// fill gives a collection that has no documents the ones of an index file, which write makes;
// it is declared if it is not there, and removed again if filling it failed.
func (f *Front) fill(ctx context.Context, name, what string, write func(path string) error) (err error) {
	if f.op == nil {
		return unable(what)
	}
	c, err := f.Get(name)
	declared := errors.Is(err, collection.ErrUnknown)
	if err != nil && !declared {
		return err
	}
	if !declared {
		if err := unfilled(ctx, name, c); err != nil {
			return err
		}
	}
	dir, remove, err := operate.Scratch(f.c.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	path := filepath.Join(dir, "whole.plaid")
	if err := write(path); err != nil {
		return err
	}
	if err := verified(ctx, path); err != nil {
		return err
	}
	if declared {
		if c, err = f.Declare(ctx, name, collection.Config{}); err != nil {
			return err
		}
	}
	of := c.(*shards)
	m, err := f.op.Fill(ctx, of.id, path, dir)
	if err == nil {
		return answered(f.seen(ctx, m))
	}
	if errors.Is(err, operate.ErrState) { // somebody was faster
		if there := unfilled(ctx, name, c); there != nil {
			err = there
		}
	} else if declared {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		if now, gerr := f.Get(name); gerr == nil && now == c {
			if _, derr := f.Drop(ctx, name); derr != nil {
				f.log.Warn("a collection that was declared to be filled stays", "collection", name, "error", derr)
			}
		}
	}
	return answered(err)
}

// unfilled is an error of a collection that has documents, or had some.
func unfilled(ctx context.Context, name string, c collection.Collection) error {
	v, err := c.View(ctx)
	switch {
	case errors.Is(err, collection.ErrEmpty):
		return nil
	case err != nil:
		return err
	}
	return errors.Join(fmt.Errorf("%w: %q has documents", collection.ErrExists, name), v.Close())
}

// Verify implements [collection.Verifier]: every replica is read by its node, and those of a
// shard are compared.
func (c *shards) Verify(ctx context.Context) error {
	if c.f.op == nil {
		return unable("a check")
	}
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	if err := v.Close(); err != nil {
		return err
	}
	_, err = c.f.op.Verify(ctx, c.name)
	if errors.Is(err, operate.ErrDiffer) {
		return fmt.Errorf("%w: %w", collection.ErrDamaged, err)
	}
	return answered(err)
}
