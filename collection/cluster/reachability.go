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

// reachabilityStore is a store whose errors wrap [collection.ErrUnreachable], unless they are answers of the store.
type reachabilityStore struct{ objects.Store }

// toUnreachable adds [collection.ErrUnreachable] to an error that is not an answer of the store.
func toUnreachable(err error) error {
	if err == nil || errors.Is(err, objects.ErrNotFound) || errors.Is(err, objects.ErrExists) ||
		errors.Is(err, objects.ErrName) {
		return err
	}
	return fmt.Errorf("%w: the object store: %w", collection.ErrUnreachable, err)
}

// joinError is an error of the first look at a store, such as wrong keys. It keeps its own text, and wraps
// [collection.ErrUnreachable].
type joinError struct{ error }

func (e joinError) Unwrap() []error { return []error{collection.ErrUnreachable, e.error} }

func (s reachabilityStore) Put(ctx context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	made, err := s.Store.Put(ctx, name, r, size)
	return made, toUnreachable(err)
}

func (s reachabilityStore) Replace(ctx context.Context, name string, body []byte) (time.Time, error) {
	made, err := s.Store.Replace(ctx, name, body)
	return made, toUnreachable(err)
}

func (s reachabilityStore) Get(ctx context.Context, name string,
	from, length int64) (io.ReadCloser, objects.Entry, error) {
	r, e, err := s.Store.Get(ctx, name, from, length)
	if err == nil {
		r = reachabilityBody{r}
	}
	return r, e, toUnreachable(err)
}

// reachabilityBody is the body of an object, whose read errors wrap [collection.ErrUnreachable].
type reachabilityBody struct{ io.ReadCloser }

func (b reachabilityBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = toUnreachable(err)
	}
	return n, err
}

func (s reachabilityStore) List(ctx context.Context, prefix, after string, limit int) ([]objects.Entry, error) {
	entries, err := s.Store.List(ctx, prefix, after, limit)
	return entries, toUnreachable(err)
}

func (s reachabilityStore) Delete(ctx context.Context, name string) error {
	return toUnreachable(s.Store.Delete(ctx, name))
}
