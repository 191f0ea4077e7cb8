package files

import (
	"errors"
	"io/fs"
	"os"
)

// Temporary is a file that is gone when it is closed, or when the process dies: it loses its name at
// once where the system allows that, and when it is closed elsewhere.
type Temporary struct {
	*os.File
	named bool
}

// NewTemporary makes a file for reading and writing, as [os.CreateTemp] does.
func NewTemporary(dir, pattern string) (*Temporary, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	return &Temporary{f, os.Remove(f.Name()) != nil}, nil
}

// Close closes the file.
func (t *Temporary) Close() error {
	err := t.File.Close()
	if !t.named {
		return err
	}
	t.named = false
	if rerr := os.Remove(t.Name()); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}
