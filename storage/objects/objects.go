// Package objects stores files that have a name, are written once, and never change. A [Store] is a folder, which may
// be on a network file system, or a bucket of an S3 service.
package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

var (
	// ErrNotFound means that no object has the name.
	ErrNotFound = errors.New("no such object")
	// ErrExists means that an object has the name already. Put never replaces an object.
	ErrExists = errors.New("the object is there already")
	// ErrNotMade means that the store has refused a Put: the object does not exist, and will not appear later.
	ErrNotMade = errors.New("the object was not made")
	// ErrName means that an object cannot have the name.
	ErrName = errors.New("bad object name")
	// ErrAddress means that an address is not one of a store.
	ErrAddress = errors.New("bad address of a store")
	// ErrDamaged means that the bytes of an object are not those that were written.
	ErrDamaged = errors.New("object is damaged")
)

// Store stores objects. Implementations are safe for concurrent use.
type Store interface {
	// Put creates an object with size bytes from r, if no object has the name (If-None-Match). When Put returns, the
	// object is complete and durable.
	//
	// If several callers put the same name, one of them succeeds, even if it had to try twice. The others get
	// [ErrExists], or [ErrNotMade] if the store refuses them for another reason. After any other error, the complete
	// object may exist or appear later. made is a time after the object appeared and before Put returns, by the clock
	// of the store, which may have whole seconds only.
	Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error)
	// Replace creates a small object, or replaces the one with the name. made is that of Put.
	Replace(ctx context.Context, name string, body []byte) (made time.Time, err error)
	// Get opens length bytes of an object, from an offset on, or fewer at its end; a negative length means up to the
	// end. The entry describes the whole object. The error is [ErrNotFound] if it does not exist.
	Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error)
	// List returns the objects whose names begin with prefix and come after the name after, which may be "". They are
	// in the order of their names. limit is the maximum number. 0 means all.
	List(ctx context.Context, prefix, after string, limit int) ([]Entry, error)
	// Delete deletes an object. If it does not exist, Delete does nothing.
	Delete(ctx context.Context, name string) error
	// RemoveLeftovers removes the remains of Puts that began before a time and were interrupted. Leftovers are not
	// objects, and List does not show them.
	RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error)
}

// Entry is an object as a list shows it.
type Entry struct {
	Name string
	Size int64
	Made time.Time // by the clock of the store; not before its bytes were complete, and not after it appeared
}

// CheckName returns an error if an object cannot have a name. Names have up to 900 bytes. They are parts of ASCII
// letters, digits and -_.@ between slashes. A part does not begin with a dot.
func CheckName(name string) error {
	ok := len(name) <= 900
	for part := range strings.SplitSeq(name, "/") {
		ok = ok && part != "" && part[0] != '.'
		for _, r := range part {
			ascii := r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
			ok = ok && (ascii || strings.ContainsRune("-_.@", r))
		}
	}
	if !ok {
		return fmt.Errorf("%w: %q", ErrName, name)
	}
	return nil
}

// rangeReader reads a range of a source, and closes the source.
type rangeReader struct {
	io.Reader
	io.Closer
}

// contextReader is a reader that ends with a context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
