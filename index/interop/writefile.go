package interop

import (
	"encoding/json"
	"io"
	"os"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

// npyFile is a new .npy file that is flushed to disk when it is closed.
type npyFile struct {
	*vectors.NPYWriter
	file *os.File
}

func (w *Writer) createNPY(name, dtype string, shape ...int) (*npyFile, error) {
	file, err := w.folder.Create(name)
	if err != nil {
		return nil, err
	}
	n, err := vectors.NewNPYWriter(file, dtype, shape...)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &npyFile{NPYWriter: n, file: file}, nil
}

func (w *npyFile) close() error {
	if err := w.NPYWriter.Close(); err != nil {
		w.file.Close()
		return err
	}
	return files.CloseSynced(w.file)
}

// discard closes the file without regard to its content. w may be nil, or closed.
func (w *npyFile) discard() {
	if w != nil {
		w.file.Close()
	}
}

// writeNPY writes a file in one go; fill gives it its elements.
func (w *Writer) writeNPY(name, dtype string, shape []int, fill func(w *vectors.NPYWriter) error) error {
	return w.folder.Write(name, func(f io.Writer) error {
		n, err := vectors.NewNPYWriter(f, dtype, shape...)
		if err != nil {
			return err
		}
		if err := fill(n); err != nil {
			return err
		}
		return n.Close()
	})
}

func (w *Writer) writeObject(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.folder.Write(name, func(f io.Writer) error {
		_, err := f.Write(text)
		return err
	})
}
