package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage/objects"
)

// reached is a store whose errors say that it does not answer, unless they are answers.
type reached struct{ objects.Store }

func unreached(err error) error {
	if err == nil || errors.Is(err, objects.ErrNotFound) || errors.Is(err, objects.ErrExists) ||
		errors.Is(err, objects.ErrName) {
		return err
	}
	return fmt.Errorf("%w: the object store: %w", collection.ErrUnreachable, err)
}

// firstError is the first error of a store, such as wrong keys, in its own words. It wraps
// [collection.ErrUnreachable].
type firstError struct{ error }

func (e firstError) Unwrap() []error { return []error{collection.ErrUnreachable, e.error} }

func (s reached) Put(ctx context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	made, err := s.Store.Put(ctx, name, r, size)
	return made, unreached(err)
}

func (s reached) Replace(ctx context.Context, name string, body []byte) (time.Time, error) {
	made, err := s.Store.Replace(ctx, name, body)
	return made, unreached(err)
}

func (s reached) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, objects.Entry, error) {
	r, e, err := s.Store.Get(ctx, name, from, length)
	if err == nil {
		r = reachedBody{r}
	}
	return r, e, unreached(err)
}

// reachedBody is the body of an object, which may end too early.
type reachedBody struct{ io.ReadCloser }

func (b reachedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = unreached(err)
	}
	return n, err
}

func (s reached) List(ctx context.Context, prefix, after string, limit int) ([]objects.Entry, error) {
	entries, err := s.Store.List(ctx, prefix, after, limit)
	return entries, unreached(err)
}

func (s reached) Delete(ctx context.Context, name string) error {
	return unreached(s.Store.Delete(ctx, name))
}
