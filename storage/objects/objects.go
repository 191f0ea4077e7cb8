// Package objects keeps files that are written once, known by name, and never changed. A
// [Store] is a folder, which may be on a network file system, or a bucket of an S3 service.
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
	// ErrNotFound: no object has the name.
	ErrNotFound = errors.New("no such object")
	// ErrExists: an object has the name already. Objects are never replaced.
	ErrExists = errors.New("the object is there already")
	// ErrNotMade: the store has refused a Put. There is no object of it, and there will be none.
	ErrNotMade = errors.New("the object was not made")
	// ErrName: a name that no object may have.
	ErrName = errors.New("bad object name")
	// ErrAddress: an address that is none of a store.
	ErrAddress = errors.New("bad address of a store")
	// ErrDamaged: the bytes of an object are not those that were written.
	ErrDamaged = errors.New("object is damaged")
)

// Store keeps objects. Implementations are safe for concurrent use.
type Store interface {
	// Put makes an object of size bytes from r, if no object has the name (If-None-Match). The
	// object is there as a whole, and durable, when Put returns. If several callers put one name, one
	// of them succeeds, also if it had to ask twice; the others get [ErrExists], or [ErrNotMade] where
	// the store refuses them for another reason. After another error the object may be there, or
	// appear later, as a whole. made is a time between the moment at which the object appeared and
	// that at which Put returns, by the clock of the store, perhaps in whole seconds.
	Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error)
	// Replace makes a small object, or takes the place of the one with the name. made is as for Put.
	Replace(ctx context.Context, name string, body []byte) (made time.Time, err error)
	// Get opens length bytes of an object from an offset on, or as many as there are; a length below 0
	// means up to its end. The entry describes the whole object. The error is [ErrNotFound] if there is none.
	Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error)
	// List returns the objects whose names begin with prefix and sort after the name after, in
	// the order of the names: the first limit of them, all if limit is 0. after may be "".
	List(ctx context.Context, prefix, after string, limit int) ([]Entry, error)
	// Delete removes an object; one that is not there is no error.
	Delete(ctx context.Context, name string) error
	// RemoveLeftovers removes the remains of Puts that began before a time and were
	// interrupted. They are no objects, and in no list.
	RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error)
}

// Entry is an object as a list shows it.
type Entry struct {
	Name string
	Size int64
	Made time.Time // by the clock of the store: when it appeared, or its bytes were complete before that
}

// CheckName refuses a string that is no name: parts of letters, digits and -_.@ between
// slashes, none of which begins with a dot.
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

// rangeReader reads a part of a source, and closes that.
type rangeReader struct {
	io.Reader
	io.Closer
}

// contextReader ends with a context.
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
