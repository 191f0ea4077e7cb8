package files

import (
	"errors"
	"io/fs"
	"os"
)

// Temporary is a file that disappears when it is closed, or when the process dies. If the system
// allows it, the file loses its name at once, otherwise when it is closed.
type Temporary struct {
	*os.File
	named bool
}

// NewTemporary creates a file for reading and writing, as [os.CreateTemp] does.
func NewTemporary(dir, pattern string) (*Temporary, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	return &Temporary{f, os.Remove(f.Name()) != nil}, nil
}

// Close closes the file, and removes it if it still has a name.
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
