package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

// PutFile makes an object of a file. One that is there already with the same content,
// as after an attempt that was cut off, is as good as a new one.
func PutFile(ctx context.Context, s Store, name, file string) (Ref, error) {
	f, err := os.Open(file)
	if err != nil {
		return Ref{}, err
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, &reader{ctx, f})
	if err != nil {
		return Ref{}, fmt.Errorf("%s: %w", file, err)
	}
	ref := Ref{Name: name, SHA256: hex.EncodeToString(h.Sum(nil)), Size: size}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Ref{}, err
	}
	_, err = s.Put(ctx, name, f, size) // which can read it again where it has to ask twice
	if errors.Is(err, ErrExists) && Verify(ctx, s, ref) == nil {
		return ref, nil
	}
	return ref, err
}

// Verify reads an object and compares its checksum ([ErrDamaged]).
func Verify(ctx context.Context, s Store, ref Ref) error {
	r, _, err := s.Get(ctx, ref.Name, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(h, &reader{ctx, r})
	if err != nil {
		return fmt.Errorf("object %s: %w", ref.Name, err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); n != ref.Size || sum != ref.SHA256 {
		return fmt.Errorf("object %s: %w", ref.Name, ErrDamaged)
	}
	return nil
}
