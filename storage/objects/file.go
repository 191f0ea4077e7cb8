package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
)

// maxReadTries is how often a body that is cut short is read again. Stores repeat other failed requests themselves.
const maxReadTries = 5

// Read reads a whole object. The error is [ErrDamaged] if it has more than maxBytes.
func Read(ctx context.Context, s Store, name string, maxBytes int64) ([]byte, Entry, error) {
	b, e, err := ReadRange(ctx, s, name, 0, maxBytes)
	if err == nil && e.Size > maxBytes {
		err = fmt.Errorf("object %s: %w: it has %d bytes; at most %d are possible", name, ErrDamaged, e.Size, maxBytes)
	}
	return b, e, err
}

// ReadRange reads up to length bytes of an object, from an offset on. A body that is cut short is read again.
func ReadRange(ctx context.Context, s Store, name string, from, length int64) (b []byte, e Entry, err error) {
	for try := range maxReadTries {
		if try > 0 {
			waitBeforeRetry(ctx, try)
		}
		var r io.ReadCloser
		if r, e, err = s.Get(ctx, name, from, length); err != nil {
			return nil, e, err
		}
		b = make([]byte, max(0, min(length, e.Size-from)))
		_, err = io.ReadFull(r, b)
		_ = r.Close()
		if err == nil {
			return b, e, nil
		}
		err = fmt.Errorf("object %s: %w", name, err)
		if ctx.Err() != nil {
			return nil, e, ctx.Err()
		}
	}
	return nil, e, err
}

// waitBeforeRetry waits before another try, longer after each one.
func waitBeforeRetry(ctx context.Context, try int) {
	select {
	case <-time.After(min(50*time.Millisecond<<try, 2*time.Second)):
	case <-ctx.Done():
	}
}

// Ref names an object, with its size and checksum.
type Ref struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"bytes"`
}

// maxRefBytes is the largest size in a reference: a damaged reference must not use up the disk or the memory.
const maxRefBytes = 1 << 40

// Check returns an error if a reference is not valid.
func (r Ref) Check() error {
	sum, err := hex.DecodeString(r.SHA256)
	if err != nil || len(sum) != sha256.Size || r.Size < 0 || r.Size > maxRefBytes {
		return fmt.Errorf("%w: %q has the checksum %q and %d bytes", ErrName, r.Name, r.SHA256, r.Size)
	}
	return CheckName(r.Name)
}

// PutFile puts a file as an object. It succeeds if the object exists with the same content, for example from an
// attempt that was interrupted.
func PutFile(ctx context.Context, s Store, name, file string) (Ref, error) {
	f, err := os.Open(file)
	if err != nil {
		return Ref{}, err
	}
	defer f.Close()
	ref := Ref{Name: name}
	if ref.SHA256, ref.Size, err = hashReader(ctx, f); err != nil {
		return Ref{}, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Ref{}, err
	}
	_, err = s.Put(ctx, name, f, ref.Size)
	if errors.Is(err, ErrExists) {
		r, _, getErr := s.Get(ctx, name, 0, -1)
		if getErr != nil {
			return ref, errors.Join(err, getErr)
		}
		defer r.Close()
		if existing, size, sumErr := hashReader(ctx, r); sumErr == nil && existing == ref.SHA256 && size == ref.Size {
			return ref, nil
		}
	}
	return ref, err
}

// hashReader returns the SHA-256 of a reader in hexadecimal, and the number of bytes.
func hashReader(ctx context.Context, r io.Reader) (hexSum string, size int64, err error) {
	h := sha256.New()
	size, err = io.Copy(h, &contextReader{ctx, r})
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// FetchRef writes the object of a reference to a file. The file appears when it is complete and its checksum is right;
// otherwise the error is [ErrDamaged].
func FetchRef(ctx context.Context, s Store, ref Ref, file string) error {
	if err := ref.Check(); err != nil {
		return err
	}
	return fetchToFile(ctx, s, ref.Name, ref.Size, file, func(f *os.File) error {
		actual, _, err := hashReader(ctx, io.NewSectionReader(f, 0, ref.Size))
		if err == nil && actual != ref.SHA256 {
			err = fmt.Errorf("object %s: %w: its SHA-256 is %s, not %s", ref.Name, ErrDamaged, actual, ref.SHA256)
		}
		return err
	})
}

// Fetch writes an object with a size to a file, in concurrent ranges. The file appears when it is complete. It is not
// synced to the disk, because it can be fetched again.
func Fetch(ctx context.Context, s Store, name string, size int64, file string) error {
	return fetchToFile(ctx, s, name, size, file, nil)
}

// fetchToFile fetches an object to a temporary file, lets check examine it, and renames it. A nil check accepts all.
func fetchToFile(ctx context.Context, s Store, name string, size int64, file string,
	check func(*os.File) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".fetch-*")
	if err != nil {
		return err
	}
	defer func() {
		if tmp != nil {
			err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name()))
		}
	}()
	f := NewFetcher(s, name, size, tmp)
	if err := f.Fill(ctx); err != nil {
		return err
	}
	if check != nil {
		if err := check(tmp); err != nil {
			return err
		}
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	tmpPath := tmp.Name()
	tmp = nil
	if err := files.Rename(tmpPath, file); err != nil {
		return errors.Join(err, os.Remove(tmpPath))
	}
	return nil
}
